#!/usr/bin/env python3
"""The script deploy/gpu_check.sh itself, over programs that are stand-ins: which parts run, what a part that fails, hangs or finds no
device does to the others, and that its answer is JSON. What it says of a GPU is not tested here.

  gpu_check_test.py PATH_OF_GPU_CHECK"""
import os
import re
import unittest

from gpu_check_folder import PARTS, SCRIPT, Folder

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
        self.write("cuda_kernels_gpu_test", "#!/usr/bin/env bash\nexit 0\n")
        self.write("cuda_backend_test", '#!/usr/bin/env bash\n[ "${1:-}" != --gtest_list_tests ] || exit 0\necho a test fails\nexit 1\n')
        self.write("coppice-bench-cuda", BENCH.format(facts="echo a device, wgmma"))
        self.write("tools/ldd", "#!/usr/bin/env bash\necho statically linked\n")
        self.write("tools/compute-sanitizer", "#!/usr/bin/env bash\necho Device not supported\nexit 1\n")

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
        self.write("coppice-bench-cuda", BENCH.format(facts="echo a device"))
        _, outcomes, measured = self.answer()
        self.assertEqual(outcomes["wide"], "not run: the device is not of compute capability 9.0")
        self.assertNotIn("wide", [m["part"] for m in measured])

    def test_a_part_that_hangs_is_stopped(self):
        with open(SCRIPT, encoding="utf8") as file:
            script = file.read()
        self.assertIn('"probe|20|', script)
        self.write("gpu_check.sh", script.replace('"probe|20|', '"probe|1|'))
        self.write("cuda_kernels_gpu_test", '#!/usr/bin/env bash\n[ "$1" != --gtest_filter="DeviceProbe.*" ] || sleep 100\n')
        _, outcomes, _ = self.answer()
        self.assertEqual(outcomes["probe"], "stopped after 1 s")
        self.assertEqual(outcomes["step"], "ok")

    def test_without_a_device_nothing_is_said_to_be_measured(self):
        self.write("coppice-bench-cuda", BENCH.format(facts="echo no driver >&2; exit 1"))
        result, outcomes, measured = self.answer()
        self.assertEqual(outcomes["facts"], "failed (status 1): no driver")
        self.assertEqual({outcomes[p] for p in PARTS[1:]}, {"not run: no device"})
        self.assertEqual(measured, [])
        self.assertIn("nothing was tested and nothing was measured", result.stdout)
        self.assertEqual(result.returncode, 1)

    def test_parts_end_within_ten_minutes(self):
        with open(SCRIPT, encoding="utf8") as file:
            limits = [int(seconds) for seconds in re.findall(r'^  "\w+\|(\d+)\|', file.read(), re.M)]
        self.assertEqual(len(limits), len(PARTS))
        self.assertLessEqual(sum(limits), 560)  # and 5 s for each that must be killed is rare

    def test_dry_run_names_what_is_missing(self):
        result = self.run_script("run", "--dry-run")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.write("tools/ldd", "#!/usr/bin/env bash\necho 'libcublasLt.so.13 => not found'\n")
        result = self.run_script("run", "--dry-run")
        self.assertIn("does not load: libcublasLt.so.13 => not found", result.stdout)
        self.assertEqual(result.returncode, 1)
        os.remove(os.path.join(self.folder, "cuda_backend_test"))
        self.assertIn("cuda_backend_test is missing", self.run_script("run", "--dry-run").stdout)

    def test_arguments(self):
        self.assertIn("--dry-run", self.run_script("--help").stdout)
        for wrong in ([], ["measure"], ["run", "--fast"], ["run", "--out"], ["run", "--slow", "x"]):
            self.assertEqual(self.run_script(*wrong).returncode, 2, wrong)


if __name__ == "__main__":
    unittest.main()
