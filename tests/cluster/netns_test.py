#!/usr/bin/env python3
"""A cluster across hosts that are network namespaces, started by cluster.sh from a cluster file through an agent: its
answers are those of one host, also when a host is cut off and comes back, when packets are lost, and when a draft node is 20
ms away; nothing is left behind.

Needs root and /dev/net/tun. CMakeLists.txt adds the test where the machine permits it, else says why not."""
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from api_client import ApiClient, outcome
from cluster import BIN, DRAFT, ROOT, TARGET, Cluster, folders_left, run_launcher
from stopwatch import Stopwatch, at_most, wait_until

sys.path.insert(0, str(ROOT / "deploy/launch"))
from network import Link, Network  # noqa: E402

PROMPTS = ["Once upon a time, there was a queen who had a very long table.", "Lily and Max are friends.", "One day, the sun did not come up."]
DRAFTED = dict(speculative=dict(draft_width=8, draft_depth=4))
DISTRIBUTIONS = [dict(decoding="multinomial", temperature=0), dict(decoding="multinomial", seed=11, temperature=0.9),
        dict(decoding="beam_search", beam_width=4, n=4), dict(decoding="beam_sampling", beam_width=4, n=4, seed=12)]
BODIES = [dict(distribution, prompt=prompt, max_tokens=40, return_token_ids=True, **DRAFTED) for distribution in DISTRIBUTIONS for prompt in PROMPTS]
LONG = [dict(body, max_tokens=100, ignore_eos=True) for body in BODIES[::2]]
# Three hosts. replica-0 has a rank on each of two; replica-1 and a draft node are on the one that is cut off.
# GPUs are named only to see that each process gets its own; the programs compute on the CPU.
WIDE = """
[[replica]]
on = ["a:0", "b:3"]
[[replica]]
on = ["c:0,3"]
[[draft_node]]
on = ["b:0"]
[[draft_node]]
on = ["c"]
"""
FAR_DRAFT = """
[[replica]]
on = ["a", "a"]
[[draft_node]]
on = ["c"]
"""


def plain(bodies):
    return [dict(body, speculative=False) for body in bodies]


def state_of(network):
    """What /cluster says on host a: without keys only that host may ask. OSError when it does not answer."""
    code = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/cluster', timeout={at_most(30)}).read().decode())"
    said = subprocess.run([*shlex.split(network.agent()), "a", shlex.join(["python3", "-c", code])], capture_output=True, text=True)
    if said.returncode != 0:
        raise OSError(said.stderr)
    return json.loads(said.stdout)


class ClusterOfHosts:
    """with ClusterOfHosts(network, WIDE, 2, 2) as cluster: cluster.api.complete({...})"""

    def __init__(self, network, places, replicas, drafts, listen="0.0.0.0"):
        self.network, self.replicas, self.drafts = network, replicas, drafts
        self.folder = tempfile.TemporaryDirectory(prefix="coppice.")
        self.state = os.path.join(self.folder.name, "state")
        self.file = pathlib.Path(self.folder.name, "cluster.toml")
        hosts = "".join(f'[[host]]\nname = "{host}"\naddress = "{network.address(host)}"\ncores = 4\ngpus = [0, 3]\n' for host in "abc")
        self.file.write_text(f"""target = "{TARGET}"
draft = "{DRAFT}"
dtype = "f32"
threads = 1
bin = "{BIN}"
{hosts}
[coordinator]
host = "a"
listen = "{listen}:8000"
[flags]
coordinator = ["--stuck_after={int(at_most(30))}"]
worker = ["--draft_deadline_min=2", "--draft_deadline_max=4"]
{places}""", encoding="utf8")
        self.api = ApiClient(8000, host=network.address("a"))

    def script(self, *arguments):
        """(exit status, stdout, stderr) of cluster.sh"""
        return run_launcher([ROOT / "deploy/cluster.sh", *arguments, "--state", self.state])[1:]

    def __enter__(self):
        status, output, errors = self.script("up", "--cluster", self.file, "--agent", self.network.agent(), "--deadline", str(int(at_most(80))))
        if status != 0:
            raise AssertionError(output + errors)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for log in pathlib.Path(self.state).glob("*/*.log"):
                print(f"---- {log}\n{log.read_text(errors='replace')[-3000:]}")
        if os.path.exists(self.state):
            self.script("down")
        self.folder.cleanup()

    def states(self):
        state = state_of(self.network)
        return {node["id"]: node["state"] for key in ("replicas", "draft_nodes") for node in state[key]}

    def all_ready(self):
        states = self.states()
        return len(states) == self.replicas + self.drafts and set(states.values()) == {"ready"}


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = cls.enterClassContext(Network(["a", "b", "c", "client"], relayed=("c",)))
        cls.network.enter("client")
        with Cluster(tp=2, drafts=0) as one_host:
            cls.wanted = [outcome(answer) for answer in one_host.api.complete_all(plain(BODIES))]
            cls.wanted_long = [outcome(answer) for answer in one_host.api.complete_all(plain(LONG))]

    def setUp(self):
        self.network.set_link("c", Link())

    def check_answers(self, cluster):
        for body, answer, wanted in zip(BODIES, cluster.api.complete_all(BODIES), self.wanted):
            self.assertEqual(outcome(answer), wanted, body)

    def test_answers_processes_and_end(self):
        with ClusterOfHosts(self.network, WIDE, 2, 2) as cluster:
            self.assertTrue(cluster.all_ready())
            self.check_answers(cluster)
            replicas = {r["id"]: r for r in state_of(self.network)["replicas"]}
            self.assertEqual([rank["node"] for rank in replicas["replica-0"]["ranks"]], ["a", "b"])
            self.assertEqual([rank["node"] for rank in replicas["replica-1"]["ranks"]], ["c", "c"])
            status, output, errors = cluster.script("status")
            self.assertEqual((status, errors), (0, ""))
            for line in ("a coordinator: running", "a replica-0: running", "c replica-1: running", "b draft-0: running",
                         "c draft-1: running", "a replica-0 rank 0: running", "b replica-0 rank 1: running",
                         "c replica-1 rank 0: running", "c replica-1 rank 1: running"):
                self.assertIn("\n" + line, "\n" + output)
            gpus = {name: self.variable(pid, "CUDA_VISIBLE_DEVICES") for name, pid in re.findall(r"^(.*): running, pid (\d+)", output, re.M)}
            self.assertEqual({name: gpus[name] for name in gpus if "rank" in name or "draft" in name}, {
                "a replica-0 rank 0": "0", "b replica-0 rank 1": "3", "c replica-1 rank 0": "0,3", "c replica-1 rank 1": "0,3",
                "b draft-0": "0", "c draft-1": None})
            self.check_loss(cluster)
            self.check_cut(cluster)
            self.assertEqual(cluster.script("down"), (0, "cluster: down\n", ""))
            self.check_nothing_left(cluster)

    @staticmethod
    def variable(pid, name):
        """A variable of a process, or None."""
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry).get(name)

    def check_nothing_left(self, cluster):
        self.assertFalse(os.path.exists(cluster.state))
        for host in self.network.hosts[:3]:
            self.assertEqual(self.processes_of(host), [], f"processes on host {host}")

    def check_loss(self, cluster):
        self.network.set_link("c", Link(loss_percent=1))
        self.check_answers(cluster)
        self.network.set_link("c", Link())

    def check_cut(self, cluster):
        """Requests of a host that is cut off go on elsewhere with the same text. When it is back, it serves again."""
        answers, seen_lost = [], threading.Event()

        def ask(i):  # until the loss is seen
            while not seen_lost.is_set():
                answers.extend((i, answer) for answer in cluster.api.complete_all([LONG[i]]))

        # None waits for another, so requests run on the host whenever it is cut off.
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(LONG)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            self.assertTrue(wait_until(lambda: sum(r["running"] for r in state_of(self.network)["replicas"] if r["id"] == "replica-1") > 0))
            self.network.cut("c")
            self.assertTrue(wait_until(lambda: cluster.states()["replica-1"] == cluster.states()["draft-1"] == "lost"), cluster.states())
            seen_lost.set()
            for thread in threads:
                thread.join()
            self.assertGreaterEqual(len(answers), len(threads))
            for i, answer in answers:
                self.assertIsInstance(answer, dict, answer)  # else the error
                self.assertEqual(outcome(answer), self.wanted_long[i])
            self.assertRegex(cluster.api.get("/metrics")[1], r"(?m)^coppice_failovers_total\{[^}]*\} [1-9]")
            self.check_answers(cluster)
            status, output, errors = cluster.script("status")
            self.assertEqual(status, 0, errors)  # replica-0 serves. The agent does not use the network, so c answers it
            self.assertIn("replica replica-1: lost", output)
        finally:
            seen_lost.set()
            self.network.restore("c")
            for thread in threads:
                thread.join()
        self.assertTrue(wait_until(cluster.all_ready, 60), cluster.states())
        self.check_answers(cluster)

    def test_of_two_settings_of_a_link_the_second_counts(self):
        relay = self.network.relays["c"].stdin
        relay.write("0 0\n0.02 0\n")  # at once, as two calls of set_link may reach the relay
        relay.flush()
        asked_s = time.monotonic()
        with self.assertRaises(ConnectionRefusedError):  # no one listens there: the refusal comes after one round trip
            socket.create_connection((self.network.address("c"), 9), timeout=at_most(30))
        self.assertGreater(time.monotonic() - asked_s, 0.04)

    def test_draft_node_behind_20_ms(self):
        self.network.set_link("c", Link(delay_ms=20))
        # The API has one address of its host alone, over which cluster.sh asks it, as an admin without a key.
        with ClusterOfHosts(self.network, FAR_DRAFT, 1, 1, listen=self.network.address("a")) as cluster:
            self.assertIn("draft node draft-0: ready", cluster.script("status")[1])
            self.check_answers(cluster)
            answer = cluster.api.complete(BODIES[0])
            spec = answer["usage"]["speculation"]
            self.assertGreater(spec["accepted_nodes"], 0)
            self.assertGreater(spec["block_efficiency"], 1)
            self.assertGreater(answer["timings"]["draft_wait_ms"] / spec["rounds"], 20)  # it was the link's delay that rounds waited for

    def test_replica_over_two_hosts_ends_when_one_is_lost(self):
        places = '[[replica]]\non = ["a", "c"]\n[[draft_node]]\non = ["b"]\n'
        with ClusterOfHosts(self.network, places, 1, 1) as cluster:
            cluster.api.complete(BODIES[0])
            watch = Stopwatch()
            self.network.cut("c")
            try:
                status, answer = cluster.api.post(dict(BODIES[0], timeout=at_most(50)))
                self.assertEqual((status, answer["error"]["code"]), (503, "replica_lost"))
                self.assertLess(watch.seconds(), 45)
                self.assertEqual(cluster.states(), {"replica-0": "lost", "draft-0": "ready"})
                self.assertTrue(wait_until(lambda: "a replica-0: ended" in cluster.script("status")[1]))
                self.assertNotIn("replica-0 rank", cluster.script("status")[1])  # on neither host
                log = pathlib.Path(cluster.state, "a/replica-0.log").read_text(errors="replace")
                self.assertRegex(log, "has lost communication with a remote daemon|is lost: it beats but has made no progress")
            finally:
                self.network.restore("c")
            self.assertEqual(cluster.script("down")[0], 0)
            self.check_nothing_left(cluster)

    def test_up_that_is_interrupted_leaves_nothing(self):
        cluster = ClusterOfHosts(self.network, WIDE, 2, 2)
        with cluster.folder:
            up = subprocess.Popen([ROOT / "deploy/cluster.sh", "up", "--cluster", cluster.file, "--agent", self.network.agent(),
                                   "--state", cluster.state], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            self.assertTrue(wait_until(lambda: self.processes_of("a") and self.processes_of("c")))
            os.killpg(up.pid, signal.SIGINT)
            self.assertEqual(up.wait(timeout=at_most(30)), 130)
            self.check_nothing_left(cluster)
            self.assertEqual(folders_left(up.pid), [])

    def test_measurement_prints_its_lines_and_leaves_nothing(self):
        script = [ROOT / "deploy/netns_cluster.sh", "--bin", BIN, "--requests", "4", "--tokens", "16"]
        pid, status, output, errors = run_launcher([*script, "--replicas", "1", "--rates", "0,100", "--delays", "0,30"])
        self.assertEqual((status, errors), (0, ""))
        head, *rows = [line.split() for line in output.splitlines()]
        rows = [dict(zip(head, map(float, row))) for row in rows]
        self.assertEqual([(row["rate_mbit"], row["delay_ms"]) for row in rows], [(0, 0), (0, 30), (100, 0), (100, 30)])
        for row in rows:
            self.assertGreater(min(row["requests_per_s"], row["tokens_per_s"], row["rounds_per_s"]), 0)
        self.assertGreater(min(rows[0]["accepted_per_round"], rows[0]["bytes_per_accepted"]), 0)
        self.assertNotIn(f"-{pid}-", subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout)
        run = subprocess.Popen([*script, "--replicas", "1"], stdout=subprocess.PIPE, text=True, start_new_session=True)
        front = f"coppice-{run.pid}-front"
        launches = []
        self.assertTrue(wait_until(lambda: launches.extend(filter(None, map(self.launch_of, self.processes_in(front)))) or launches))
        os.killpg(run.pid, signal.SIGINT)
        self.assertEqual(run.wait(timeout=at_most(60)), 130)
        run.stdout.close()
        self.assertEqual(folders_left(launches[0]), [])
        self.assertNotIn(f"-{run.pid}-", subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout)

    def test_steps_of_a_slurm_job(self):
        """deploy/slurm/cluster.sh with a stand-in for srun that starts a step's command on host a. One rank for each
        replica, so without PMIx."""
        with tempfile.TemporaryDirectory(prefix="coppice.") as folder:
            srun = pathlib.Path(folder, "srun")
            srun.write_text('#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
            srun.chmod(0o755)
            address = self.network.address("a")
            line = (f"cd {ROOT} && PATH={folder}:$PATH SLURM_JOB_ID=1 SLURM_SUBMIT_DIR={ROOT} SLURMD_NODENAME={address} exec "
                    f"deploy/slurm/cluster.sh --target {TARGET} --draft {DRAFT} --replicas 2 --drafts 1 --bin {BIN} --dtype f32")
            with open(f"{folder}/log", "wb") as log:
                job = subprocess.Popen([*shlex.split(self.network.agent()), "a", line], stdout=log, stderr=log, start_new_session=True)
            try:
                api = ApiClient(8000, host=address)
                self.assertTrue(wait_until(lambda: self.ready_nodes() == {"replica-0", "replica-1", "draft-0"}, 60),
                                pathlib.Path(folder, "log").read_text(errors="replace"))
                answer = api.complete(BODIES[0])
                self.assertGreater(answer["usage"]["speculation"]["accepted_nodes"], 0)
            finally:
                job.terminate()
                job.wait(timeout=at_most(30))
            self.assertEqual(self.processes_of("a"), [])
            self.assertNotIn("no cluster key", pathlib.Path(folder, "log").read_text(errors="replace"))

    def ready_nodes(self):
        try:
            state = state_of(self.network)
        except OSError:
            return set()
        return {node["id"] for key in ("replicas", "draft_nodes") for node in state[key] if node["state"] == "ready"}

    @staticmethod
    def processes_in(namespace):
        return subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout.split()

    def processes_of(self, host):
        return self.processes_in(self.network.namespace(host))

    def launch_of(self, pid):
        """The id of the cluster.sh that started the process: it begins the names of the folders. None: none, or the process has ended."""
        try:
            mark = self.variable(pid, "COPPICE_LAUNCH")
        except OSError:
            return None
        return mark and mark.split(".")[0]

    def test_a_host_that_cannot_be_reached_fails_up_and_leaves_nothing(self):
        cluster = ClusterOfHosts(self.network, WIDE, 2, 2)
        cluster.file.write_text(re.sub(r'"c([":])', r'"absent\1', cluster.file.read_text()))
        status, _, errors = cluster.script("up", "--cluster", cluster.file, "--agent", self.network.agent())
        self.assertEqual(status, 1)
        self.assertRegex(errors, r'cluster: absent: Cannot open network namespace "coppice-\d+-absent"')
        self.assertEqual(cluster.script("down")[0], 1)  # absent may have processes, for all that it knows
        for host in "ab":
            self.assertEqual(self.processes_of(host), [])
        cluster.folder.cleanup()


class InterfaceOfNccl(unittest.TestCase):
    """with_address.sh on a host whose first interface reaches nobody."""

    def setUp(self):
        self.network = self.enterContext(Network(["a", "b"]))
        for line in ("ip link add br-1 type bridge", "ip address add 172.17.0.1/16 dev br-1", "ip link set br-1 up"):
            self.run_on_a(line)

    def run_on_a(self, line):
        said = subprocess.run([*shlex.split(self.network.agent()), "a", line], capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stderr), (0, ""), line)
        return said.stdout

    def told(self, towards, before=""):
        return self.run_on_a(f"""{before} {ROOT}/deploy/with_address.sh {towards} sh -c 'echo "$NCCL_SOCKET_IFNAME" %ADDRESS%'""").split()

    def test_is_that_of_the_address(self):
        own = self.network.address("a")
        for towards in (own, self.network.address("b")):
            self.assertEqual(self.told(towards), ["=eth0", own])
        self.assertEqual(self.told("172.17.0.9"), ["=br-1", "172.17.0.1"])
        self.assertEqual(self.told("127.0.0.1"), ["127.0.0.1"])

    def test_is_what_the_user_has_set(self):
        own = self.network.address("a")
        self.assertEqual(self.told(own, "NCCL_SOCKET_IFNAME=ib0"), ["ib0", own])
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("NCCL_SOCKET_IFNAME=ib0\n")
            conf.flush()
            self.assertEqual(self.told(own, f"NCCL_CONF_FILE={conf.name}"), [own])  # NCCL reads it


if __name__ == "__main__":
    unittest.main(verbosity=2)
