#!/usr/bin/env python3
"""Checks the repository's rules: who may include whom, banned calls, machine paths, sizes of files and functions.

    tidy.py [ROOT]      prints FILE:LINE: [rule] message for each breach; exit 1 when there are any
"""

import pathlib
import re
import sys

import cxx_scan

MODULES = ("common", "proto", "kernels", "client-lib", "cache-node", "coordinator", "cli")
TREES = MODULES + ("tests", "deploy", "cmake", ".ci")
CXX = {".h", ".cc", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake", ".proto", ".yaml", ".yml", ".json", ".txt", ""}
SKIPPED = ("tests/data/", "tests/golden/", "tests/tidy/", "tests/fuzz/corpus/")

FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
NESTING_MAX = 4

# What a module may include of the others. tests and cli may include everything.
ALLOWED = {
    "common": {"common"},
    "proto": {"common", "proto"},
    "kernels": {"common", "kernels"},
    "client-lib": {"common", "proto", "kernels", "client-lib"},
    "cache-node": {"common", "proto", "kernels", "cache-node"},
    "coordinator": {"common", "proto", "kernels", "coordinator"},
}
# The parts of common above its basics: what kernels and proto stay free of.
NOT_BASIC = re.compile(r"common/(net/|http\.h|admin_http\.h|config)")

THIRD_PARTY = [
    ("UCX", re.compile(r"^(ucp|ucs|uct|ucm)/"), re.compile(r"^(common/net/ucx_|tests/unit/net/ucx_)"), "common/net/ucx_* and its tests"),
    ("hiredis", re.compile(r"^hiredis/"), re.compile(r"^coordinator/redis_"), "coordinator/redis_*"),
    ("CUDA", re.compile(r"^(cuda|cub/|thrust/|nvrtc|nccl)"), re.compile(r"\.cuh?$|_cuda\.(h|cc)$"), "*.cu and *_cuda.*"),
]

BANNED = [
    (r"\bsleep_for\b|\bsleep_until\b|\bu?sleep\s*\(|\bnanosleep\s*\(", "sleeps; wait for an event, or use a timer of the Executor"),
    (r"(?<![\w.>])s?rand\s*\(|\bstd::random_device\b", "draws its own randomness; take a RandomSource"),
    (r"\b(steady|system|high_resolution)_clock::now\b|\bgettimeofday\s*\(|\bclock_gettime\s*\(|(?<![\w.>:])time\s*\(\s*(nullptr|NULL|0)\s*\)", "reads a clock; take a Clock or an Executor"),
]
BANNED_EVERYWHERE = [
    (r"\babsl::Mutex\b", "uses absl::Mutex, which gives false races under TSan; use the wrapper in common"),
    (r"\bstd::format\b|\bstd::views\b|\bstd::ranges::views\b", "is not in Clang 14's library"),
]
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
UNFINISHED = re.compile("|".join((r"\bTO" + "DO", r"\bFIX" + "ME", r"\bXX" + "X\\b", r"\bHA" + "CK\\b")))
MACHINE_PATH = re.compile(r"(?<![\w.\-/}\)~])/(?:work|root|home)(?=[/\"'\s`),;:]|$)")
TEMPORARY_PATH = re.compile(r"(?<![\w.\-/}\)~])/tmp(?=[/\"'\s`),;:]|$)")

# Functions whose signature somebody else fixes.
PARAMETERS_EXEMPT = {("common/net/ucx_api.cc", "LogLine")}  # UCX's log handler

RULES = ("include", "third-party", "banned", "getenv", "unfinished", "machine-path", "pragma-once", "file-lines",
         "function-lines", "parameters", "nesting")


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []

    def report(self, path, line, rule, message):
        assert rule in RULES
        self.findings.append((path, line, rule, message))

    def check(self):
        for path in self.files():
            text = (self.root / path).read_text(encoding="utf-8", errors="replace")
            if pathlib.PurePath(path).suffix in CXX:
                self.check_cxx(path, text)
            self.check_text(path, text)
        return sorted(self.findings)

    def files(self):
        candidates = [p for p in self.root.glob("*") if p.is_file()]
        for tree in TREES:
            candidates += (self.root / tree).rglob("*")
        for file in sorted(candidates):
            path = file.relative_to(self.root).as_posix()
            known = file.suffix in CXX | SCRIPTS | {".md"}
            if file.is_file() and known and not path.startswith(SKIPPED) and "__pycache__" not in path:
                yield path

    def check_text(self, path, text):
        temporary_allowed = path.startswith("tests/") or path.endswith(".md") or path.startswith(".")
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if found := UNFINISHED.search(line):
                self.report(path, number, "unfinished", f"{found[0]}: finish it or file an issue")
            if found := MACHINE_PATH.search(line):
                self.report(path, number, "machine-path", f"names the machine's directory {found[0]}")
            elif not temporary_allowed and TEMPORARY_PATH.search(line):
                self.report(path, number, "machine-path", "names /tmp; only tests and documentation do")
        if pathlib.PurePath(path).suffix in CXX | {".py", ".sh"} and len(lines) > FILE_LINES_MAX + 1:
            self.report(path, len(lines), "file-lines", f"has {len(lines) - 1} lines; at most {FILE_LINES_MAX}")

    def check_cxx(self, path, text):
        code = cxx_scan.without_comments(text)
        for number, line in enumerate(code.split("\n"), 1):
            if found := re.match(r"\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", line):
                self.check_include(path, number, found[1])
        self.check_words(path, text)
        if path.endswith((".h", ".cuh")) and not re.match(r"\s*#pragma once\n", code):
            self.report(path, 1, "pragma-once", "a header begins with #pragma once")
        self.check_functions(path, text)

    def check_include(self, path, number, included):
        module = path.split("/")[0]
        target = "client-lib" if included.startswith("tokura/") else included.split("/")[0]
        allowed = ALLOWED.get(module)
        if allowed is not None and target in MODULES:
            # The channel speaks in control messages, which are generated below proto/.
            messages = path.startswith("common/net/") and included == "proto/tokura.pb.h"
            if target not in allowed and not messages:
                self.report(path, number, "include", f"{module} must not include {target} ({included})")
            elif module in ("kernels", "proto") and NOT_BASIC.match(included):
                self.report(path, number, "include", f"{module} uses only common's basics, not {included}")
        for name, pattern, home, where in THIRD_PARTY:
            if pattern.match(included) and not home.search(path):
                self.report(path, number, "third-party", f"only {where} includes {name} ({included})")

    def check_words(self, path, text):
        banned = BANNED_EVERYWHERE + ([] if path.startswith("common/") else BANNED)
        getenv_allowed = path.startswith(("common/config", "common/net/ucx_", "tests/"))
        for number, line in enumerate(cxx_scan.blank(text).split("\n"), 1):
            for pattern, why in banned:
                if found := re.search(pattern, line):
                    self.report(path, number, "banned", f"{found[0].strip()} {why}")
            if not getenv_allowed and GETENV.search(line):
                self.report(path, number, "getenv", "reads the environment; add an option to the table instead")

    def check_functions(self, path, text):
        for function in cxx_scan.functions(text):
            where = f"{function.name or 'a function'}"
            if function.lines > FUNCTION_LINES_MAX:
                self.report(path, function.line, "function-lines", f"{where} has {function.lines} lines; at most {FUNCTION_LINES_MAX}")
            if function.parameters > PARAMETERS_MAX and (path, function.name) not in PARAMETERS_EXEMPT:
                self.report(path, function.line, "parameters", f"{where} has {function.parameters} parameters; at most {PARAMETERS_MAX}")
            if function.nesting > NESTING_MAX:
                self.report(path, function.line, "nesting", f"{where} nests {function.nesting} deep; at most {NESTING_MAX}")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    findings = Tree(root).check()
    for path, line, rule, message in findings:
        print(f"{path}:{line}: [{rule}] {message}")
    print(f"tidy: {len(findings)} breaches of {len(RULES)} rules")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
