#!/usr/bin/env python3
"""Scripts of deploy/ that start no cluster here: gpu_check.sh, Slurm, help, and machines that lack something."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from cluster import ROOT, free_port, run_launcher, send_signal, session_processes, wait_sessions_gone
from stopwatch import at_most, wait_until
from launchers_test import END_WITHIN_S


def write_program(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf8")
    path.chmod(0o755)


class DeployScripts(unittest.TestCase):
    def test_gpu_check_ends_with_its_part(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "deploy/gpu_check.sh", folder)
            pack = pathlib.Path(folder, "cuda-13.0")
            pack.mkdir()
            (pack / "needs").write_text("cuda=13.0\ndriver=13000\n")
            write_program(folder, "ldd", "true")
            for program in ("coppice-bench-cuda", "coppice-cuda-driver", "cuda_backend_test"):
                write_program(pack, program, "true")
            write_program(pack, "cuda_kernels_gpu_test", "echo begun; sleep 1000")
            with_programs = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            log = pathlib.Path(folder, "out/kernels.log")
            for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                script = subprocess.Popen([f"{folder}/gpu_check.sh", "run", "--out", f"{folder}/out"], text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, start_new_session=True, env=with_programs)
                try:
                    self.assertTrue(wait_until(lambda: log.exists() and log.read_text() == "begun\n"))
                    os.killpg(script.pid, number)  # Ctrl-C reaches the script's own process group
                    _, errors = script.communicate(timeout=at_most(3 * END_WITHIN_S))
                    self.assertEqual(script.returncode, status, errors)
                    self.assertTrue(errors.endswith(f"gpu_check: stopped; the logs are in {folder}/out\n"), errors)
                    self.assertEqual(wait_sessions_gone([script.pid], END_WITHIN_S), [])
                    self.assertEqual(log.read_text(), "begun\n")
                    self.assertFalse(pathlib.Path(folder, "out/gpu_check.json").exists())
                    log.unlink()
                finally:
                    for pid, _ in session_processes(script.pid):
                        send_signal(pid, signal.SIGKILL)

    def test_slurm_needs_an_address(self):
        script = [ROOT / "deploy/slurm/cluster.sh", "--target", "t"]
        with tempfile.TemporaryDirectory() as folder:
            job = dict(os.environ, SLURM_JOB_ID="1", SLURM_SUBMIT_DIR=str(ROOT), SLURMD_NODENAME="node7",
                       PATH=f"{folder}:{os.environ['PATH']}")
            for found in ("exit 2", "echo 127.0.1.1 STREAM node7"):
                write_program(folder, "getent", found)
                _, status, output, errors = run_launcher(script, environment=job)
                self.assertEqual((status, output, errors), (1, "", "slurm/cluster.sh: getent finds no IPv4 address of node7 that other nodes "
                                                            "reach; give it with --address\n"))
            write_program(folder, "srun", 'echo "$*"')
            for last in ((), ("--dry-run",)):
                _, status, output, errors = run_launcher([*script, "--address", "10.0.0.7", "--cluster-key", "none", *last], environment=job)
                self.assertEqual((status, errors), (0, ""))
                self.assertIn(" --control_listen=tcp://10.0.0.7:7000 ", output)

    def test_help_of_the_scripts(self):
        for arguments, first in ((["build.sh", "--help"], "build.sh [PRESET] [TARGET...]: "),
                                 (["models.sh", "get", "--help"], "models.sh get NAME "), (["setup.sh", "--help"], "Installs the packages ")):
            _, status, output, errors = run_launcher([ROOT / "deploy" / arguments[0], *arguments[1:]], timeout=at_most(30))
            self.assertEqual((status, errors), (0, ""), arguments)
            self.assertTrue(output.startswith(first), output)

    def test_setup_without_apt_says_what_to_do(self):
        _, status, output, errors = run_launcher(["/bin/bash", ROOT / "deploy/setup.sh"], environment={"PATH": "/nowhere"})
        self.assertEqual((status, output), (1, ""))
        self.assertTrue(errors.endswith("setup: then deploy/build.sh, and deploy/demo.sh --no-build\n"), errors)

    def test_models_of_an_older_python(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tomllib.py").write_text("raise ModuleNotFoundError\n", encoding="utf8")
            older = dict(os.environ, PYTHONPATH=folder)
            for script in (["models.sh", "list"], ["demo.sh", "--model", "smollm2", "--no-build", "--port", free_port()]):
                _, status, output, errors = run_launcher([ROOT / "deploy" / script[0], *script[1:]], environment=older)
                self.assertEqual((status, output, errors), (1, "", "models: needs Python 3.11 or later\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
