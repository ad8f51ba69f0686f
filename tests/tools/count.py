#!/usr/bin/env python3
"""Counts results and prints 'N passed, N failed[, N skipped]'; exits 1 when something failed or nothing ran.

    count.py FOLDER…    each with GoogleTest JSON files, NAME.result files (pass or fail) and CTest's ctest.xml

A CTest entry without GoogleTest results of its own counts as one test.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_gtest(path):
    """(passed, failed, skipped, names of the failed) of one GoogleTest JSON file."""
    passed = failed = skipped = 0
    names = []
    for suite in json.loads(path.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                failed += 1
                names.append(f"{path.stem}: {suite['name']}.{case['name']}")
            elif case.get("result") == "SKIPPED":
                skipped += 1
            elif case.get("status") == "RUN":
                passed += 1
    return passed, failed, skipped, names


def main():
    passed = failed = skipped = 0
    names = []
    for folder in map(pathlib.Path, sys.argv[1:]):
        programs = set()
        for path in sorted(folder.glob("*.json")):
            p, f, s, n = count_gtest(path)
            passed, failed, skipped, names = passed + p, failed + f, skipped + s, names + n
            programs.add(path.stem)
            if f:
                programs.add(path.stem + " failed")
        for path in sorted(folder.glob("*.result")):
            ok = path.read_text().strip() == "pass"
            passed, failed = passed + ok, failed + (not ok)
            names += [] if ok else [path.stem]
        xml = folder / "ctest.xml"
        for case in ElementTree.parse(xml).getroot().iter("testcase") if xml.exists() else ():
            name, status = case.get("name"), case.get("status")
            if status == "run":
                passed += name not in programs
            elif status in ("disabled", "notrun"):
                skipped += name not in programs
            elif name + " failed" not in programs:  # crashed, timed out, or no GoogleTest program
                failed += 1
                names.append(f"{folder.parent.name}: {name}")
    for name in names:
        print("failed:", name)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
