#!/usr/bin/env python3
"""Each rule of tidy.py fires where it must, and stays silent where it must not."""

import pathlib
import tempfile
import unittest

import cxx_scan
import tidy


def breaches(files):
    """Findings as (path, line, rule) for a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = pathlib.Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return [finding[:3] for finding in tidy.Tree(root).check()]


def body(lines, head="void F() {"):
    return "\n".join([head] + ["  x = 1;"] * (lines - 2) + ["}"]) + "\n"


class RulesTest(unittest.TestCase):
    seen = set()

    def expect(self, files, *expected):
        found = breaches(files)
        RulesTest.seen |= {rule for _, _, rule in found}
        self.assertEqual(found, list(expected))

    def expect_include(self, path, include, fires, rule="include"):
        self.expect({path: f"#pragma once\n\n#include {include}\n"}, *([(path, 3, rule)] if fires else []))

    def test_modules_include_only_what_they_may(self):
        for path, include, fires in [
            ("client-lib/src/a.h", '"cache-node/node.h"', True),
            ("client-lib/src/a.h", '"coordinator/index.h"', True),
            ("client-lib/src/a.h", '"tokura/client.h"', False),
            ("client-lib/src/a.h", '"kernels/part.h"', False),
            ("cache-node/a.h", '"tokura/client.h"', True),
            ("cache-node/a.h", '"client-lib/src/ring.h"', True),
            ("cache-node/a.h", '"coordinator/index.h"', True),
            ("cache-node/a.h", '"common/net/channel.h"', False),
            ("coordinator/a.h", '"cache-node/node.h"', True),
            ("coordinator/a.h", '"tokura/client.h"', True),
            ("kernels/a.h", '"common/crc32c.h"', False),
            ("kernels/a.h", '"common/net/frame.h"', True),
            ("kernels/a.h", '"common/config.h"', True),
            ("kernels/a.h", '"proto/namespace.h"', True),
            ("proto/a.h", '"common/net/frame.h"', True),
            ("proto/a.h", '"kernels/part.h"', True),
            ("common/a.h", '"proto/namespace.h"', True),
            ("common/net/a.h", '"proto/tokura.pb.h"', False),
            ("common/net/a.h", '"kernels/part.h"', True),
            ("cli/a.h", '"cache-node/node.h"', False),
            ("tests/unit/node/a.h", '"cache-node/node.h"', False),
        ]:
            with self.subTest(path=path, include=include):
                self.expect_include(path, include, fires)

    def test_third_party_stays_in_its_files(self):
        for path, include, fires in [
            ("common/net/ucx_endpoint.h", "<ucp/api/ucp.h>", False),
            ("common/net/channel.h", "<ucp/api/ucp.h>", True),
            ("cache-node/a.h", "<ucs/type/status.h>", True),
            ("coordinator/redis_store.h", "<hiredis/hiredis.h>", False),
            ("coordinator/index.h", "<hiredis/hiredis.h>", True),
            ("kernels/part_cuda.h", "<cuda_runtime.h>", False),
            ("kernels/part.cuh", "<cuda_fp16.h>", False),
            ("kernels/part.h", "<cuda_runtime.h>", True),
        ]:
            with self.subTest(path=path, include=include):
                self.expect_include(path, include, fires, "third-party")

    def test_a_commented_include_is_none(self):
        self.expect({"cache-node/a.cc": '// #include "tokura/client.h"\n'})

    def test_banned_calls(self):
        for call in [
            "std::this_thread::sleep_for(x);", "usleep(5);", "sleep(1);", "nanosleep(&a, &b);", "int x = rand();",
            "srand(1);", "std::random_device d;", "auto t = std::chrono::steady_clock::now();",
            "auto t = std::chrono::system_clock::now();", "time(nullptr);", "clock_gettime(0, &t);",
        ]:
            with self.subTest(call=call):
                self.expect({"cache-node/a.cc": f"\n{call}\n"}, ("cache-node/a.cc", 2, "banned"))
                self.expect({"tests/unit/node/a_test.cc": f"\n{call}\n"}, ("tests/unit/node/a_test.cc", 2, "banned"))
                self.expect({"common/a.cc": f"\n{call}\n"})

    def test_harmless_words_are_not_banned(self):
        self.expect({"cache-node/a.cc": 'x.time(0); brand(); Wake::kSleep; // sleep_for(1)\nF("usleep(1)"); runtime(0);\n'})

    def test_absl_mutex_and_std_format_are_banned_everywhere(self):
        self.expect({"common/a.cc": "absl::Mutex m;\n"}, ("common/a.cc", 1, "banned"))
        self.expect({"cli/a.cc": 'std::format("");\n'}, ("cli/a.cc", 1, "banned"))

    def test_only_config_and_ucx_read_the_environment(self):
        text = 'auto* x = std::getenv("X");\n'
        self.expect({"cli/a.cc": text}, ("cli/a.cc", 1, "getenv"))
        self.expect({"common/log.cc": text}, ("common/log.cc", 1, "getenv"))
        self.expect({"common/config.cc": text, "common/net/ucx_settings.cc": text, "tests/unit/a_test.cc": text})

    def test_unfinished_marks(self):
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X"):
            self.expect({"common/a.cc": f"\n\n// {word}: later\n"}, ("common/a.cc", 3, "unfinished"))
            self.expect({"README.md": f"{word}\n"}, ("README.md", 1, "unfinished"))

    def test_machine_paths(self):
        self.expect({"common/a.cc": 'F("/home/me/x");\n'}, ("common/a.cc", 1, "machine-path"))
        self.expect({"deploy/a.sh": "cd /root\n"}, ("deploy/a.sh", 1, "machine-path"))
        self.expect({"proto/WIRE.md": "`/home/me`\n"}, ("proto/WIRE.md", 1, "machine-path"))
        self.expect({"cli/a.cc": 'F("/tmp/x");\n'}, ("cli/a.cc", 1, "machine-path"))
        self.expect({"tests/unit/a_test.cc": 'F("/tmp/x");\n', "README.md": "--out /tmp/x.kvcap\n"})
        self.expect({"common/a.cc": "// disk/work pool, ./work/x, ${ROOT}/home/x\n"})

    def test_pragma_once(self):
        self.expect({"common/a.h": "int F();\n"}, ("common/a.h", 1, "pragma-once"))
        self.expect({"common/a.h": "// Purpose.\n\n#pragma once\n\nint F();\n", "common/a.cc": "int F();\n"})

    def test_file_length(self):
        self.expect({"common/a.cc": "int x;\n" * 1000})
        self.expect({"common/a.cc": "int x;\n" * 1001}, ("common/a.cc", 1002, "file-lines"))
        self.expect({"deploy/a.sh": "true\n" * 1001}, ("deploy/a.sh", 1002, "file-lines"))

    def test_function_length(self):
        self.expect({"common/a.cc": body(70)})
        self.expect({"common/a.cc": body(71)}, ("common/a.cc", 1, "function-lines"))
        member = "class A {\n public:\n" + body(71, "  int F() const override {") + "};\n"
        self.expect({"common/a.cc": member}, ("common/a.cc", 3, "function-lines"))
        test = "namespace a {\n" + body(71, "TEST(A, B) {") + "}  // namespace a\n"
        self.expect({"tests/unit/a_test.cc": test}, ("tests/unit/a_test.cc", 2, "function-lines"))
        constructor = body(71, "A::A(int x)\n    : a_(x), b_{x}, c_(F({1, 2})) {")
        self.expect({"common/a.cc": constructor}, ("common/a.cc", 2, "function-lines"))

    def test_parameters(self):
        six = "int F(int a, std::map<int, int> b, void (*c)(int, int), int d, int e = G(1, 2), int f = {}) {\n}\n"
        seven = "int F(int a,\n      int b, int c, int d,\n      int e, int f, int g) {\n}\n"
        self.expect({"common/a.cc": six})
        self.expect({"common/a.cc": seven}, ("common/a.cc", 3, "parameters"))
        declared = "#pragma once\nclass A {\n  virtual int F(int a, int b, int c, int d, int e, int f, int g) = 0;\n};\n"
        self.expect({"common/a.h": declared}, ("common/a.h", 3, "parameters"))
        inner = "void F() {\n  auto f = [](int a, int b, int c, int d, int e, int f, int g) { return 1; };\n}\n"
        self.expect({"common/a.cc": inner}, ("common/a.cc", 2, "parameters"))
        call = "void F() {\n  G(1, 2, 3, 4, 5, 6, 7, 8);\n  int x[] = {1, 2, 3, 4, 5, 6, 7, 8};\n}\n"
        self.expect({"common/a.cc": call})
        self.expect({"common/a.cc": "std::function<void(int, int, int)> F(int a) {\n}\n"})

    def test_nesting(self):
        def nested(depth):
            return "void F() {\n" + "if (x) {\n" * depth + "x();\n" + "}\n" * depth + "}\n"

        self.expect({"common/a.cc": nested(4)})
        self.expect({"common/a.cc": nested(5)}, ("common/a.cc", 1, "nesting"))
        mixed = "void F() {\nfor (int i = 0; i < 3; ++i) {\nwhile (x) {\nswitch (y) {\ncase 1: {\nif (z) {\n}\n}\n}\n}\n}\n}\n"
        self.expect({"common/a.cc": mixed}, ("common/a.cc", 1, "nesting"))
        chain = "void F() {\n" + "if (a) {\n} else if (b) {\n} else {\n}\n" * 5 + "}\n"
        self.expect({"common/a.cc": chain})
        # A lambda's body is a function of its own.
        inside = "void F() {\n" + "if (x) {\n" * 3 + "G([&] {\n" + "if (y) {\n" * 2 + "}\n" * 2 + "});\n" + "}\n" * 3 + "}\n"
        self.expect({"common/a.cc": inside})

    def test_every_rule_has_fired(self):
        # Named so that unittest's alphabetical order does not matter: run the others here again.
        for name in dir(self):
            if name.startswith("test_") and name != "test_every_rule_has_fired":
                getattr(self, name)()
        self.assertEqual(RulesTest.seen, set(tidy.RULES))


class ScannerTest(unittest.TestCase):
    def names(self, text):
        return [(f.name, f.lines, f.parameters) for f in cxx_scan.functions(text)]

    def test_literals_and_comments_do_not_confuse_braces(self):
        text = 'void F() {\n  a = "{";  // {\n  b = \'{\'; /* { */\n  c = R"x({{{)x";\n  d = 1\'000;\n}\nvoid G() {\n}\n'
        self.assertEqual(self.names(text), [("F", 6, 0), ("G", 2, 0)])

    def test_macros_do_not_confuse_braces(self):
        self.assertEqual(self.names("#define M(x) \\\n  if (x) { \\\n\nvoid F() {\n}\n"), [("F", 2, 0)])

    def test_types_and_initialisers_are_no_functions(self):
        text = "struct A {\n  int x = 1;\n};\nconst std::vector<int> kAll = {1, 2};\nint y{3};\nenum class E { kA };\nvoid F(int a) {\n  A b = {1};\n  G({1, 2});\n  return {};\n}\n"
        self.assertEqual(self.names(text), [("F", 5, 1)])

    def test_templates_operators_and_trailing_parts(self):
        text = (
            "template <typename T, typename U>\nT F(const T& a, U b) requires std::is_same_v<T, U> {\n}\n"
            "bool operator()(int a, int b) const noexcept {\n}\n"
            "bool operator<(const A& a, const A& b) {\n}\n"
            "auto G(int a) -> std::vector<int> {\n}\n"
            "void H(int a) TOKURA_REQUIRES(mutex_) {\n}\n"
        )
        self.assertEqual([f.parameters for f in cxx_scan.functions(text)], [2, 2, 2, 1, 1])

    def test_lambdas_inside_calls_are_found(self):
        text = "void F() {\n  G(1, [this, x = {2}](int a) -> int {\n    return a;\n  });\n  for (int i = 0; i < 2; ++i) {\n  }\n}\n"
        self.assertEqual(self.names(text), [("lambda", 3, 1), ("F", 7, 0)])


if __name__ == "__main__":
    unittest.main()
