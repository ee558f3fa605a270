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
[coordinator]
model = "{TARGET}"
served_model_name = "from-file"
unknown_fields = "refuse"

[coordinator.limits]
max_queue = 17
max_n = 8

[worker]
model = "{TARGET}"
backend = "cpu"
threads = 1

[draft]
model = "{DRAFT}"
threads = 1
"""
OLD = f"""# a cluster
coordinator {{
  model: "{TARGET}"
  limits {{ max_queue: 17  max_n: 8 }}
}}
worker {{ model: "{TARGET}" backend: CPU threads: 1 }}
"""


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name, "cluster.toml")

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
        self.assertEqual(self.faults('[coordinator]\nmax_qeue = 3\n  max_n = "8"\nlisten = 80\nlimits = { max_n = 9 }\n[wokrer]\nthreads = 1\n'), [
            "FILE:2:1: coordinator.max_qeue: unknown field, did you mean max_queue?",
            "FILE:3:3: coordinator.max_n: expected an integer, without quotes",
            "FILE:4:1: coordinator.listen: expected a text in quotes",
            "FILE:5:12: coordinator.limits.max_n: it is given twice, first in line 3",
            "FILE:6:2: wokrer: unknown table, did you mean worker?"])

    def test_values_out_of_range_are_told_with_their_place(self):
        text = GOOD.replace("max_queue = 17", "max_queue = 0")
        self.assertEqual(self.faults(text, "--max_n=0", COPPICE_MAX_BEAM_WIDTH="0"), [
            "--max_n: must be between 1 and 1024, got 0",
            "COPPICE_MAX_BEAM_WIDTH: must be between 1 and 1024, got 0",
            "FILE:8:1: coordinator.limits.max_queue: must be between 1 and 1048576, got 0"])
        self.assertEqual(self.faults(GOOD.replace('backend = "cpu"\nthreads = 1', 'backend = "gpu"\nmax_rows = 4'), role="worker"), [
            "FILE:13:1: worker.backend: must be cpu or cuda, got 'gpu'",
            "FILE:14:1: worker.max_rows: must be at least 8, got 4"])

    def test_faults_of_a_workers_flags_end_it_before_it_joins(self):
        self.assertEqual(self.faults(GOOD, "--draft_deadline_min=3", role="worker"),
                         ["--draft_deadline_min: must be at most --draft_deadline_max (2), got 3"])
        self.assertEqual(self.faults(GOOD, "--communicator=tcp", "--energy_source=nvml", role="worker"),
                         ["--communicator: must be auto, shm, mpi, nccl, oneshot or host, got 'tcp'"])
        self.assertEqual(self.faults(GOOD, "--energy_source=nvml", role="draft"),
                         ["--energy_source: nvml does not count what --backend=cpu computes on"])

    def test_syntax_and_missing_files(self):
        fault, = self.faults("[coordinator]\nmax_n 3\n")
        self.assertTrue(fault.startswith("FILE:2:7: "), fault)
        result = subprocess.run([BIN / "coppice-coordinator", "--config=/none", "--check_config"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("/none: cannot be opened: No such file", result.stderr)
        self.assertEqual(self.faults(GOOD, COPPICE_MAX_N="many"), ["COPPICE_MAX_N: bad value 'many', expected an integer"])

    def test_a_file_in_the_old_syntax_is_told_so(self):
        fault, = self.faults(OLD)
        self.assertTrue(fault.startswith("FILE:2:1: a configuration file is in TOML now: "), fault)

    def test_precedence_and_print_config(self):
        result = self.run_program(GOOD, "--print_config", "--max_n=5", COPPICE_MAX_N="6", COPPICE_MAX_QUEUE="7", COPPICE_LOG_LEVEL="warn")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = {line.split(" ")[0]: line for line in result.stdout.splitlines()}
        self.assertEqual(lines["max_n"], "max_n = 5  # command line")
        self.assertEqual(lines["max_queue"], "max_queue = 7  # COPPICE_MAX_QUEUE")
        self.assertEqual(lines["served_model_name"], f'served_model_name = "from-file"  # {self.file}:4:1')
        self.assertEqual(lines["unknown_fields"], f'unknown_fields = "refuse"  # {self.file}:5:1')
        self.assertEqual(lines["max_beam_width"], "max_beam_width = 512  # default")
        # What is printed is a configuration file.
        again = self.run_program(result.stdout, "--print_config")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"max_queue = 7  # {self.file}:", again.stdout)

    def test_programs_without_a_section_refuse_the_flag(self):
        result = subprocess.run([BIN / "coppice-loadgen", f"--config={self.file}"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr), (2, "coppice-loadgen: --config: coppice-loadgen reads no configuration file\n"))

    def test_a_cluster_runs_from_a_file(self):
        self.file.write_text(GOOD)
        flag = f"--config={self.file}"
        with Cluster(coordinator_flags=(flag,), worker_flags=(flag,), draft_flags=(flag,)) as cluster:
            self.assertEqual(cluster.api.complete(dict(prompt="What", max_tokens=3))["model"], "from-file")
            status, answer = cluster.api.post(dict(prompt="What", max_tokens=3, unheard_of=1))
            self.assertEqual((status, answer["error"]["code"]), (400, "unknown_field"))
            self.assertEqual(cluster.api.cluster()["requests"]["max_queue"], 17)


if __name__ == "__main__":
    unittest.main(verbosity=2)
