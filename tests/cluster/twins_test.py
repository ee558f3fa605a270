#!/usr/bin/env python3
"""Two workers with the same host name and pid, as in containers on the network of their host, where each program is the first of
its namespace. Both serve, and one goes on when the other ends."""
import unittest

from api_client import outcome
from cluster import Cluster, wait_until

FIRST_OF_ITS_NAMESPACE = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"]  # as in CMakeLists.txt
BODY = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=4, n=4, max_tokens=40,
            return_token_ids=True)


class Twins(unittest.TestCase):
    def ready(self, cluster):
        return [replica for replica in cluster.api.cluster()["replicas"] if replica["state"] == "ready"]

    def test_both_serve_and_one_goes_on_alone(self):
        with Cluster(replicas=0, drafts=0) as cluster:
            for name in ("twin-a", "twin-b"):
                cluster.launch(name, FIRST_OF_ITS_NAMESPACE + cluster.program(
                    "worker", f"--model={cluster.target}", "--dtype=f32", "--threads=1", f"--coordinator={cluster.control}"))
            self.assertTrue(wait_until(lambda: len(self.ready(cluster)) == 2))
            places = [[(rank["node"], rank["pid"]) for rank in replica["ranks"]] for replica in self.ready(cluster)]
            self.assertEqual(places[0], places[1])
            wanted = outcome(cluster.api.complete(BODY))
            twin = cluster.process("twin-b").process
            twin.kill()  # unshare ignores other signals, and takes its program along
            twin.wait()
            self.assertTrue(wait_until(lambda: len(self.ready(cluster)) == 1))
            for answer in cluster.api.complete_all([BODY] * 4):
                self.assertEqual(outcome(answer), wanted)


if __name__ == "__main__":
    unittest.main(verbosity=2)
