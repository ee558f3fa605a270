#!/usr/bin/env python3
"""The script deploy/gpu_check.sh itself, over programs that are stand-ins: which parts run, what a part that fails, hangs or finds no
device does to the others, which programs a driver gets, what a pack has, and that the answer is JSON. What it says of a GPU is not
tested here.

  gpu_check_test.py PATH_OF_GPU_CHECK"""
import json
import os
import re
import shutil
import subprocess
import unittest

from gpu_check_folder import PACK, PARTS, SCRIPT, Folder

BENCH = """#!/usr/bin/env bash
case "$1 $*" in
  *--list*) echo "$1 listed" ;;
  facts*) {facts} ;;
  ceilings*) echo '{{"part":"ceilings","name":"copy","bytes_per_second":2.5000e+12}}' >>"${{2#--json=}}"; echo "ceilings copy" ;;
  *) echo "{{\\"part\\":\\"$1\\",\\"given\\":\\"$3\\"}}" >>"${{2#--json=}}"; echo "$1 a case" ;;
esac
"""


class GpuCheckTest(Folder):
    def setUp(self):
        super().setUp()
        self.write_programs(PACK)
        self.write("tools/ldd", "#!/usr/bin/env bash\necho statically linked\n")
        self.write("tools/compute-sanitizer", "#!/usr/bin/env bash\necho Device not supported\nexit 1\n")

    def write_programs(self, pack):
        self.write(f"{pack}/cuda_kernels_gpu_test", "#!/usr/bin/env bash\nexit 0\n")
        self.write(f"{pack}/cuda_backend_test",
                   '#!/usr/bin/env bash\n[ "${1:-}" != --gtest_list_tests ] || exit 0\necho a test fails\nexit 1\n')
        self.write(f"{pack}/coppice-bench-cuda", BENCH.format(facts="echo a device, wgmma"))

    def test_a_part_that_fails_stops_no_other(self):
        result, outcomes, measured = self.answer()
        self.assertEqual(list(outcomes), PARTS)
        self.assertEqual(outcomes["backend"], "failed (status 1): a test fails")
        self.assertEqual(outcomes["memcheck"], "not run: compute-sanitizer refuses this machine")
        self.assertEqual({outcomes[p] for p in PARTS if p not in ("backend", "memcheck", "racecheck")}, {"ok"})
        self.assertEqual([m["part"] for m in measured], ["ceilings", "tune", "matmul", "attention", "wide", "small", "candidate_list", "step",
                                                         "draft", "round", "goals"])
        self.assertEqual({m["given"] for m in measured[1:]}, {"--bandwidth=2.5000e+12"})
        self.assertEqual(result.returncode, 1)

    def test_the_wide_part_is_not_run_on_another_device(self):
        self.write(f"{PACK}/coppice-bench-cuda", BENCH.format(facts="echo a device"))
        _, outcomes, measured = self.answer()
        self.assertEqual(outcomes["wide"], "not run: the device is not of compute capability 9.0")
        self.assertNotIn("wide", [m["part"] for m in measured])

    def with_limit_of_the_probe(self, kernels):
        """The script with a limit of one second for the part `probe`, and what that part runs."""
        with open(SCRIPT, encoding="utf8") as file:
            script = file.read()
        self.assertIn('"probe|20|', script)
        self.write("gpu_check.sh", script.replace('"probe|20|', '"probe|1|'))
        self.write(f"{PACK}/cuda_kernels_gpu_test",
                   f'#!/usr/bin/env bash\n[ "$1" = --gtest_filter="DeviceProbe.*" ] || exit 0\n{kernels}\n')
        return self.answer()[1]

    def test_a_part_that_hangs_is_stopped(self):
        outcomes = self.with_limit_of_the_probe("echo begun; sleep 100")
        self.assertEqual(outcomes["probe"], "stopped: no output for 1 s")
        self.assertEqual(outcomes["step"], "ok")

    def test_a_part_that_fails_without_a_word(self):
        outcomes = self.with_limit_of_the_probe("exit 3")
        self.assertEqual(outcomes["probe"], "failed (status 3): ")
        self.assertEqual(outcomes["step"], "ok")

    def test_a_part_that_goes_on_may_take_longer(self):
        self.assertEqual(self.with_limit_of_the_probe("for i in 1 2 3 4; do sleep 0.5; echo $i; done")["probe"], "ok")

    def test_a_part_that_goes_on_for_ever_is_stopped(self):
        outcomes = self.with_limit_of_the_probe("while sleep 0.2; do echo goes on; done")
        self.assertEqual(outcomes["probe"], "stopped after 4 s")
        self.assertEqual(outcomes["step"], "ok")

    def test_without_a_device_nothing_is_said_to_be_measured(self):
        self.write(f"{PACK}/coppice-bench-cuda", BENCH.format(facts="echo no driver >&2; exit 1"))
        result, outcomes, measured = self.answer()
        self.assertEqual(outcomes["facts"], "failed (status 1): no driver")
        self.assertEqual({outcomes[p] for p in PARTS[1:]}, {"not run: no device"})
        self.assertEqual(measured, [])
        self.assertIn("nothing was tested and nothing was measured", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_the_parts_of_a_device_that_is_as_fast_as_expected_end_within_ten_minutes(self):
        with open(SCRIPT, encoding="utf8") as file:
            limits = [int(seconds) for seconds in re.findall(r'^  "\w+\|(\d+)\|', file.read(), re.M)]
        self.assertEqual(len(limits), len(PARTS))
        self.assertLessEqual(sum(limits), 560)

    def test_dry_run_names_what_is_missing(self):
        result = self.run_script("run", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.write("tools/ldd", "#!/usr/bin/env bash\necho 'libcublasLt.so.13 => not found'\n")
        result = self.run_script("run", "--dry-run")
        self.assertIn("does not load: libcublasLt.so.13 => not found", result.stdout)
        self.assertEqual(result.returncode, 1)
        os.remove(os.path.join(self.folder, PACK, "cuda_backend_test"))
        self.assertIn("cuda_backend_test is missing", self.run_script("run", "--dry-run").stdout)

    def driver(self, number):
        """What every pack's program says of the driver; None: there is none."""
        for pack in ("cuda-12.4", PACK):
            self.write(f"{pack}/coppice-cuda-driver", "#!/usr/bin/env bash\n" + ("exit 1\n" if number is None else f"echo {number}\n"))

    def test_the_newest_programs_that_the_driver_serves(self):
        self.pack("12.4")
        self.write_programs("cuda-12.4")
        self.write("tools/nvidia-smi", "#!/usr/bin/env bash\nexit 1\n")
        for number, said in ((13010, "the driver serves CUDA 13.1\ngpu_check: takes the programs of CUDA 13.0\n"),
                             (13000, "takes the programs of CUDA 13.0\n"),
                             (12090, "takes the programs of CUDA 12.4; those of CUDA 13.0 need a driver for CUDA 13.0\n"),
                             (12020, "the driver serves CUDA 12.2\ngpu_check: takes the programs of CUDA 12.4; those of CUDA 13.0 need"),
                             (None, "no driver is found (libcuda.so.1)\ngpu_check: takes the programs of CUDA 13.0\n")):
            with self.subTest(number=number):
                self.driver(number)
                result = self.run_script("run", "--dry-run")
                self.assertIn(said, result.stdout)
                self.assertEqual(result.returncode, 0, result.stdout)
        # A driver that only nvidia-smi knows of.
        self.write("tools/nvidia-smi", "#!/usr/bin/env bash\necho '| NVIDIA-SMI 550.54  Driver Version: 550.54  CUDA Version: 12.4 |'\n")
        self.assertIn("takes the programs of CUDA 12.4; those", self.run_script("run", "--dry-run").stdout)

    def test_no_programs_for_the_driver(self):
        self.pack("12.4")
        self.write_programs("cuda-12.4")
        self.driver(11080)
        result = self.run_script("run", "--out", "out")
        self.assertIn("the driver serves CUDA 11.8\ngpu_check: no programs fit this machine; those of CUDA 13.0 need a driver for CUDA 13.0; "
                      "those of CUDA 12.4 need a driver for CUDA 12.0\n", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_older_programs_where_the_newest_do_not_load(self):
        self.pack("12.4")
        self.write_programs("cuda-12.4")
        self.write("tools/ldd", "#!/usr/bin/env bash\n[[ $1 == *12.4* ]] || echo 'libcublasLt.so.13 => not found'\n")
        result, _, _ = self.answer()
        self.assertIn("takes the programs of CUDA 12.4; of CUDA 13.0, cuda_kernels_gpu_test does not load: libcublasLt.so.13 => not found",
                      result.stdout)
        with open(os.path.join(self.folder, "out/gpu_check.json"), encoding="utf8") as file:
            answer = json.load(file)
        self.assertEqual((answer["cuda"], answer["driver"]), ("12.4", "13.0"))

    def test_arguments(self):
        self.assertIn("--dry-run", self.run_script("--help").stdout)
        for wrong in ([], ["measure"], ["run", "--fast"], ["run", "--out"], ["run", "--slow", "x"], ["run", "--cublas"], ["pack", "--out", "x"],
                      ["pack", "--toolkit"]):
            self.assertEqual(self.run_script(*wrong).returncode, 2, wrong)


NVCC = "#!/usr/bin/env bash\necho 'Cuda compilation tools, release {}, V{}.131'\n"
# Writes down what it is asked for, and makes the programs.
CMAKE = """#!/usr/bin/env bash
echo "$*" >>{log}
if [ "$1" = --build ]; then
  mkdir -p "$2/bin"
  for program in "${{@:4}}"; do echo program >"$2/bin/$program"; done
else
  mkdir -p "$6"
fi
"""


class PackTest(Folder):
    """`pack` over toolkits and a cmake that are stand-ins."""

    def setUp(self):
        super().setUp()
        self.log = os.path.join(self.folder, "cmake.log")
        os.makedirs(os.path.join(self.folder, "tree/deploy"))
        shutil.copy(SCRIPT, os.path.join(self.folder, "tree/deploy"))
        self.write("tools/ldd", "#!/usr/bin/env bash\necho statically linked\n")
        self.write("tools/cmake", CMAKE.format(log=self.log))
        self.write("own/bin/nvcc", NVCC.format("13.0", "13.0"))
        self.write("own/include/nccl.h", "")
        self.write("old/bin/nvcc", NVCC.format("12.4", "12.4"))
        self.write("old/lib64/libcublasLt.so.12", "cuBLASLt")

    def run_pack(self, *arguments, toolkit="own"):
        path = ":".join(os.path.join(self.folder, part) for part in ("tools", f"{toolkit}/bin")) + ":" + os.environ["PATH"]
        return subprocess.run([os.path.join(self.folder, "tree/deploy/gpu_check.sh"), "pack", *arguments], text=True, capture_output=True,
                              env={**os.environ, "PATH": path}, cwd=self.folder, timeout=300)

    def read(self, name):
        with open(os.path.join(self.folder, "tree/build/gpu_check", name), encoding="utf8") as file:
            return file.read()

    def test_a_pack_for_each_toolkit(self):
        result = self.run_pack("--toolkit", "old")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("cuda=13.0\ndriver=13000\ncublas=libcublasLt.so.13\n", self.read("cuda-13.0/needs"))
        self.assertIn("cuda=12.4\ndriver=12000\ncublas=libcublasLt.so.12\n", self.read("cuda-12.4/needs"))
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "tree/build/gpu_check/cuda-12.4"))),
                         ["coppice-bench-cuda", "coppice-cuda-driver", "cuda_backend_test", "cuda_kernels_gpu_test", "needs"])
        self.assertIn("KiB; needs a driver for CUDA 12.0 and glibc", result.stdout)
        with open(self.log, encoding="utf8") as file:
            configured = [line for line in file if not line.startswith("--build")]
        own, old = (os.path.realpath(os.path.join(self.folder, name)) for name in ("own", "old"))
        for line, toolkit, nccl in zip(configured, (own, old), ("ON", "OFF")):
            for option in (f"CUDAToolkit_ROOT={toolkit}", f"COPPICE_NVCC={toolkit}/bin/nvcc", f"COPPICE_CUDA_INCLUDE={toolkit}/include",
                           f"COPPICE_NCCL={nccl}"):
                self.assertIn(f"-D{option} ", line)
        self.assertEqual(len(configured), 2)

    def test_every_folder_that_the_programs_need(self):
        with open(os.path.join(os.path.dirname(SCRIPT), "../CMakeLists.txt"), encoding="utf8") as file:
            folders = re.search(r"set\(COPPICE_FOLDERS ([\w\s]*) model\s", file.read()).group(1).split()
        with open(SCRIPT, encoding="utf8") as file:
            self.assertIn(f'"-DCOPPICE_FOLDERS={";".join(folders)};model;lab;tests"', file.read())

    def test_cublas_beside_the_programs(self):
        self.assertIn("own has no libcublasLt.so.13", self.run_pack("--cublas").stderr)
        result = self.run_pack("--cublas", toolkit="old")
        self.assertEqual(self.read("cuda-12.4/libcublasLt.so.12"), "cuBLASLt", result.stderr)
        self.assertIn("and 0 MiB of cuBLASLt", result.stdout)

    def test_what_is_no_toolkit(self):
        self.write("older/bin/nvcc", NVCC.format("11.8", "11.8"))
        self.assertIn("has CUDA 11.8; the backend needs 12 or newer", self.run_pack("--toolkit", "older").stderr)
        self.assertIn("nowhere is no CUDA toolkit", self.run_pack("--toolkit=nowhere").stderr)
        self.assertFalse(os.path.exists(self.log))


if __name__ == "__main__":
    unittest.main()
