#!/usr/bin/env python3
"""The check names each mistake that is put into a list of bugs, and accepts a list without mistakes."""
import os
import tempfile
import unittest

import bug_list

GOOD = """
[sum-starts-at-one]
what = "A sum starts at 1."
file = "base/sum.cc"
old = 'int sum = 0;'
new = 'int sum = 1;'
target = "model_sum_test"
test = "*/SumTest.OfNothingIsZero/*"
"""


class BugList(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.write("base/sum.cc", "int sum = 0;\nint count = 0;\nint count_of_others = 0;\n")
        self.write("tests/base/CMakeLists.txt", "foreach(test sum)\n  coppice_test(model_${test}_test SOURCES ${test}_test.cc)\n"
                   "endforeach()\nadd_test(NAME sum_of_${ranks} COMMAND x)\nforeach(ranks 1 2)\n")
        self.write("tests/base/sum_test.cc", "TEST_P(SumTest,\n       OfNothingIsZero) {}\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf8") as file:
            file.write(text)

    def found(self, text, least=1):
        """The mistakes of a list for folder base/, as one text."""
        self.write("bugs/base.toml", text)
        bugs = bug_list.read_bugs(os.path.join(self.root, "bugs"))
        return "\n".join(bug_list.mistakes(self.root, bugs, least))

    def test_accepts_a_good_list(self):
        self.assertEqual(self.found(GOOD), "")
        self.assertEqual(self.found(GOOD.replace('test = "*/SumTest.OfNothingIsZero/*"', 'ctest = "sum_of_2"')), "")

    def test_names_what_is_wrong(self):
        for old, new, reason in (
                ("int sum = 0;", "int sum = 2;", "occurs 0 times"),
                ("int sum = 0;", "int count", "occurs 2 times"),
                ("int sum = 1;", "int sum = 0;", "are equal"),
                ("base/sum.cc", "base/gone.cc", "gone.cc"),
                ("base/sum.cc", "tests/base/sum_test.cc", "not of folder base/"),
                ("model_sum_test", "model_max_test", "makes model_max_test"),
                ("OfNothingIsZero", "OfOneIsOne", "model_sum_test has no test */SumTest.OfOneIsOne/*"),
                ("sum-starts-at-one", "Sum", "an id is made of"),
                ("A sum starts at 1.", "A sum starts at 1", "expected a sentence"),
                ('test = "*/SumTest.OfNothingIsZero/*"', 'ctest = "sum_of_3"', "adds a test sum_of_3")):
            self.assertIn(reason, self.found(GOOD.replace(old, new, 1)), new)

    def test_a_test_of_another_target_is_none_of_this_one(self):
        self.write("tests/base/CMakeLists.txt", "coppice_test(sum_test SOURCES sum_test.cc DEPS x)\n"
                   "coppice_test(other_test SOURCES other_test.cc DEPS x)\n")
        self.assertEqual(self.found(GOOD.replace("model_sum_test", "sum_test")), "")
        self.assertIn("other_test has no test */SumTest.OfNothingIsZero/*", self.found(GOOD.replace("model_sum_test", "other_test")))

    def test_counts_the_bugs(self):
        self.assertIn("1 bugs, expected at least 2", self.found(GOOD, least=2))

    def test_an_id_of_two_folders_is_given_twice(self):
        self.write("bugs/comm.toml", GOOD.replace("base/sum.cc", "comm/sum.cc"))
        self.write("comm/sum.cc", "int sum = 0;\n")
        self.assertIn("the id is given twice", self.found(GOOD))

    def test_refuses_what_is_no_list(self):
        for text in (GOOD + GOOD, GOOD.replace('target = "model_sum_test"', ""), GOOD + 'line = "3"\n', GOOD + 'ctest = "x"\n',
                     GOOD.replace('"A sum starts at 1."', "1"), "sum = 3\n"):
            with self.assertRaises(bug_list.ListError, msg=text):
                self.found(text)

    def test_plants_the_bug(self):
        self.write("bugs/base.toml", GOOD)
        bug, = bug_list.read_bugs(os.path.join(self.root, "bugs"))
        self.assertEqual(bug.planted_in("int sum = 0;\nint x;\n"), "int sum = 1;\nint x;\n")


if __name__ == "__main__":
    unittest.main()
