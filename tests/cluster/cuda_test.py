#!/usr/bin/env python3
"""A cluster whose target and drafts run on the CUDA backend with the simulated device. In exact mode reproducible methods give the
same token ids and scores with and without drafts, also for concurrent requests. A cluster that cannot start says why."""
import json
import os
import pathlib
import tempfile
import time
import unittest

from api_client import ApiClient, outcome
from cluster import BIN, ROOT, Cluster, StartFailure, free_port, run_launcher

MODEL = ROOT / "tests/models/stories260k"
PROMPTS = ["Once upon a time, there was a little girl", "The big dog"]
DISTRIBUTIONS = {
    "multinomial": dict(decoding="multinomial", seed=11, temperature=0.9),
    "greedy": dict(decoding="multinomial", temperature=0),
    "beam sampling": dict(decoding="beam_sampling", beam_width=3, n=3, seed=12),
    "without replacement": dict(decoding="beam_sampling_without_replacement", beam_width=3, n=3, seed=13),
    "beam search": dict(decoding="beam_search", beam_width=3, n=3),
}
DRAFTED = dict(speculative=dict(draft_width=3, draft_depth=2))
CUDA = ("--backend=cuda", f"--kv_bytes={4 << 20}", "--tuning_cache=")
EXACT = (*CUDA, "--exact")


def requests():
    return [(f"{distribution}, prompt {i}", dict(fields, prompt=prompt, max_tokens=12, return_token_ids=True))
            for distribution, fields in DISTRIBUTIONS.items() for i, prompt in enumerate(PROMPTS)]


class Cuda(unittest.TestCase):
    def test_drafts_change_no_token(self):
        with Cluster(target=MODEL, draft=MODEL, worker_flags=EXACT, draft_flags=CUDA) as cluster:
            self.assertIn("cuda simulated device", cluster.process("replica-0").output())
            self.assertIn("cuda simulated device", cluster.process("draft-0").output())
            plain = {name: outcome(cluster.api.complete(dict(body, speculative=False))) for name, body in requests()}
            accepted = 0
            for name, body in requests():
                with self.subTest("alone", request=name):
                    answer = cluster.api.complete(dict(body, **DRAFTED))
                    self.assertEqual(outcome(answer), plain[name])
                    self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0)
                    accepted += answer["usage"]["speculation"]["accepted_nodes"]
            self.assertGreater(accepted, 0)
            with self.subTest("joint_gumbel_coupling, whatever is drafted"):
                body = dict(DISTRIBUTIONS["beam sampling"], prompt=PROMPTS[0], max_tokens=12, return_token_ids=True)
                shapes = [dict(draft_width=1, draft_depth=1), dict(draft_width=3, draft_depth=2)]
                answers = [cluster.api.complete(dict(body, speculative=dict(shape, method="joint_gumbel_coupling"))) for shape in shapes]
                self.assertEqual(outcome(answers[0]), outcome(answers[1]))
            together = cluster.api.complete_all([dict(body, **DRAFTED) for _, body in requests()])
            for (name, _), answer in zip(requests(), together):
                with self.subTest("together", request=name):
                    self.assertEqual(outcome(answer), plain[name])

    def test_drafts_of_the_other_kind(self):
        """A draft node on the CPU for a target on the GPU, and the reverse: the target's tokens either way."""
        body = dict(DISTRIBUTIONS["multinomial"], prompt=PROMPTS[0], max_tokens=12, return_token_ids=True)
        for where, target, draft in (("the target", EXACT, ()), ("the draft", (), CUDA)):
            with self.subTest(where + " on the GPU"), Cluster(target=MODEL, draft=MODEL, worker_flags=target, draft_flags=draft) as cluster:
                kinds = [cluster.process(name).output().count("cuda simulated device") for name in ("replica-0", "draft-0")]
                self.assertEqual([count > 0 for count in kinds], [where == "the target", where == "the draft"])
                plain = outcome(cluster.api.complete(dict(body, speculative=False)))
                answer = cluster.api.complete(dict(body, **DRAFTED))
                self.assertEqual(outcome(answer), plain)
                self.assertGreater(answer["usage"]["speculation"]["accepted_nodes"], 0)

    def test_a_device_that_is_lost(self):
        """Its replica ends with a message. What ran there goes on elsewhere, with the same tokens."""
        body = dict(DISTRIBUTIONS["multinomial"], prompt=PROMPTS[0], max_tokens=40, ignore_eos=True, return_token_ids=True)
        with Cluster(target=MODEL, draft=MODEL, drafts=0, replicas=2, worker_flags=EXACT,
                     environments={"replica-0": {"DEV_FAIL_WORK": "2000"}}) as cluster:
            lost = cluster.process("replica-0")
            answers = []
            while lost.alive():
                answers += cluster.api.complete_all([body] * 4)
                self.assertLess(len(answers), 400, "the device was to fail")
            self.assertRegex(lost.output(), r"step \d+: .*cudaErrorIllegalAddress")
            answers.append(cluster.api.complete(body))
            self.assertEqual({json.dumps(outcome(answer)) for answer in answers}, {json.dumps(outcome(answers[0]))})

    def test_energy_is_that_of_the_device(self):
        """The library stands in for NVIDIA's. Target and drafts share the device, so the worker counts it for both."""
        measured = (*CUDA, f"--nvml_library={BIN}/libfake_nvml.so")
        os.environ["COPPICE_FAKE_NVML_MJ"] = "100"  # for each reading
        try:
            with Cluster(target=MODEL, draft=MODEL, worker_flags=measured, draft_flags=measured) as cluster:
                self.assertIn("energy: nvml, GPU 0000:3b:00.0;", cluster.process("replica-0").output())
                for speculative in (False, DRAFTED["speculative"]):
                    body = dict(prompt=PROMPTS[0], max_tokens=12, temperature=0.9, seed=3, speculative=speculative)
                    self.assertGreater(cluster.api.complete(body)["usage"]["energy_joules"], 0)
                time.sleep(1)
                text = cluster.api.get("/metrics")[1]
                self.assertIn('coppice_energy_joules_total{node="replica-0",source="nvml"}', text)
                self.assertNotIn('coppice_energy_joules_total{node="draft-0"', text)
        finally:
            del os.environ["COPPICE_FAKE_NVML_MJ"]

    def test_without_the_drivers_library_nothing_is_measured(self):
        with Cluster(target=MODEL, drafts=0, worker_flags=(*CUDA, "--nvml_library=libno-such-nvml.so")) as cluster:
            self.assertIn("energy is not measured: NVML, a part of the NVIDIA driver: libno-such-nvml.so",
                          cluster.process("replica-0").output())
            self.assertNotIn("energy_joules", cluster.api.complete(dict(prompt=PROMPTS[0], max_tokens=4))["usage"])

    def test_products_are_tuned_at_the_first_start_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            flags = (*CUDA, f"--tuning_cache={folder}/cache", "--max_rows=16", "--prefill_chunk=8")
            texts = []
            for tuned in ("25 of 25 matrix products tuned in", None):
                with Cluster(target=MODEL, draft=MODEL, worker_flags=flags, draft_flags=flags) as cluster:
                    # Who comes first tunes, the other takes over what that has found.
                    logs = [cluster.process(name).output() for name in ("replica-0", "draft-0")]
                    self.assertEqual([log for log in logs if "tuned in" in log], [log for log in logs if tuned and tuned in log])
                    self.assertEqual(sum("25 matrix products as tuned before" in log for log in logs), 1 if tuned else 2)
                    answer = cluster.api.complete(dict(DISTRIBUTIONS["greedy"], prompt=PROMPTS[0], max_tokens=12))
                    texts.append(answer["choices"][0]["text"])
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(len([name for name in os.listdir(folder + "/cache") if name.endswith(".txt")]), 1)

    def test_memory_that_is_not_there(self):
        with self.assertRaises(StartFailure) as failure:
            with Cluster(target=MODEL, drafts=0, worker_flags=("--backend=cuda", f"--kv_bytes={1 << 40}")):
                pass
        self.assertRegex(str(failure.exception), r"does not fit: it needs 1099\.\d+ GB on this rank .* the device has 2\.\d+ GB free of 2\.\d+ GB")

    def test_the_launcher_passes_the_backend_on(self):
        with tempfile.TemporaryDirectory() as folder:
            state, port = os.path.join(folder, "state"), free_port()
            launcher = ROOT / "deploy/cluster.sh"
            at = ["--port", port, "--state", state]
            up = ["up", "--target", MODEL, "--draft", MODEL, "--kv-bytes", 4 << 20, "--draft-kv-bytes", 4 << 20, "--tuning-cache", ""]
            _, status, _, errors = run_launcher([launcher, *up, *at, "--backend", "gpu"])
            self.assertEqual(status, 2)
            self.assertIn("--backend must be cpu or cuda, got 'gpu'", errors)
            _, status, _, errors = run_launcher([launcher, *up, *at, "--communicator", "tcp"])
            self.assertEqual(status, 2)
            self.assertIn("--communicator must be auto, shm, mpi, nccl, oneshot or host, got 'tcp'", errors)
            _, status, _, errors = run_launcher([launcher, *up, *at, "--preset", "none-such"])
            self.assertEqual(status, 1)
            self.assertIn("build/none-such/bin/coppice-coordinator is missing", errors)
            self.assertIn("deploy/build.sh none-such", errors)
            preset = ["--preset", BIN.parent.name] if BIN == ROOT / "build" / BIN.parent.name / "bin" else []
            ranks = ["--tp", 2, "--communicator", "host"]
            _, status, output, errors = run_launcher([launcher, *up, *at, "--backend", "cuda", *ranks, *preset])
            self.assertEqual(status, 0, output + errors)
            try:
                body = dict(prompt=PROMPTS[0], max_tokens=4, temperature=0)
                self.assertTrue(ApiClient(port).complete(body)["choices"][0]["text"])
                logs = [pathlib.Path(state, name).read_text() for name in ("replica-0.log", "draft-0.log")]
                self.assertTrue(all("cuda simulated device" in log for log in logs), json.dumps(logs))
                self.assertEqual(logs[0].count("sums through the host\n"), 2, logs[0])
            finally:
                self.assertEqual(run_launcher([launcher, "down", *at])[1], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
