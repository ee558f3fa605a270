#!/usr/bin/env python3
"""The script deploy/gpu_check.sh over the programs of the preset cuda-sim, whose tests are cut to a few.

  gpu_check_sim_test.py PATH_OF_GPU_CHECK CUDA_KERNELS_TEST CUDA_BACKEND_TEST COPPICE_BENCH_CUDA"""
import os
import sys
import unittest

from gpu_check_folder import PACK, PARTS, Folder

PROGRAMS = [os.path.abspath(sys.argv.pop(1)) for _ in sys.argv[1:4]]
# What the parts with tests run of them here.
FEW = """#!/usr/bin/env bash
few=$1
case $1 in
  --gtest_filter=-DeviceProbe*) few=--gtest_filter=CudaNorm.*:CudaCommit.* ;;
  --gtest_filter=CudaAttentionWide*) few=--gtest_filter=CudaAttentionWide.SmallSplits ;;
  "") few=--gtest_filter=*BackendStepTest.* ;;
esac
exec {program} "$few"
"""


class SimulatedDeviceTest(Folder):
    """The script as it is, on a device that is simulated: every part passes, and every goal follows from what was measured."""

    def setUp(self):
        super().setUp()
        for name, program in zip(("cuda_kernels_gpu_test", "cuda_backend_test"), PROGRAMS):
            self.write(f"{PACK}/{name}", FEW.format(program=program))
        self.write(f"{PACK}/coppice-bench-cuda", f'#!/usr/bin/env bash\nexec {PROGRAMS[2]} "$@"\n')
        self.write("tools/ldd", "#!/usr/bin/env bash\necho statically linked\n")
        self.write("tools/compute-sanitizer", "#!/usr/bin/env bash\necho Device not supported\nexit 1\n")

    def test_every_part(self):
        result, outcomes, measured = self.answer("--slow", "20")
        refused = {"memcheck", "racecheck"}
        self.assertEqual({part: outcome for part, outcome in outcomes.items() if outcome != "ok" and part not in refused}, {},
                         result.stdout + result.stderr)
        self.assertEqual(list(outcomes), PARTS)
        timed = {m["part"] for m in measured}
        self.assertLessEqual({"ceilings", "tune", "matmul", "attention", "wide", "small", "candidate_list", "step", "draft", "round"}, timed)
        goals = [m for m in measured if m["part"] == "goals"]
        self.assertEqual(len(goals), 13)
        self.assertEqual([m for m in goals if m["value"] is None], [])
        self.assertIn("\nround      ", result.stdout)

    def test_dry_run(self):
        result = self.run_script("run", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("drafted by 1B", result.stdout)


if __name__ == "__main__":
    unittest.main()
