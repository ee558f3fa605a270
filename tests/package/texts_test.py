#!/usr/bin/env python3
"""What the command coppice and its pages say, without programs: the names of commands in place of scripts, manual pages and completion
from help texts, and what `coppice bench` makes of results."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "deploy" / folder) for folder in ("tool", "package", "launch")]
import bench  # noqa: E402
import completion  # noqa: E402
import installation  # noqa: E402
import man_page  # noqa: E402

HELP = """coppice-thing: Does a thing. And more of it,
in a second line.

First group:
  --model                   folder; its path\\name
                            in two lines [.hidden]
  --a_rather_long_name_of_a_flag
                            .begins with a dot

Second group:
  --help                    print this text and exit
"""
USAGE = """coppice up --target DIR [--dtype auto|f32] [--port P]
              [--key FILE|none] [--dry-run] [-- FLAG...]
coppice up get NAME          one
A sentence that is
broken. The last of the paragraph.
Another paragraph:
  an example   with spaces
"""
ARGPARSE = """usage: coppice chat [-h] [--url URL] [file]

Chats.

options:
  -h, --help       show this
  --url URL        the server, as in --other NAME
  --prompts FILE   lines
"""


def result(seconds, tokens, texts, drafted=0, efficiency=None):
    return {"duration": seconds, "completed": len(texts), "total_output_tokens": tokens, "generated_texts": texts,
            "ttfts": [0.25 for _ in texts], "latencies": [1.25 for _ in texts], "output_lens": [5 for _ in texts],
            "spec_decode_draft_tokens": drafted, "block_efficiency": efficiency}


class Names(unittest.TestCase):
    def test_scripts_become_commands(self):
        for text, told in (("deploy/cluster.sh up --target DIR", "coppice up --target DIR"), ("end it with: cluster.sh down", "end it with: coppice down"),
                           ("another cluster.sh is at work", "another coppice up is at work"), ("(deploy/models.sh convert)", "(coppice models convert)"),
                           ("sbatch deploy/slurm/cluster.sh", "sbatch deploy/slurm/cluster.sh"), ("mycluster.sh", "mycluster.sh"),
                           ("cluster_key.sh FILE", "coppice key FILE"), ("docs/cluster.shape", "docs/cluster.shape")):
            self.assertEqual(installation.with_commands(text), told)
            self.assertEqual(installation.told(text), text)  # this is a tree

    def test_programs_of_a_tree(self):
        self.assertFalse(installation.INSTALLED)
        script = '. "$0"; echo "$coppice_installed $coppice_bin"'
        shown = subprocess.run(["bash", "-c", script, ROOT / "deploy/environment.sh"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(shown.stdout, f"0 {ROOT}/build/release/bin\n")


class Pages(unittest.TestCase):
    def test_a_program(self):
        text = man_page.program_page("coppice-thing", "1.0", "2026-01-31", HELP, [("/etc/x", "what it is.")], ["coppice"])
        self.assertTrue(text.startswith('.TH COPPICE-THING 1 2026-01-31 "Coppice 1.0" "Coppice"\n.SH NAME\ncoppice\\-thing \\- does a thing\n'), text)
        self.assertIn(".SH DESCRIPTION\nDoes a thing. And more of it,\nin a second line.\n", text)
        self.assertIn('.SS "First group"\n.TP\n.B \\-\\-model\nfolder; its path\\ename in two lines [.hidden]\n'
                      ".TP\n.B \\-\\-a_rather_long_name_of_a_flag\n\\&.begins with a dot\n.SS \"Second group\"\n", text)
        self.assertTrue(text.endswith(".SH FILES\n.TP\n.I /etc/x\nwhat it is.\n.SH SEE ALSO\n.BR coppice (1)\n"), text)

    def test_a_command(self):
        lines = list(man_page.help_lines(USAGE))
        self.assertEqual(lines[:6], [".PP", ".nf", ".RS 2", "coppice up \\-\\-target DIR [\\-\\-dtype auto|f32] [\\-\\-port P] [\\-\\-key",
                                     "    FILE|none] [\\-\\-dry\\-run] [\\-\\- FLAG...]", "coppice up get NAME          one"])
        self.assertEqual(lines[6:], [".RE", ".fi", ".PP", "A sentence that is broken. The last of the paragraph.", ".PP", "Another paragraph:",
                                     ".PP", ".nf", ".RS 2", "an example   with spaces", ".RE", ".fi"])
        self.assertTrue(all(len(line.replace("\\-", "-")) <= man_page.LINE for line in man_page.as_it_is(["word " * 40])))


class Completion(unittest.TestCase):
    def test_options_of_a_script(self):
        self.assertEqual(completion.options_of(USAGE), {"--target": "DIR", "--dtype": "auto f32", "--port": "ANY", "--key": "FILE", "--dry-run": None})

    def test_options_of_argparse(self):
        self.assertEqual(completion.options_of(ARGPARSE), {"--help": None, "--url": "ANY", "--prompts": "FILE"})

    def test_tables(self):
        self.assertEqual(completion.tables({"up": USAGE}).splitlines()[:3],
                         ["declare -gA _coppice_words=(", "  [up]='get --dry-run --dtype --help --key --port --target'", ")"])


class Bench(unittest.TestCase):
    def test_rates_are_of_all_turns(self):
        runs = [result(1.0, 10, ["a"]), result(3.0, 10, ["b"])]
        self.assertEqual(bench.per_second(runs, "total_output_tokens"), 5.0)
        self.assertEqual(bench.median_ms(runs, "ttfts"), "250.0")
        self.assertEqual(bench.per_token(runs[0]), [0.25])
        self.assertEqual(bench.per_token(dict(runs[0], output_lens=[1])), [])

    def test_conclusion(self):
        without = [result(4.0, 20, ["a", "b"]), result(4.0, 20, ["a", "b"])]
        for texts, said in ((["a", "b"], "all answers are the same"), (["a", "x"], "2 of 4 answers differ")):
            drafted = [result(2.0, 20, texts, drafted=7, efficiency=2.5)] * 2
            self.assertEqual(bench.conclude({False: without, True: drafted}),
                             f"2.00 times as many tokens per second with drafts; {said}. Times are medians.")
        self.assertIn("the cluster has no draft node", bench.conclude({False: without, True: without}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
