#!/usr/bin/env python3
"""Checks object files that are compiled for an instruction set: code that other files may define too has to be in its namespace.

    isa_symbols.py NAMESPACE OBJECT…

The linker keeps one of several definitions of a weak symbol. One from these files may need instructions that the machine lacks, so there must be none outside of NAMESPACE. Prints each such symbol; exit 1 when there are any.
"""

import re
import subprocess
import sys


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    namespace, objects = sys.argv[1], sys.argv[2:]
    listing = subprocess.run(["nm", "--demangle", "--defined-only", *objects], check=True, capture_output=True, text=True)
    functions = re.findall(r"^[0-9a-f]+ (\w) (.*)$", listing.stdout, re.MULTILINE)
    if not any(namespace in name for _, name in functions):
        sys.exit(f"no symbol of {namespace} in {objects}")
    foreign = sorted({name for kind, name in functions if kind in "Ww" and namespace not in name})
    for name in foreign:
        print(f"code outside of {namespace} that the linker may use elsewhere: {name}")
    print(f"{len(functions)} symbols, {len(foreign)} foreign")
    return 1 if foreign else 0


if __name__ == "__main__":
    sys.exit(main())
