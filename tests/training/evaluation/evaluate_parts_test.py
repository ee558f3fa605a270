#!/usr/bin/env python3
"""What training/evaluate.py consists of: scores, votes, intervals, questions that are malformed, the tables of settings."""
import json
import lzma
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "training"), str(HERE)]
from evaluation import figures, settings, tasks  # noqa: E402
from evaluation.sql_format import sql_grammar  # noqa: E402

QUESTIONS = HERE / "questions.jsonl"


def choice(text, joint):
    return {"text": text, "joint_logprob": joint}


class Scores(unittest.TestCase):
    def test_white_space_case_and_quotes_do_not_count_and_all_else_does(self):
        for same in (" SELECT a\n  WHERE b =\tc ", "select a WHERE b = C", 'SELECT a WHERE b = "c"'):
            self.assertTrue(tasks.matches(same, "SELECT a WHERE b = c"), same)
        for other in ("SELECT a WHERE b > c", "SELECT a WHERE b =c", "SELECT a WHERE b = 'c'", "SELECT a WHERE b = c d", ""):
            self.assertFalse(tasks.matches(other, "SELECT a WHERE b = c"), other)

    def test_the_most_frequent_text_wins_the_vote(self):
        choices = [choice(" b", -0.1), choice(" a", -3), choice(" a ", -2), choice("c", -1)]
        self.assertEqual(tasks.choose(choices, "vote")["text"].strip(), "a")
        self.assertEqual(tasks.choose(choices, "first")["text"], " b")
        self.assertEqual(tasks.choose(choices, "any", " A ")["text"].strip().casefold(), "a")
        self.assertEqual(tasks.choose(choices, "any", "none of them"), choices[0])

    def test_of_equally_frequent_texts_the_likeliest_wins(self):
        choices = [choice("a", -3), choice("b", -1), choice("c", -2)]
        self.assertEqual(tasks.choose(choices, "vote")["text"], "b")

    def test_an_exact_match_is_also_compared_verbatim(self):
        question = tasks.Question(1, "p", ' SELECT a WHERE b = "C d"', "")
        for text, correct, verbatim in ((' SELECT a WHERE b = "C d"\n', True, True), (" SELECT a WHERE b = c d", True, False), ("a", False, False)):
            scored = tasks.score("wikisql", question, [dict(choice(text, -1), token_ids=[1])], "first")
            self.assertEqual((scored["correct"], scored["verbatim"]), (correct, verbatim))

    def test_likelihood_is_per_token_of_the_chosen_answer(self):
        question = tasks.Question(1, "p", "", "writing")
        choices = [dict(choice("a", -1), token_ids=[1, 2], logprobs={"token_logprobs": [-0.5, -1.5]}),
                   dict(choice(" a", -9), token_ids=[3], logprobs={"token_logprobs": [-9]})]
        scored = tasks.score("prompts", question, choices, "first")
        self.assertEqual((scored["log_likelihood"], scored["tokens"], scored["choices"], scored["distinct"]), (-1.0, 2, 2, 1))


    def test_a_translation_keeps_the_counts_of_sacrebleu(self):
        class Bleu:  # says of one pair what sacrebleu 2.6.0 says
            def __init__(self, effective_order):
                assert effective_order

            def sentence_score(self, answer, references):
                assert (answer, references) == ("the cat sat on the mat today", ["the cat sat on a mat today"])
                return types.SimpleNamespace(counts=[6, 4, 2, 1], totals=[7, 6, 5, 4], sys_len=7, ref_len=7)

        question = tasks.Question(1, "p", " the cat sat on a mat today", "")
        modules = {"sacrebleu": types.ModuleType("sacrebleu"), "sacrebleu.metrics": types.SimpleNamespace(BLEU=Bleu)}
        with unittest.mock.patch.dict(sys.modules, modules):
            scored = tasks.score("translation", question, [dict(choice("the cat sat on the mat today ", -1), token_ids=[1])], "first")
        self.assertEqual((scored["bleu_counts"], scored["tokens"]), ([6, 4, 2, 1, 7, 6, 5, 4, 7, 7], 1))

    def test_a_missing_module_is_named(self):
        with unittest.mock.patch("importlib.util.find_spec", return_value=None):
            with self.assertRaisesRegex(tasks.DataError, "needs the Python module sacrebleu"):
                tasks.need_modules("translation")
            tasks.need_modules("wikisql")


class Figures(unittest.TestCase):
    # What sacrebleu 2.6.0 counts for two answers; for both together its corpus_score says 29.150595.
    COUNTS = [[6, 4, 2, 1, 7, 6, 5, 4, 7, 7], [7, 3, 0, 0, 8, 7, 6, 5, 8, 9]]

    def test_bleu_is_that_of_all_answers_together(self):
        self.assertAlmostEqual(figures.bleu_interval(self.COUNTS)[0], 29.150595, 5)
        self.assertEqual(figures.bleu_interval(self.COUNTS[1:]), (None, None, None))
        self.assertAlmostEqual(figures.bleu_interval([[3, 2, 1, 1, 3, 2, 1, 1, 9, 9]])[0], 100)
        longer, shorter = [3, 2, 1, 1, 3, 2, 1, 1, 9, 5], [3, 2, 1, 1, 3, 2, 1, 1, 5, 9]
        self.assertAlmostEqual(figures.bleu_interval([longer])[0], 100)
        self.assertAlmostEqual(figures.bleu_interval([shorter])[0], 100 * math.exp(1 - 9 / 5))

    def test_interval_of_bleu_is_that_of_many_draws(self):
        source = random.Random(4)
        counts = []
        for _ in range(400):
            words = source.randint(5, 25)
            right = [max(0, round((words - i) * source.betavariate(6, 3 + i))) for i in range(4)]
            counts.append(right + [words - i for i in range(4)] + [words, words + source.randint(0, 4)])
        value, low, high = figures.bleu_interval(counts)
        drawn = sorted(figures.bleu_interval(source.choices(counts, k=len(counts)))[0] for _ in range(1000))
        self.assertLess(abs((high - low) / (drawn[974] - drawn[24]) - 1), 0.12)
        self.assertLess(abs(value - drawn[500]), 0.1 * (high - low))

    def test_interval_of_a_difference_of_bleu_is_that_of_many_draws(self):
        source = random.Random(5)
        counts, others = [], []
        for _ in range(400):
            words, share = source.randint(5, 25), source.betavariate(6, 3)  # a hard question is hard for both
            for of, less in ((counts, 0.0), (others, 0.05)):
                right = [max(0, round((words - i) * max(0.0, share - less - 0.1 * i + source.uniform(-0.05, 0.05)))) for i in range(4)]
                of.append(right + [words - i for i in range(4)] + [words, words + source.randint(0, 3)])
        value, low, high = figures.bleu_difference(counts, others)
        self.assertAlmostEqual(value, figures.bleu_interval(counts)[0] - figures.bleu_interval(others)[0])
        drawn = []
        for _ in range(1000):
            at = source.choices(range(400), k=400)
            drawn.append(figures.bleu([counts[i] for i in at])[0] - figures.bleu([others[i] for i in at])[0])
        drawn.sort()
        self.assertLess(abs((high - low) / (drawn[974] - drawn[24]) - 1), 0.12)
        apart = sum((figures.bleu_interval(c)[2] - figures.bleu_interval(c)[1]) ** 2 for c in (counts, others)) ** 0.5
        self.assertLess(high - low, 0.7 * apart)  # the same questions: less than of two runs with different ones

    def test_wilson_interval(self):
        for successes, count, low, high in ((8, 10, 0.4902, 0.9433), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (150, 300, 0.44378, 0.55622)):
            found = figures.wilson(successes, count)
            self.assertAlmostEqual(found[0], low, 4)
            self.assertAlmostEqual(found[1], high, 4)
        self.assertEqual(figures.wilson(0, 0), (0.0, 1.0))

    def test_mean_and_ratio_with_their_intervals(self):
        self.assertEqual(figures.mean_interval([2.0]), (2.0, None, None))
        mean, low, high = figures.mean_interval([1, 2, 3, 4])
        half = figures.Z * math.sqrt(5 / 3 / 4)
        self.assertAlmostEqual(mean, 2.5)
        self.assertAlmostEqual(low, 2.5 - half)
        self.assertAlmostEqual(high, 2.5 + half)
        self.assertEqual(figures.ratio_interval([2, 4, 8], [1, 2, 4]), (2.0, 2.0, 2.0))
        ratio, low, high = figures.ratio_interval([1, 3], [1, 1])
        self.assertAlmostEqual(ratio, 2)
        self.assertAlmostEqual(high - 2, figures.Z * 1)  # the mean of two values, with a standard error of 1
        self.assertAlmostEqual(2 - low, figures.Z * 1)
        self.assertEqual(figures.ratio_interval([0, 0], [0, 0]), (None, None, None))

    def test_a_stall_does_not_move_a_median(self):
        values = list(range(100))
        self.assertEqual(figures.median_interval(values), (49.5, 40, 59))  # between the 41st and the 60th of 100
        self.assertEqual(figures.median_interval(values[:-1] + [1e6]), figures.median_interval(values))
        self.assertEqual(figures.median_interval([3, 1, 2]), (2, None, None))

    def test_sign_test(self):
        for wins, losses, p in ((0, 0, 1), (1, 0, 1), (5, 0, 0.0625), (10, 2, 0.03857), (2, 10, 0.03857), (7, 7, 1)):
            self.assertAlmostEqual(figures.sign_test(wins, losses), p, 5)

    def test_comparison_is_over_common_questions(self):
        here = [{"line": i, "correct": c} for i, c in ((1, True), (2, True), (3, False), (4, True))]
        there = [{"line": i, "correct": c} for i, c in ((1, False), (2, True), (3, True), (9, True))]
        self.assertEqual(figures.compare(here, there), (1, 1, 1.0))

    def test_speed_is_the_geometric_mean_over_common_questions(self):
        def timed(**seconds):
            return [{"line": line, "seconds": value} for line, value in seconds.items()]

        there = timed(a=4.0, b=1.0, c=8.0, d=1.0)
        value, low, high = figures.speed(timed(a=1.0, b=1.0, c=0.5, x=9.0), there)  # 4, 1 and 16 times as fast
        half = figures.Z * math.log(4) / math.sqrt(3)
        self.assertAlmostEqual(value, 4)
        self.assertAlmostEqual(low, 4 * math.exp(-half))
        self.assertAlmostEqual(high, 4 * math.exp(half))
        self.assertEqual(figures.speed(timed(b=0.5), there), (2.0, None, None))
        self.assertEqual(figures.speed(timed(x=0.5), there), (None, None, None))
        self.assertEqual(figures.speed(timed(a=0.0), there), (None, None, None))

    def test_front_is_what_nothing_beats(self):
        points = [(1, 5), (2, 5), (3, 4), (3, 3), (2.5, 1), (4, 4)]
        self.assertEqual(figures.pareto_front(points), [(2, 5), (4, 4)])

    def test_joules_are_left_out_unless_every_answer_has_them(self):
        row = {"correct": True, "tokens": 3, "seconds": 0.5, "latency": 0.5, "beam_tokens": 6, "layers": 4, "passes": 2, "drafted": 0,
               "plain_rounds": 0, "distinct": 1, "joules": 2.0}
        self.assertEqual(figures.summarise([row, dict(row, joules=4.0)])["joules"], 3.0)
        self.assertIsNone(figures.summarise([row, dict(row, joules=None)])["joules"])
        found = figures.summarise([row, dict(row, correct=False)])
        self.assertEqual((found["quality"][0], found["answer_rate"][0], found["beam_rate"][0], found["block_efficiency"][0]), (0.5, 6, 12, 2))


class Questions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "data.jsonl"

    def tearDown(self):
        self.folder.cleanup()

    def fault(self, text, task):
        self.path.write_text(text)
        with self.assertRaises(tasks.DataError) as raised:
            tasks.read_questions(self.path, task)
        return str(raised.exception)

    def test_both_forms_of_a_question_give_the_prompt_of_the_demo(self):
        read = tasks.read_questions(QUESTIONS, "wikisql")
        with open(ROOT / "deploy/demo/questions.jsonl", encoding="utf8") as lines:
            demo = [json.loads(line)["prompt"] for line in lines]
        self.assertEqual([q.prompt for q in read[:3]], demo[:3])
        self.assertEqual([q.line for q in read], [1, 2, 3, 4, 5])

    def test_packed_data_is_read(self):
        packed = self.path.with_suffix(".jsonl.xz")
        packed.write_bytes(lzma.compress(QUESTIONS.read_bytes()))
        self.assertEqual(tasks.read_questions(packed, "wikisql"), tasks.read_questions(QUESTIONS, "wikisql"))
        packed.write_bytes(lzma.compress(QUESTIONS.read_bytes())[:-20])
        with self.assertRaisesRegex(tasks.DataError, "data.jsonl.xz: "):
            tasks.read_questions(packed, "wikisql")

    def test_a_malformed_line_is_named(self):
        good = '{"prompt": "p", "completion": "c"}\n'
        for bad, task, reason in (("{", "wikisql", "Expecting"), ("[]", "wikisql", "expected an object"),
                                  ('{"prompt": "p"}', "wikisql", "completion: expected a text"),
                                  ('{"prompt": "p", "completion": " "}', "wikisql", "completion: expected a text"),
                                  ('{"question": "q", "columns": [1], "sql": "s"}', "wikisql", "columns: expected"),
                                  ('{"question": "q", "columns": "a"}', "wikisql", "sql: expected a text"),
                                  ('{"prompt": "p", "completion": 1}', "translation", "completion: expected a text"),
                                  ('{"turns": []}', "prompts", "turns: expected"), ('{"prompt": 3}', "prompts", "prompt: expected a text"),
                                  ('{"prompt": "p", "category": 1}', "prompts", "category: expected a text")):
            self.assertRegex(self.fault(good + "\n" + bad + "\n", task), rf"data.jsonl:3: .*{reason}")
        self.assertIn("no questions", self.fault("\n", "prompts"))
        self.path.unlink()
        with self.assertRaisesRegex(tasks.DataError, "data.jsonl: No such file"):
            tasks.read_questions(self.path, "wikisql")

    def test_a_sample_is_balanced_and_grows_at_its_end(self):
        questions = [tasks.Question(i, "p", "", "rare" if i < 3 else "frequent") for i in range(20)]
        sample = tasks.sample_questions(questions, 6)
        self.assertEqual(sum(q.category == "rare" for q in sample), 3)
        self.assertEqual(tasks.sample_questions(questions, 9)[:6], sample)
        self.assertEqual({q.line for q in tasks.sample_questions(questions, 99)}, set(range(20)))
        self.assertNotEqual(tasks.sample_questions(questions, 6, seed=1), sample)


class Settings(unittest.TestCase):
    def test_the_table_has_each_method_with_and_without_drafts(self):
        found = settings.variants(settings.read_settings(), ("plain", "drafted"))
        names = [variant.name for variant in found]
        self.assertEqual(len(names), len(set(names)))
        methods = {variant.body()["speculative"].get("method") for variant in found if variant.kind == "drafted"}
        self.assertLessEqual({"gumbel_coupling", "gumbel_top_k", "speculative_beam_search", "dsbd", "rejection", "mjsd"}, methods)
        plain = [json.dumps(variant.setting.request, sort_keys=True) + variant.setting.choose
                 for variant in found if variant.kind == "plain"]
        self.assertEqual(len(plain), len(set(plain)), "two settings are the same without drafts; give one a reference")
        for variant in found:
            if variant.setting.reference:
                of = next(v for v in found if v.name == variant.setting.reference)
                self.assertEqual(of.setting.request, variant.setting.request)

    def test_the_table_of_several_answers(self):
        found = settings.read_settings(settings.TABLE.parent / "several_answers.toml")
        self.assertEqual({s.name: s.choose for s in found},
                         {"vote_4": "vote", "any_of_4": "any", "beam_search_4": "first", "any_beam_of_4": "any"})

    def test_any_of_several_answers_is_for_tasks_with_right_answers(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as data:
            data.write('{"prompt": "a"}\n')
            data.flush()
            ran = subprocess.run([sys.executable, ROOT / "training/evaluate.py", "prompts", "--data", data.name, "--settings", "any_of_4", "--url", "http://127.0.0.1:1",
                                  "--table", settings.TABLE.parent / "several_answers.toml"], capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stderr.strip()),
                         (2, 'evaluate: any_of_4: choose = "any" is for answers that are right or wrong, so not for prompts'))

    def test_tables_with_formats(self):
        found = {s.name: s for s in settings.read_settings(settings.TABLE.parent / "formats.toml")}
        for name in ("greedy", "sample", "beam_search_4", "beam_sampling_8"):  # the same with a format and without
            self.assertEqual((found[name].format, found[name + "_sql"].format), ("", "sql"))
            self.assertEqual(found[name].request, found[name + "_sql"].request)
        found = {s.name: s.request for s in settings.read_settings(settings.TABLE.parent / "json_answers.toml")}
        for name in ("greedy", "sample", "beam_search_4", "beam_sampling_4"):
            form = found[name + "_json"].pop("response_format")
            self.assertEqual(found[name], found[name + "_json"])
            self.assertEqual(list(form["json_schema"]["schema"]["properties"]), ["answer", "topics", "language", "confidence"])

    def test_the_grammar_of_a_question(self):
        rules = dict(line.split(" ::= ", 1) for line in
                     sql_grammar('columns: a, "b"\nquestion: Who had 7.5 points?\nsql:').splitlines())
        self.assertEqual(rules["root"], '" SELECT " (aggregate " ")? ("a" where-0? | "\\"b\\"" where-1?)')
        self.assertEqual(rules["where-0"], '" WHERE " from-0-1')
        self.assertEqual(rules["from-0-1"], "on-1")
        self.assertEqual(rules["on-0"], '"a" (" = " value | " " [<>] " " number)')
        self.assertTrue(rules["number"].startswith('bare-4 | bare-5 | bare-6 | "\\"" quoted-4 "\\""'), rules["number"])
        self.assertEqual(rules["bare-4"], '"7" bare-5?')
        self.assertEqual(rules["words-0"], '"Who" (" " words-2)?')
        self.assertEqual(rules["quoted-6"], '"5" " " words-8')
        self.assertNotIn("quoted-8", rules)  # no white space follows
        used = set(re.findall(r"\b(?:on|where|from|value|number|words|bare|quoted|aggregate|column)[-\d]*", "\n".join(rules.values())))
        self.assertLessEqual(used - {"value", "number", "aggregate"}, set(rules))
        self.assertIsNone(sql_grammar("Who had 7.5 points?"))

    def test_a_format_is_for_queries(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as data:
            data.write('{"prompt": "a", "completion": "b"}\n')
            data.flush()
            for task, reason in (("wikisql", f'{data.name}:1: greedy_sql needs a prompt "columns: ...\\nquestion: ...\\nsql:"'),
                                 ("prompts", 'greedy_sql: format = "sql" is for wikisql, so not for prompts')):
                ran = subprocess.run([sys.executable, ROOT / "training/evaluate.py", task, "--data", data.name, "--settings", "greedy_sql", "--url",
                                      "http://127.0.0.1:1", "--table", settings.TABLE.parent / "formats.toml"], capture_output=True, text=True)
                self.assertEqual((ran.returncode, ran.stderr.strip()), (2, f"evaluate: {reason}"))

    def test_bodies_of_the_three_variants(self):
        setting = settings.Setting("s", "s", {"top_k": 3}, {"method": "dsbd", "draft_width": 8, "allow_lossy": True})
        bodies = {v.name: v.body() for v in settings.variants([setting], settings.KINDS)}
        self.assertEqual(bodies, {"s": {"top_k": 3, "speculative": False}, "s+drafts": {"top_k": 3, "speculative": setting.drafts},
                                  "s+auto": {"top_k": 3, "speculative": {"method": "dsbd", "allow_lossy": True}}})

    def test_faults_of_a_table_are_named(self):
        good = 'label = "l"\nrequest = {}\ndrafts = {}\n'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table.toml"
            for text, reason in (("[a", "table.toml: "), ("[a]\n" + good + "speed = 1", "unknown field speed"),
                                 ("[a]\nlabel = 3", "label has the wrong type"), ('[a]\nlabel = "l"', "request is missing"),
                                 ("[a]\n" + good.replace("drafts = {}", 'reference = "a"'), "drafts is missing"),
                                 ("[a]\n" + good + 'choose = "best"', "choose must be"), ("[a]\n" + good.replace("{}", "{ a = 1 }") + 'reference = "b"', "no setting b"),
                                 ("[a]\n" + good.replace("request = {}", "request = { seed = 3 }"), "request.seed is given"),
                                 ("[a]\n" + good + 'format = "xml"', "format must be sql"), ("a = 3", "expected a table"), ("", "no settings")):
                path.write_text(text)
                with self.assertRaisesRegex(settings.SettingsError, reason):
                    settings.read_settings(path)
        with self.assertRaisesRegex(settings.SettingsError, "no setting is called beam"):
            settings.read_settings(only=["greedy", "beam"])


if __name__ == "__main__":
    unittest.main()
