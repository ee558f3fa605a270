#!/usr/bin/env python3
"""--help of every program exits with 0, groups its flags and names no source file. Every flag that the pages name exists in a
program or a script, with the same spelling. docs/flags.md has the flags of --help."""
import re
import subprocess
import unittest

from cluster import BIN, DRAFT, ROOT, TARGET
from stopwatch import at_most

PROGRAMS = ("coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen", "coppice-catalogue", "coppice-lab",
            "coppice-answers", "coppice-perplexity", "coppice-bench")
WITHOUT_FLAGS = ("coppice-golden", "coppice-reference")
FLAG = re.compile(r"(?<![\w-])--([a-z][\w-]*\w)")
ENTRY = re.compile(r"^  --([\w-]+)(.*)$", re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`|^    .*$", re.MULTILINE)
NOT_BUILT = re.compile(r"^## [\d. ]*Not built yet\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# Options of tools that the pages mention: Google Benchmark, mpirun, CMake, docker, kubectl, systemctl.
FOREIGN = re.compile(r"benchmark_\w+|preset|target|parallel|strip|now|mca|rm|selector|cascade|skinny|goals|model_args|model|tasks")


def help_of(program):
    return subprocess.run([BIN / program, "--help"], capture_output=True, text=True, timeout=at_most(30))


def flags_of_scripts():
    """Options that the text of a script names."""
    names = set()
    for pattern in ("deploy/**/*.sh", "deploy/**/*.py", "lab/**/*.py", "training/**/*.py", "tests/**/*.py"):
        for path in ROOT.glob(pattern):
            names.update(FLAG.findall(path.read_text(encoding="utf8")))
    return {name for name in names if "_" not in name}


class Help(unittest.TestCase):
    def test_exit_status_groups_and_no_source_file(self):
        for program in PROGRAMS:
            with self.subTest(program):
                result = help_of(program)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertTrue(result.stdout.startswith(program + ": "), result.stdout)
                self.assertEqual(result.stderr, "")
                self.assertGreaterEqual(len(re.findall(r"^\S.*:$", result.stdout, re.MULTILINE)), 3, result.stdout)
                self.assertNotRegex(result.stdout, r"\.cc\b")
                self.assertNotIn(str(ROOT), result.stdout)
                for line in result.stdout.splitlines():
                    self.assertLessEqual(len(line), 100, line)

    def test_programs_without_flags_say_how_they_are_called(self):
        for program in WITHOUT_FLAGS:
            with self.subTest(program):
                result = help_of(program)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertTrue(result.stdout.startswith(f"usage: {program} "), result.stdout)

    def test_flags_of_the_pages_exist_in_their_spelling(self):
        known = {name for program in PROGRAMS for name, _ in ENTRY.findall(help_of(program).stdout)}
        known |= flags_of_scripts()
        pages = sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("*/README.md")) + sorted(ROOT.glob("docs/*.md"))
        for path in (page for page in pages if page.name != "CHANGELOG.md"):  # which has the old names of flags
            for code in CODE.findall(NOT_BUILT.sub("", path.read_text(encoding="utf8"))):
                for name in FLAG.findall(code):
                    if not FOREIGN.fullmatch(name):
                        self.assertIn(name, known, f"{path.relative_to(ROOT)}: {code}")

    def test_the_page_of_flags_has_the_flags_of_help(self):
        page = (ROOT / "docs/flags.md").read_text(encoding="utf8")
        chapters = dict(chapter.split("\n", 1) for chapter in page.split("\n## ")[1:])
        self.assertEqual(list(chapters), ["coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen"])
        for program, chapter in chapters.items():
            with self.subTest(program):
                in_help = {name for name, _ in ENTRY.findall(help_of(program).stdout)} - {"flagfile", "version", "help"}
                self.assertEqual(in_help, set(re.findall(r"^- \*\*`--([\w-]+)`\*\* \(", chapter, re.MULTILINE)))

    def test_an_invalid_value_is_a_line_that_names_the_flag_and_exit_status_2(self):
        coordinator, worker, draft = ("--model=" + str(TARGET), "--listen=127.0.0.1:0"), ("--model=" + str(TARGET),), ("--model=" + str(DRAFT),)
        for program, start, flag in (
                ("coppice-coordinator", coordinator, "--listen=abc"),
                ("coppice-coordinator", coordinator, "--listen=127.0.0.1:65536"),
                ("coppice-coordinator", coordinator, "--control_listen=127.0.0.1:7000"),
                ("coppice-coordinator", coordinator, "--control_listen=direct://127.0.0.1:7000"),
                ("coppice-coordinator", coordinator, "--chat_template=famliy"),
                ("coppice-coordinator", coordinator, "--served_model_name=a,b,a"),
                ("coppice-coordinator", coordinator, "--max_queue=many"),
                ("coppice-coordinator", coordinator, "--max_n=0"),
                ("coppice-coordinator", coordinator, "--log_level=verbose"),
                ("coppice-worker", worker, "--coordinator=127.0.0.1:7000"),
                ("coppice-worker", worker, "--coordinator=tcp://127.0.0.1:0"),
                ("coppice-worker", worker, "--coordinator=direct://127.0.0.1:7000"),
                ("coppice-worker", worker, "--plan_listen=tcp://:7000"),
                ("coppice-worker", worker, "--kernels=sse9"),
                ("coppice-worker", worker, "--threads=-1"),
                ("coppice-worker", worker, "--dtype=f8"),
                ("coppice-worker", worker, "--kv_dtype=int4"),
                ("coppice-draft", draft, "--coordinator=nowhere"),
                ("coppice-draft", draft, "--listen=tcp://127.0.0.1"),
                ("coppice-draft", draft, "--kernels=sse9"),
                ("coppice-loadgen", (), "--base-url=ftp://127.0.0.1"),
                ("coppice-loadgen", (), "--num-prompts=-1"),
                ("coppice-loadgen", (), "--goodput=ttft"),
                ("coppice-loadgen", (), "--extra-body=[1]"),
                ("coppice-loadgen", (), "--trace-window=1"),
                ("coppice-loadgen", (), "--metadata=k"),
                ("coppice-lab", (), "--experiment=nosuch"),
                ("coppice-lab", (), "--methods=nosuch"),
                ("coppice-lab", (), "--samplings=T=x"),
                ("coppice-lab", (), "--widths=wide"),
                ("coppice-lab", (), "--decodings=nosuch"),
                ("coppice-lab", ("--experiment=nodes",), "--methods=nosuch"),
                ("coppice-lab", ("--experiment=nodes",), "--drafts=0"),
                ("coppice-answers", ("--out=/dev/null",), "--kernels=sse9"),
                ("coppice-answers", ("--out=/dev/null",), "--requests=x"),
                ("coppice-perplexity", (), "--kernels=sse9"),
                ("coppice-perplexity", (), "--types=f32,f8"),
                ("coppice-perplexity", (), "--limits=0,-1"),
                ("coppice-perplexity", (), "--limits=0"),
                ("coppice-perplexity", (), "--kv_types=int8"),
                ("coppice-bench", ("model",), "--types=int3"),
                ("coppice-bench", ("model",), "--contexts=none"),
                ("coppice-bench", ("kernels",), "--kernels=sse9")):
            with self.subTest(program, flag=flag):
                result = subprocess.run([BIN / program, *start, flag], capture_output=True, text=True, timeout=at_most(30), cwd=ROOT)
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                name = flag.split("=")[0].replace("-", "_").replace("__", "--")  # as the table of flags has it
                self.assertRegex(result.stderr, rf"\A{program}: {name}: [^\n]+\n\Z")

    def test_an_argument_that_is_no_file_or_page_is_refused(self):
        for program in WITHOUT_FLAGS:
            with self.subTest(program):
                result = subprocess.run([BIN / program, "--nosuch"], capture_output=True, text=True, timeout=at_most(30))
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertTrue(result.stderr.startswith(f"usage: {program} "), result.stderr)

    def test_a_renamed_flag_is_refused_with_its_new_name(self):
        result = subprocess.run([BIN / "coppice-lab", "--warps=T=1"], capture_output=True, text=True, timeout=at_most(30))
        self.assertEqual((result.returncode, result.stderr), (2, "coppice-lab: --warps: the name is --samplings now\n"))

    def test_the_list_of_first_flags_names_flags_of_its_program(self):
        section = (ROOT / "docs/operating.md").read_text(encoding="utf8").split("\n## Flags\n")[1].split("\n## ")[0]
        programs = {"Coordinator": PROGRAMS[:1], "Worker": PROGRAMS[1:2], "Draft node": PROGRAMS[2:3], "All three": PROGRAMS[:3]}
        entries = re.findall(r"^- \*\*([\w ]+)\*\*: ((?:.+\n?)(?:  .+\n?)*)", section, re.MULTILINE)
        self.assertEqual([name for name, _ in entries], list(programs))
        for name, text in entries:
            self.assertTrue(FLAG.findall(text), name)
            for program in programs[name]:
                for flag in FLAG.findall(text):
                    with self.subTest(program=program, flag=flag):
                        self.assertIn(flag, dict(ENTRY.findall(help_of(program).stdout)))


if __name__ == "__main__":
    unittest.main()
