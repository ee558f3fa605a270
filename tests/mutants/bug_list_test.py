#!/usr/bin/env python3
"""A pattern is found in code that was reflowed, qualified, moved or commented, and refused where it is ambiguous. The check names each
mistake that is put into a list of bugs, and accepts a list without mistakes."""
import os
import tempfile
import unittest

import bug_list
import pattern

GOOD = """
[sum-starts-at-one]
what = "A sum starts at 1."
file = "sum.cc"
old = 'sum = 0'
new = 'sum = 1'
target = "model_sum_test"
test = "*/SumTest.OfNothingIsZero/*"
"""
CODE = """
#include "decoding/score.h"
namespace coppice::decoding {
namespace {

constexpr int kTable[] = {1, 2, 3};

// Score(beam, 0) was here.
template <typename T, int N>
T Best(const T (&values)[N], int) {
  if (N == 0) return 0;
  return Score(values[0], /*bias=*/0);
}

struct Layer {
  explicit Layer(int width) : width_{width}, beams_(width) { Grow(width); }
  int Width() const { return width_; }
  bool operator==(const Layer& other) const { return width_ == other.width_; }

 private:
  int width_;
  std::vector<int> beams_;
};

}  // namespace

double Decoder::Run(const Layer& layer) const {
  const auto best = [&](int i) { return Score(layer, i); };
  for (int i = 0; i < layer.Width(); ++i) total_ += best(i);
  return 1'000 * total_;
}

DEV_KERNEL void __launch_bounds__(128) Other(Layer layer) {
  Score(layer, 0);
}

}  // namespace coppice::decoding
"""
SCRIPT = '''
def rate(turn):
    """A rate: first = 0."""
    return turn.tokens / (
        turn.seconds)


class Turn:
    first = 0

    def take(self, count):
        if count > 0:
            self.used += count  # first = 0
        return self.used

    def drop(self, count): self.used -= count


first = 0
'''


def in_code(old, new="NEW", scope="", text=CODE):
    return pattern.planted(text, "layer.cc", old, new, scope)


class Pattern(unittest.TestCase):
    def refused(self, reason, *arguments, **named):
        with self.assertRaises(pattern.PatternError) as caught:
            in_code(*arguments, **named)
        self.assertIn(reason, str(caught.exception))

    def test_spaces_and_line_breaks_do_not_count(self):
        for text in ("if (a<b) Add(first,\n        second);", "if(a < b)\n  Add(\n    first, second);"):
            self.assertEqual(in_code("if (a < b) Add(first, second);", text=text), "NEW")
        self.assertEqual(in_code("a.Add(\n  first)", text="x = a.Add(first);"), "x = NEW;")

    def test_words_and_signs_are_matched_whole(self):
        self.refused("occurs 0 times", "Add(a", text="ReAdd(a);")
        self.refused("occurs 0 times", "a <", text="a <= b;")
        self.refused("occurs 0 times", "10", text="x = 100;")
        self.refused("occurs 0 times", "ab", text="a b")
        self.refused("occurs 0 times", '"a b"', text='f("a  b");')

    def test_comments_do_not_count(self):
        self.assertEqual(in_code("Add(a, false);", text="Add(a, /*twice=*/false);  // Add(a, false);"), "NEW  // Add(a, false);")
        self.assertEqual(in_code("Add(a, /*once=*/false)", text="Add(a,  // the first\n    false);"), "NEW;")

    def test_text_in_quotes_is_no_code(self):
        self.refused("occurs 0 times", "Add(a)", text='Log("Add(a)", R"(Add(a))", \'"\');')

    def test_qualifiers_do_not_count_and_stay(self):
        self.assertEqual(in_code("x + Log(y)", "x - Log(y)", text="return x + sampling::Log(y);"), "return x - sampling::Log(y);")
        self.assertEqual(in_code("decoding::Log(y)", "decoding::Log(z)", text="coppice::sampling::Log(y);"), "coppice::sampling::Log(z);")
        self.assertEqual(in_code("std::max(a, b)", "std::min(a, b)", text="std::max(a, b);"), "std::min(a, b);")
        self.assertEqual(in_code("Log(a)", "a.Log()", text="sampling::Log(a);"), "a.Log();")
        self.assertEqual(in_code("sampling::Log(a)", "Exp(a)", text="Log(a);"), "Exp(a);")

    def test_only_the_named_declaration_is_searched(self):
        self.refused("occurs 3 times", "Score")
        for scope in ("Run", "Decoder::Run", "coppice::decoding::Decoder::Run"):
            self.assertEqual(in_code("Score(", "Sum(", scope), CODE.replace("Score(layer, i)", "Sum(layer, i)"))
        self.assertEqual(in_code("Score", "Sum", "Best"), CODE.replace("Score(values", "Sum(values"))
        self.assertEqual(in_code("0", "1", "Other"), CODE.replace("Score(layer, 0);", "Score(layer, 1);"))
        self.assertEqual(in_code("2", "4", "kTable"), CODE.replace("{1, 2", "{1, 4"))
        self.assertEqual(in_code("width_", "0", "Layer::Width"), CODE.replace("return width_;", "return 0;"))
        self.assertEqual(in_code("return width_ ==", "return width_ !=", "operator=="), CODE.replace("width_ == other", "width_ != other"))
        self.assertEqual(in_code("Grow(width)", "Grow(0)", "Layer::Layer"), CODE.replace("Grow(width)", "Grow(0)"))
        self.refused("occurs 0 times in Other", "1'000", scope="Other")
        self.refused("nothing is declared as Walk", "Score", scope="Walk")
        self.refused("nothing is declared as Layer::Run", "Score", scope="Layer::Run")
        self.refused("nothing is declared as for", "Score", scope="for")

    def test_the_ambiguous_and_the_empty_are_refused(self):
        self.refused("occurs 2 times", "x = 1", text="x = 1; y = x = 1;")
        self.refused("occurs 2 times in F", "x = 1", scope="F", text="void F() { x = 1; } void F(int) { x = 1; }")
        self.refused("empty", "// nothing")

    def test_python(self):
        def planted(old, new, scope=""):
            return pattern.planted(SCRIPT, "turn.py", old, new, scope)
        self.assertEqual(planted("tokens / (turn.seconds)", "tokens", "rate"), SCRIPT.replace("tokens / (\n        turn.seconds)", "tokens"))
        self.assertEqual(planted("+= count", "+= 0", "Turn.take"), SCRIPT.replace("+= count", "+= 0"))
        self.assertEqual(planted("-= count", "-= 0", "drop"), SCRIPT.replace("-= count", "-= 0"))
        self.assertEqual(planted("first = 0", "first = 1", "Turn"), SCRIPT.replace("    first = 0", "    first = 1"))
        with self.assertRaisesRegex(pattern.PatternError, "occurs 2 times"):
            planted("first = 0", "first = 1")


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
        """The mistakes of a list, as one text."""
        self.write("bugs/base.toml", text)
        bugs = bug_list.read_bugs(os.path.join(self.root, "bugs"))
        return "\n".join(bug_list.mistakes(self.root, bugs, least))

    def test_accepts_a_good_list(self):
        self.assertEqual(self.found(GOOD), "")
        self.assertEqual(self.found(GOOD.replace('test = "*/SumTest.OfNothingIsZero/*"', 'ctest = "sum_of_2"')), "")
        self.assertEqual(self.found(GOOD + 'build = "cuda-sim"\nenvironment = "A=1 B="\nkind = "wrong start"\n'), "")
        for test in ("*SumTest.*/F32:-*Other*", "Sum*-*.Of*", "SumTest.OfNothing*"):
            self.assertEqual(self.found(GOOD.replace("*/SumTest.OfNothingIsZero/*", test)), "", test)

    def test_names_what_is_wrong(self):
        for old, new, reason in (
                ("sum = 0", "sum = 2", "occurs 0 times"),
                ("sum = 0", "int", "occurs 3 times"),
                ("sum = 1", "sum = 0", "are equal"),
                ("sum.cc", "gone.cc", "gone.cc: no such file"),
                ("sum.cc", "sum_test.cc", "sum_test.cc: no such file"),
                ("model_sum_test", "model_max_test", "makes model_max_test"),
                ("OfNothingIsZero", "OfOneIsOne", "model_sum_test has no test */SumTest.OfOneIsOne/*"),
                ("sum-starts-at-one", "Sum", "an id is made of"),
                ("A sum starts at 1.", "A sum starts at 1", "expected a sentence"),
                ("target", 'in = "Sum"\ntarget', "nothing is declared as Sum"),
                ("target", 'build = "asan"\ntarget', "build is one of"),
                ('test = "*/SumTest.OfNothingIsZero/*"', 'ctest = "sum_of_3"', "adds a test sum_of_3")):
            self.assertIn(reason, self.found(GOOD.replace(old, new, 1)), new)

    def test_finds_a_file_that_has_moved(self):
        moved = GOOD.replace('"sum.cc"', '"sampling/rows/sum.cc"')
        self.assertEqual(self.found(moved), "")
        self.write("sampling/rows/sum.cc", "int sum = 3;\n")
        self.assertIn("occurs 0 times", self.found(moved))

    def test_refuses_a_name_of_two_files(self):
        self.write("comm/sum.cc", "int sum = 0;\n")
        self.assertIn("sum.cc: may be base/sum.cc or comm/sum.cc", self.found(GOOD))
        self.assertIn("may be base/sum.cc or comm/sum.cc", self.found(GOOD.replace('"sum.cc"', '"model/sum.cc"')))
        self.assertEqual(self.found(GOOD.replace('"sum.cc"', '"comm/sum.cc"')), "")

    def test_a_test_of_another_target_is_none_of_this_one(self):
        self.write("tests/base/CMakeLists.txt", "coppice_test(sum_test SOURCES sum_test.cc DEPS x)\n"
                   "coppice_test(other_test SOURCES other_test.cc DEPS x)\n")
        self.assertEqual(self.found(GOOD.replace("model_sum_test", "sum_test")), "")
        self.assertIn("other_test has no test */SumTest.OfNothingIsZero/*", self.found(GOOD.replace("model_sum_test", "other_test")))

    def test_counts_the_bugs(self):
        self.assertIn("1 bugs, expected at least 2", self.found(GOOD, least=2))

    def test_an_id_or_kind_of_two_lists_is_given_twice(self):
        self.write("bugs/comm.toml", GOOD + 'kind = "wrong start"\n')
        found = self.found(GOOD + 'kind = "wrong start"\n')
        self.assertIn("the id is given twice", found)
        self.assertIn('another bug stands for the kind "wrong start"', found)

    def test_refuses_what_is_no_list(self):
        for text in (GOOD + GOOD, GOOD.replace('target = "model_sum_test"', ""), GOOD + 'line = "3"\n', GOOD + 'ctest = "x"\n',
                     GOOD.replace('"A sum starts at 1."', "1"), "sum = 3\n", GOOD + 'environment = "fast"\n'):
            with self.assertRaises(bug_list.ListError, msg=text):
                self.found(text)

    def test_plants_the_bug(self):
        self.write("bugs/base.toml", GOOD)
        bug, = bug_list.read_bugs(os.path.join(self.root, "bugs"))
        self.assertEqual(bug.planted_in("int sum = 0;\nint x;\n"), "int sum = 1;\nint x;\n")


if __name__ == "__main__":
    unittest.main()
