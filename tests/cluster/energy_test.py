#!/usr/bin/env python3
"""Energy through a whole cluster, measured by counters that the test moves: in usage, in the metrics and in /cluster; whole
figures only, nothing twice, and requests go on when a counter fails."""
import os
import pathlib
import re
import tempfile
import threading
import time
import unittest

from cluster import TARGET, Cluster, StartFailure
from stopwatch import wait_until

PROMPT = "One day, Tom and his mom went to the store."
DRAFTED = dict(prompt=PROMPT, max_tokens=64, ignore_eos=True, beam_width=3, do_sample=True,
               speculative=dict(draft_width=3, draft_depth=2))
PLAIN = dict(DRAFTED, speculative=False)
WATTS = 40.0
WRAPS_AFTER_S = 3  # the counters begin anew under way
SERIES = re.compile(r'^coppice_energy_joules_total\{node="([^"]*)",source="([^"]*)"\} (\S+)$', re.MULTILINE)


class PowerFolder:
    """A powercap tree of one package, with a part of it and the whole board beside it; `with` moves its counters."""

    def __init__(self, watts=WATTS):
        self.watts, self.used_j = watts, 0.0
        self.longest_gap_s = 0.0  # for which the counters stood still, because this process had no core
        self.range_uj = int(watts * WRAPS_AFTER_S * 1e6)
        self.temporary = tempfile.TemporaryDirectory(prefix="coppice.")
        self.root = pathlib.Path(self.temporary.name)
        self.stop = threading.Event()
        for zone, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys"),
                           ("intel-rapl-mmio:0", "package-0")):
            (self.root / zone).mkdir()
            (self.root / zone / "name").write_text(name + "\n")
            (self.root / zone / "max_energy_range_uj").write_text(f"{self.range_uj}\n")
        self.write()
        self.thread = threading.Thread(target=self.run)

    def write(self):
        for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl-mmio:0"):
            file = self.root / zone / "energy_uj"
            if not file.parent.exists():
                continue
            (file.parent / "next").write_text(f"{int(self.used_j * 1e6) % self.range_uj}\n")
            os.replace(file.parent / "next", file)  # a reader finds the old text or the new one

    def run(self):
        begin = last = time.monotonic()
        while not self.stop.wait(0.002):
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - last)
            last = now
            self.used_j = self.watts * (now - begin)
            self.write()

    def jump(self):
        """The most joules that a counter showed too late."""
        return self.watts * (0.05 + self.longest_gap_s)

    def lose_package(self):
        """As when the driver is unloaded."""
        os.rename(self.root / "intel-rapl:0", self.root / "gone")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.temporary.cleanup()

    def flags(self, *more):
        return (f"--powercap={self.root}", *more)


def series(cluster):
    """{node: (source, joules)} of the metrics."""
    return {node: (source, float(value)) for node, source, value in SERIES.findall(cluster.api.get("/metrics")[1])}


def joules(answer):
    """Of an answer; None when it has no such field."""
    usage = answer["usage"]
    return usage["energy_joules"] if "energy_joules" in usage else None


def shares_of(ask, tries=20):
    """Joules of each of the answers that ask() returns. It is asked again, as a short answer may fall between two movements of the
    counter, until all are above 0; the last try is given whatever it is. A list for each try."""
    shares = []
    while len(shares) < tries and not (shares and all(share > 0 for share in shares[-1])):
        shares.append([joules(answer) for answer in ask()])
    return shares


class Energy(unittest.TestCase):
    def test_one_host_counts_once_and_gives_every_request_its_share(self):
        with PowerFolder() as power, Cluster(tp=2, drafts=1, worker_flags=power.flags(), draft_flags=power.flags()) as cluster:
            self.assertTrue(wait_until(lambda: list(series(cluster)) == ["replica-0"]), series(cluster))
            self.assertIn("energy: rapl, package-0;", cluster.process("replica-0").output())
            shares = []
            for kind, bodies in (("plain", [PLAIN] * 32), ("drafted", [DRAFTED] * 32), ("both", [DRAFTED, PLAIN] * 16)):
                before = power.used_j
                tries = shares_of(lambda: cluster.api.complete_all([dict(body, max_tokens=180, seed=i) for i, body in enumerate(bodies)]))
                spent, together = power.used_j - before, sum(tries, [])
                shares += together
                with self.subTest(kind):
                    self.assertTrue(all(share > 0 for share in tries[-1]), tries)
                    self.assertGreater(sum(together), 0.5 * spent - power.jump())
                    self.assertLess(sum(together), spent + power.jump())

            def streamed():
                return [cluster.api.stream(dict(DRAFTED, stream_options=dict(include_usage=True)))[-2]]

            def stopped():
                answer = cluster.api.complete(dict(prompt=PROMPT, temperature=0, max_tokens=24, stop=["zz", "ZZ", "e"]))
                self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
                return [answer]

            for ask in (streamed, stopped):
                with self.subTest(ask.__name__):
                    tries = shares_of(ask)
                    shares += sum(tries, [])
                    self.assertGreater(shares[-1], 0)
            # Nobody works: what is used now is in the total alone, which heartbeats bring.
            self.assertTrue(wait_until(lambda: series(cluster)["replica-0"][1] > sum(shares) + 1.4 * WATTS), shares)
            total = series(cluster)["replica-0"][1]
            self.assertLess(total, power.used_j + 0.01)
            self.assertTrue(wait_until(lambda: series(cluster)["replica-0"][1] > total + 0.5 * WATTS))
            metrics = cluster.api.get("/metrics")[1]
            self.assertIn(f"coppice_request_energy_joules_count{{model_name=\"{TARGET.name}\"}} {len(shares)}\n", metrics)
            observed = float(re.search(r"coppice_request_energy_joules_sum\{[^}]*\} (\S+)", metrics)[1])
            self.assertAlmostEqual(observed, sum(shares), delta=1e-3 * observed)
            state = cluster.api.cluster()
            self.assertEqual([node["energy_source"] for node in state["replicas"] + state["draft_nodes"]], ["rapl", None])

    def test_drafts_of_another_host_are_in_the_figure(self):
        with PowerFolder() as power, PowerFolder(watts=100 * WATTS) as other, Cluster(
                drafts=1, worker_flags=power.flags(), draft_flags=other.flags()) as cluster:
            self.assertTrue(wait_until(lambda: set(series(cluster)) == {"replica-0", "draft-0"}), series(cluster))
            for body in (PLAIN, DRAFTED):
                before, before_other = power.used_j, other.used_j
                used = sum(joules(cluster.api.complete(body)) for _ in range(8))  # one may fall between two movements of a counter
                spent, spent_other = power.used_j - before, other.used_j - before_other
                if body is PLAIN:
                    self.assertLess(used, spent + power.jump())
                else:
                    self.assertGreater(used, 3 * spent, spent_other)
                    self.assertLess(used, spent + spent_other + power.jump() + other.jump())

    def test_a_part_that_is_not_measured_leaves_no_figure(self):
        with PowerFolder() as power, Cluster(drafts=1, worker_flags=power.flags(),
                                             draft_flags=("--powercap=/nowhere",)) as cluster:
            self.assertIn("energy is not measured: /nowhere: no package zone", cluster.process("draft-0").output())
            self.assertIsNone(joules(cluster.api.complete(DRAFTED)))
            self.assertGreater(shares_of(lambda: [cluster.api.complete(PLAIN)])[-1][0], 0)

    def test_nothing_measured_is_absent(self):
        with Cluster(drafts=1, worker_flags=("--energy_source=off",), draft_flags=("--energy_source=off",)) as cluster:
            answer = cluster.api.complete(DRAFTED)
            self.assertIsNone(joules(answer))
            self.assertNotIn("energy", str(answer))
            time.sleep(1)
            self.assertNotRegex(cluster.api.get("/metrics")[1], r"(?m)^coppice_\w*energy")
            self.assertIsNone(cluster.api.cluster()["replicas"][0]["energy_source"])

    def test_a_counter_that_is_lost_ends_the_figures_and_no_request(self):
        with PowerFolder() as power, Cluster(drafts=0, worker_flags=power.flags()) as cluster:
            self.assertGreater(shares_of(lambda: [cluster.api.complete(PLAIN)])[-1][0], 0)
            self.assertTrue(wait_until(lambda: series(cluster)))
            power.lose_package()
            self.assertTrue(wait_until(lambda: not series(cluster)), series(cluster))
            for _ in range(2):
                self.assertIsNone(joules(cluster.api.complete(PLAIN)))
            self.assertEqual(cluster.process("replica-0").output().count("energy is no longer measured"), 1)

    def test_of_two_replicas_of_a_host_one_counts_and_the_other_takes_over(self):
        with PowerFolder() as power, Cluster(replicas=2, drafts=0, worker_flags=power.flags()) as cluster:
            self.assertTrue(wait_until(lambda: len(series(cluster)) == 1), series(cluster))
            time.sleep(1.5)
            first, = series(cluster)
            second, = {"replica-0", "replica-1"} - {first}
            self.assertIn("another process of this host counts it", cluster.process(second).output())
            before = series(cluster)[first][1]
            cluster.process(first).end()
            self.assertTrue(wait_until(lambda: list(series(cluster)) == [second]), series(cluster))
            self.assertLess(series(cluster)[second][1], power.used_j - before)
            self.assertGreater(shares_of(lambda: [cluster.api.complete(PLAIN)])[-1][0], 0)

    def test_a_source_that_does_not_fit_is_refused(self):
        for flag, reason in (("--energy_source=nvml", "nvml does not count what --backend=cpu computes on"),
                             ("--energy_source=watts", "must be auto, rapl, nvml or off, got 'watts'")):
            with self.assertRaises(StartFailure) as failure:
                with Cluster(drafts=0, worker_flags=(flag,)):
                    pass
            self.assertIn(reason, str(failure.exception))


if __name__ == "__main__":
    unittest.main(verbosity=2)
