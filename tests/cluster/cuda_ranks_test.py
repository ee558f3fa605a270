#!/usr/bin/env python3
"""Replicas of several ranks on the CUDA backend with simulated devices, by NCCL (its stand-in), one-shot sums and through the host. They choose
the tokens of one rank. A rank that fails, dies, stands still or never comes ends its replica with a message."""
import os
import re
import signal
import threading
import unittest

from cluster import DRAFT, ROOT, Cluster, StartFailure
from stopwatch import Stopwatch, at_most

MODEL = ROOT / "tests/models/stories260k"
STORIES = ["Once upon a time, there was a little girl", "The big dog"]
DISTRIBUTIONS = {
    "greedy": dict(decoding="multinomial", temperature=0),
    "beam search": dict(decoding="beam_search", beam_width=3, n=3),
    "beam sampling": dict(decoding="beam_sampling", beam_width=3, n=3, seed=12),
}
DRAFTED = dict(speculative=dict(draft_width=3, draft_depth=2))
CUDA = ("--backend=cuda", f"--kv_bytes={4 << 20}")
DEVICES = {"replica-0": {"DEV_DEVICES": "4"}}
ENDED_WITHIN_S = 40
STEP_DEADLINE_S = 20  # a step of the simulated device may take seconds on a busy machine


def tokens(answer):
    return [choice["token_ids"] for choice in answer["choices"]]


class ApartByNccl(Cluster):
    """NCCL takes each rank for a host of its own."""

    def program(self, role, *flags):
        program = super().program(role, *flags)
        return ["bash", "-c", 'NCCL_HOSTID=rank-$OMPI_COMM_WORLD_RANK exec "$0" "$@"', *program] if role == "worker" else program


class CudaRanks(unittest.TestCase):
    def cluster(self, tp, communicator, *flags, environment=None, **options):
        worker = (*CUDA, f"--communicator={communicator}", *flags)
        environments = {"replica-0": dict(DEVICES["replica-0"], **(environment or {}))}
        return Cluster(**dict(dict(target=MODEL, drafts=0), **options), tp=tp, worker_flags=worker, draft_flags=CUDA,
                       environments=environments)

    def answers(self, tp, communicator, prompts, *flags, **options):
        """By request: what a replica of so many ranks answers, plain and with drafts."""
        with self.cluster(tp, communicator, *flags, drafts=1, **options) as cluster:
            output = cluster.process("replica-0").output()
            self.assertEqual("NCCL 2." in output, tp > 1 and communicator in ("auto", "nccl") and "--exact" not in flags, output)
            self.assertEqual("in symmetric windows" in output, tp > 1 and communicator in ("auto", "nccl") and "--exact" not in flags, output)
            self.assertEqual("one-shot sums" in output, tp > 1 and communicator in ("auto", "oneshot"), output)
            self.assertEqual("sums through the host" in output, tp > 1 and communicator == "host", output)
            self.assertEqual({int(n) for n in re.findall(r"device (\d) of 4", output)}, set(range(tp)))
            found = {}
            for distribution, fields in DISTRIBUTIONS.items():
                for i, prompt in enumerate(prompts):
                    body = dict(fields, prompt=prompt, max_tokens=12, return_token_ids=True)
                    plain = tokens(cluster.api.complete(dict(body, speculative=False)))
                    self.assertEqual(tokens(cluster.api.complete(dict(body, **DRAFTED))), plain, distribution)
                    found[distribution, i] = plain
            return found

    def test_ranks_choose_the_tokens_of_one_rank(self):
        one = self.answers(1, "auto", STORIES, draft=MODEL)
        for tp, communicator in ((2, "auto"), (2, "host"), (4, "nccl"), (4, "host"), (2, "oneshot"), (4, "oneshot")):
            with self.subTest(tp=tp, communicator=communicator):
                self.assertEqual(self.answers(tp, communicator, STORIES, draft=MODEL), one)

    def test_exact_ranks_sum_in_rank_order(self):
        one = self.answers(1, "auto", STORIES, "--exact", draft=MODEL)
        for tp, communicator in ((2, "host"), (4, "auto")):
            with self.subTest(tp=tp, communicator=communicator):
                self.assertEqual(self.answers(tp, communicator, STORIES, "--exact", draft=MODEL), one)

    def test_without_ipc_ranks_sum_by_nccl(self):
        with self.cluster(2, "auto", environment={"DEV_FAIL_IPC": "1"}) as cluster:
            cluster.api.complete(dict(prompt="The", max_tokens=4, temperature=0))
            self.assertRegex(cluster.process("replica-0").output(), "no one-shot sums over the ranks: .*")
        with self.assertRaises(StartFailure) as failure:
            with self.cluster(2, "oneshot", environment={"DEV_FAIL_IPC": "1"}):
                pass
        self.assertRegex(str(failure.exception), "the memory of one-shot sums of rank 0, by rank 1: cudaIpcOpenMemHandle: "
                                                 "cudaErrorPeerAccessUnsupported")

    def test_ranks_that_share_a_device_where_nccl_takes_them_for_hosts(self):
        """NCCL_HOSTID is what it tells hosts apart by. Without it: test_what_cannot_be_is_refused."""
        body = dict(DISTRIBUTIONS["greedy"], prompt=STORIES[0], max_tokens=12, return_token_ids=True)
        with self.cluster(1, "auto") as cluster:
            one = tokens(cluster.api.complete(body))
        with ApartByNccl(target=MODEL, drafts=0, tp=2, worker_flags=(*CUDA, "--communicator=nccl"),
                         environments={"replica-0": {"DEV_DEVICES": "1"}}) as cluster:
            self.assertEqual(tokens(cluster.api.complete(body)), one)
            output = cluster.process("replica-0").output()
            self.assertEqual(len(re.findall(r"ready in .* simulated device, 2 GiB, NCCL 2\.", output)), 2, output)

    def test_ranks_of_the_pair_whose_heads_are_no_multiple(self):
        one = self.answers(1, "auto", STORIES[:1], draft=DRAFT)
        for tp, communicator in ((2, "nccl"), (3, "host"), (3, "nccl")):
            with self.subTest(tp=tp, communicator=communicator):
                self.assertEqual(self.answers(tp, communicator, STORIES[:1], draft=DRAFT), one)

    def assert_ends(self, process, *patterns):
        """The replica ends by itself with these lines, and leaves no process."""
        self.assertTrue(process.wait_gone(ENDED_WITHIN_S), process.left())
        self.assertNotEqual(process.process.returncode, 0)
        for pattern in patterns:
            self.assertRegex("\n".join(process.reasons()), pattern)

    def disturb(self, cluster, how):
        """Does it to rank 1 while the replica works. The request ends as replica_lost."""
        replica = cluster.process("replica-0")
        rank = replica.ranks()[1]
        cluster.api.complete(dict(prompt="The", max_tokens=4, temperature=0))
        threading.Timer(0.3, how, (rank,)).start()
        body = dict(prompt="The", max_tokens=400, ignore_eos=True, temperature=0, timeout=at_most(60))
        watch = Stopwatch()
        status, answer = 200, None
        while status == 200 and watch.seconds() < ENDED_WITHIN_S:
            status, answer = cluster.api.post(body)
        self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"), answer)
        return replica, rank

    def test_a_rank_that_stands_still(self):
        for communicator in ("nccl", "oneshot", "host"):
            with self.subTest(communicator), self.cluster(2, communicator, f"--step_deadline={STEP_DEADLINE_S}",
                                                          coordinator_flags=("--failover_wait=1",)) as cluster:
                replica, rank = self.disturb(cluster, lambda pid: os.kill(pid, signal.SIGSTOP))
                self.assert_ends(replica, rf"coppice-worker: step \d+: the ranks have not ended it within {STEP_DEADLINE_S}.0 s "
                                          rf"\(--step_deadline\); rank 1 \(pid {rank}\) is stopped")

    def test_a_rank_that_dies(self):
        for communicator in ("nccl", "oneshot", "host"):
            with self.subTest(communicator), self.cluster(2, communicator, coordinator_flags=("--failover_wait=1",)) as cluster:
                replica, _ = self.disturb(cluster, lambda pid: os.kill(pid, signal.SIGKILL))
                self.assert_ends(replica)

    def test_without_windows_ranks_sum_elsewhere(self):
        """Rank 1 cannot make a window: both join again, and none has one."""
        with self.cluster(2, "nccl", environment={"DEV_FAIL_NCCL": "ncclCommWindowRegister:1:1"}) as cluster:
            cluster.api.complete(dict(prompt="The", max_tokens=4, temperature=0))
            output = cluster.process("replica-0").output()
            self.assertRegex(output, "no symmetric windows for sums over the ranks: a window of sums over the ranks: rank 1 of 2: "
                                     "ncclCommWindowRegister: ncclInternalError")
            self.assertNotIn("in symmetric windows", output)

    def test_a_call_of_nccl_that_fails(self):
        with self.cluster(2, "nccl", environment={"DEV_FAIL_NCCL": "ncclAllReduce:1:18"},
                          coordinator_flags=("--failover_wait=1",)) as cluster:
            status, answer = cluster.api.post(dict(prompt="The", max_tokens=9, temperature=0))
            self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"), answer)
            self.assert_ends(cluster.process("replica-0"), r"rank 1: step \d+: a sum over the ranks: rank 1 of 2: ncclAllReduce: ncclInternalError")

    def test_a_rank_that_never_joins(self):
        with self.assertRaises(StartFailure) as failure:
            with self.cluster(2, "nccl", "--start_deadline=10", environment={"DEV_FAIL_NCCL": "ncclCommInitRankConfig:1:0"}):
                pass
        # Each rank says what it has seen. On a busy machine one of them is ended before it has spoken.
        self.assertRegex(str(failure.exception), r"the ranks of a replica join: rank 0 of 2: ncclCommInitRankConfig: not within its "
                                                 r"deadline; it waits for rank 1"
                                                 "|rank 1 of 2: ncclCommInitRankConfig: ncclInternalError")

    def test_what_cannot_be_is_refused(self):
        refusals = [
            (("--communicator=nccl",), {"DEV_DEVICES": "1"}, "--communicator=nccl: ranks 0 and 1 share a device; "
                                                             "--communicator=host works without it"),
            (("--communicator=nccl", "--exact"), {"DEV_DEVICES": "4"}, "--communicator=nccl: NCCL does not sum in rank order, and --exact "
                                                                       "needs it; --communicator=host works without it"),
            (("--communicator=tcp",), {}, "must be auto, shm, mpi, nccl, oneshot or host, got 'tcp'"),
            (("--communicator=nccl", "--backend=cpu"), {}, "NCCL is for GPUs"),
            (("--step_deadline=0",), {}, "--step_deadline: must be more than 0, got 0"),
        ]
        for flags, environment, message in refusals:
            with self.subTest(flags), self.assertRaises(StartFailure) as failure:
                with self.cluster(2, "auto", *flags, environment=environment):
                    pass
            self.assertIn(message, str(failure.exception).replace("\\'", "'"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
