"""What gpu_check_test.py and gpu_check_sim_test.py share. SCRIPT is the first argument of the program."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
PARTS = ["facts", "ceilings", "kernels", "backend", "probe", "memcheck", "racecheck", "tune", "matmul", "attention", "wide",
         "small", "candidate_list", "step", "draft", "round", "goals"]
PACK = "cuda-13.0"


class Folder(unittest.TestCase):
    """A folder with the script and programs, as the script packs it: PACK for CUDA 13.0, others by pack()."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(SCRIPT, self.folder)
        self.pack("13.0")

    def pack(self, cuda):
        """What a pack has beside its other programs: what it needs, and the program that asks for the driver's version."""
        self.write(f"cuda-{cuda}/needs", f"cuda={cuda}\ndriver={cuda.split('.')[0]}000\n")
        self.write(f"cuda-{cuda}/coppice-cuda-driver", "#!/usr/bin/env bash\necho 13000\n")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run_script(self, *arguments):
        path = os.path.join(self.folder, "tools") + ":" + os.environ["PATH"]
        return subprocess.run([os.path.join(self.folder, "gpu_check.sh"), *arguments], cwd=self.folder, text=True,
                              capture_output=True, env={**os.environ, "PATH": path}, timeout=3600)

    def answer(self, *arguments):
        result = self.run_script("run", "--out", "out", *arguments)
        with open(os.path.join(self.folder, "out", "gpu_check.json"), encoding="utf8") as file:
            answer = json.load(file)
        return result, {part["part"]: part["outcome"] for part in answer["parts"]}, answer["measured"]
