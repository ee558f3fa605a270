#!/usr/bin/env python3
"""Configuration files: a cluster that runs from one, precedence of flag, environment and file, --check_config, --print_config, and
every fault told at once with file, line and column."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from cluster import BIN, DRAFT, TARGET, Cluster
from stopwatch import at_most

GOOD = f"""# a cluster
coordinator {{
  model: "{TARGET}"
  served_model_name: "from-file"
  unknown_fields: IGNORE
  limits {{ max_queue: 17  max_n: 8 }}
}}
worker {{ model: "{TARGET}" backend: CPU threads: 1 }}
draft {{ model: "{DRAFT}" threads: 1 }}
"""


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name, "cluster.textproto")

    def run_program(self, text, *flags, role="coordinator", **environment):
        self.file.write_text(text)
        return subprocess.run([BIN / f"coppice-{role}", f"--config={self.file}", *flags], capture_output=True, text=True,
                              timeout=at_most(60), env=dict(os.environ, **environment))

    def faults(self, text, *flags, role="coordinator", **environment):
        result = self.run_program(text, "--check_config", *flags, role=role, **environment)
        self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
        start = f"coppice-{role}: "
        self.assertTrue(all(line.startswith(start) for line in result.stderr.splitlines()), result.stderr)
        return [line.removeprefix(start).replace(str(self.file), "FILE") for line in result.stderr.splitlines()]

    def test_a_good_file_is_valid_for_every_program(self):
        for role in ("coordinator", "worker", "draft"):
            result = self.run_program(GOOD, "--check_config", role=role)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(result.stdout, f"coppice-{role}: the configuration is valid\n")

    def test_all_faults_are_told_at_once(self):
        self.assertEqual(self.faults("coordinator {\n  max_qeue: 3\n  max_n: \"8\"\n  listen: 80\n  max_n: 9\n}\nwokrer { threads: 1 }\n"), [
            "FILE:2:3: coordinator.max_qeue: unknown field, did you mean max_queue?",
            "FILE:3:3: coordinator.max_n: expected a number or true or false, without quotes",
            "FILE:4:3: coordinator.listen: expected a text in quotes",
            "FILE:5:3: coordinator.max_n: it is given twice, first in line 3",
            "FILE:7:10: wokrer: unknown section, did you mean worker?"])

    def test_values_out_of_range_are_told_with_their_place(self):
        text = GOOD.replace("max_queue: 17", "max_queue: 0")
        self.assertEqual(self.faults(text, "--max_n=0", COPPICE_MAX_BEAM_WIDTH="0"), [
            "--max_n: must be between 1 and 1024, got 0",
            "COPPICE_MAX_BEAM_WIDTH: must be between 1 and 1024, got 0",
            "FILE:6:12: coordinator.limits.max_queue: must be between 1 and 1048576, got 0"])
        self.assertEqual(self.faults(GOOD.replace("threads: 1 }\ndraft", "max_rows: 4 }\ndraft"), role="worker"),
                         [f"FILE:8:{8 + len(GOOD.splitlines()[7].split('threads')[0]) - 7}: worker.max_rows: must be at least 8, got 4"])

    def test_syntax_and_missing_files(self):
        self.assertEqual(self.faults("coordinator {"), ["FILE:1:14: expected } at the end of coordinator"])
        result = subprocess.run([BIN / "coppice-coordinator", "--config=/none", "--check_config"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("/none: cannot be opened: No such file", result.stderr)
        self.assertEqual(self.faults(GOOD, COPPICE_MAX_N="many")[0][:37], "COPPICE_MAX_N: bad value 'many': Ille"[:37])

    def test_precedence_and_print_config(self):
        result = self.run_program(GOOD, "--print_config", "--max_n=5", COPPICE_MAX_N="6", COPPICE_MAX_QUEUE="7", COPPICE_LOG_LEVEL="warn")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = {line.split(":")[0].strip(): line.strip() for line in result.stdout.splitlines()}
        self.assertEqual(lines["max_n"], "max_n: 5  # command line")
        self.assertEqual(lines["max_queue"], "max_queue: 7  # COPPICE_MAX_QUEUE")
        self.assertEqual(lines["served_model_name"], f'served_model_name: "from-file"  # {self.file}:4:3')
        self.assertEqual(lines["unknown_fields"], f'unknown_fields: "ignore"  # {self.file}:5:3')
        self.assertEqual(lines["max_beam_width"], "max_beam_width: 64  # default")
        # What is printed is a configuration file.
        again = self.run_program(result.stdout, "--print_config")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"max_queue: 7  # {self.file}:", again.stdout)

    def test_programs_without_a_section_refuse_the_flag(self):
        result = subprocess.run([BIN / "coppice-loadgen", f"--config={self.file}"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (2, "coppice-loadgen: --config: coppice-loadgen reads no configuration file\n"))

    def test_a_cluster_runs_from_a_file(self):
        self.file.write_text(GOOD)
        flag = f"--config={self.file}"
        with Cluster(coordinator_flags=(flag,), worker_flags=(flag,), draft_flags=(flag,)) as cluster:
            answer = cluster.api.complete(dict(prompt="What", max_tokens=3, unheard_of=1))
            self.assertEqual(answer["model"], "from-file")
            self.assertEqual(cluster.api.cluster()["requests"]["max_queue"], 17)


if __name__ == "__main__":
    unittest.main(verbosity=2)
