#!/usr/bin/env python3
"""CPU ranks of one host. They meet through shared memory unless told otherwise, with the answers of MPI bit for bit and the
tokens of one rank. A rank that dies ends its replica."""
import os
import pathlib
import signal
import tempfile
import unittest

from api_client import outcome
from cluster import BIN, ROOT, Cluster, StartFailure

MODEL = ROOT / "tests/models/stories260k"
PROMPTS = ["Once upon a time, there was a", "Tom and Lily went to the park. They"]
DISTRIBUTIONS = [dict(temperature=0), dict(decoding="beam_search", beam_width=4, n=4),
        dict(decoding="beam_sampling", beam_width=4, n=4, seed=5)]
BODIES = [dict(distribution, prompt=prompt, max_tokens=40, return_token_ids=True) for distribution in DISTRIBUTIONS for prompt in PROMPTS]


def tokens(answer):
    return [choice["token_ids"] for choice in answer["choices"]]


def maps_shared_memory(pid):
    with open(f"/proc/{pid}/maps", encoding="utf8") as maps:
        return "memfd:coppice" in maps.read()


class TwoBuilds(Cluster):
    """Rank 1 of each replica runs the program `other`."""

    def __init__(self, other, **options):
        super().__init__(**options)
        self.other = other

    def program(self, role, *flags):
        program = super().program(role, *flags)
        choose = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then shift; exec "$0" "$@"; fi; exec "$@"'
        return ["bash", "-c", choose, self.other, *program] if role == "worker" else program


class Ranks(unittest.TestCase):
    def answers(self, tp, carrier, shared):
        """The answers of a cluster whose ranks meet in shared memory or not."""
        with Cluster(target=MODEL, draft=MODEL, tp=tp, worker_flags=(f"--communicator={carrier}",)) as cluster:
            ranks = cluster.process("replica-0").ranks()
            self.assertEqual(len(ranks), tp)
            self.assertEqual({maps_shared_memory(pid) for pid in ranks.values()}, {shared})
            return [cluster.api.complete(body) for body in BODIES]

    def test_shared_memory_gives_what_mpi_and_one_rank_give(self):
        one = self.answers(1, "auto", False)
        for tp in (2, 4):
            with self.subTest(tp=tp):
                shared = self.answers(tp, "auto", True)
                self.assertEqual([tokens(answer) for answer in shared], [tokens(answer) for answer in one])
                mpi = self.answers(tp, "mpi", False)
                self.assertEqual([outcome(answer) for answer in shared], [outcome(answer) for answer in mpi])
        self.answers(2, "shm", True)

    def test_a_killed_rank_ends_its_replica(self):
        for carrier in ("shm", "mpi"):
            with self.subTest(carrier), Cluster(target=MODEL, drafts=0, tp=4, worker_flags=(f"--communicator={carrier}",),
                                                coordinator_flags=("--failover_wait=1",)) as cluster:
                cluster.api.complete(BODIES[0])
                replica = cluster.process("replica-0")
                os.kill(replica.ranks()[3], signal.SIGKILL)
                self.assertTrue(replica.wait_gone(20), replica.left())
                self.assertNotEqual(replica.process.returncode, 0)


    def test_two_versions_of_the_program_are_refused(self):
        """The messages of one differ in the name of a field, which is in the program's description of them."""
        field = b"commit_destination"
        with tempfile.TemporaryDirectory(prefix="coppice.") as folder:
            other = pathlib.Path(folder, "coppice-worker")
            program = (BIN / "coppice-worker").read_bytes()
            self.assertIn(field, program)
            other.write_bytes(program.replace(field, field.upper()))
            other.chmod(0o755)
            for carrier in ("shm", "mpi"):
                cluster = TwoBuilds(other, target=MODEL, drafts=0, tp=2, worker_flags=(f"--communicator={carrier}",))
                with self.subTest(carrier), self.assertRaises(StartFailure) as failure, cluster:
                    pass
                build = r"rank {} of 2 on \S+ runs coppice [\d.]+, messages [0-9a-f]{{8}}"
                self.assertRegex(str(failure.exception), build.format(1) + ", " + build.format(0) +
                                 ": every host needs the same version of Coppice")
                self.assertEqual(cluster.process("replica-0").left(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
