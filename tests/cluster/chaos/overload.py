#!/usr/bin/env python3
"""Attacks on a cluster by one client while another, the victim, sends small requests. Prints for each attack how long the victim's requests
and /health took, and how much the coordinator's memory grew. Exits with 1 if an attack delays one of them by more than the limit, the
victim is refused, memory grows beyond its limit, or the coordinator ends."""
import argparse
import collections
import json
import pathlib
import resource
import signal
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from attacks import Attacker  # noqa: E402
from cluster import Cluster  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402
from tls_test import TlsCluster, make_certificate  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
VICTIM, ATTACKER = "victim-key-5d0f6a", "attacker-key-93c2e8"
SMALL = dict(prompt="Once upon a time, there was a", max_tokens=2, temperature=0)
FORMATTED = dict(SMALL, structured_outputs={"json": {"type": "object", "properties": {"a": {"type": "integer"}}}})
KV_BYTES = 64 << 20  # two and a half requests of the attack `huge`
LOG_BYTES = 1 << 20  # a log that grows more is flooded
DESCRIPTORS = 128

Attack = collections.namedtuple("Attack", "name cluster victim", defaults=("plain", SMALL))
ATTACKS = [
    Attack("trailer"), Attack("trailer", "tls"), Attack("wide"), Attack("many"), Attack("huge"), Attack("bodies"),
    Attack("texts", victim=FORMATTED), Attack("answers"), Attack("slow"),
    Attack("descriptors", "few descriptors", victim=None),  # there, /health must answer
]


class FewDescriptors(Cluster):
    """Its coordinator has few descriptors."""

    def program(self, role, *flags):
        program = super().program(role, *flags)
        return ["bash", "-c", f'ulimit -n {DESCRIPTORS}; exec "$0" "$@"', *program] if role == "coordinator" else program


class Asking(threading.Thread):
    """Asks again and again until it is told to stop. Keeps the seconds that each answer took, and problems."""

    def __init__(self, ask):
        super().__init__(daemon=True)
        self.ask, self.took, self.problems, self.ends = ask, [], [], threading.Event()
        self.asked_at = None
        self.start()

    def run(self):
        while not self.ends.is_set():
            self.asked_at = begun = time.monotonic()
            try:
                status, answer = self.ask()
                if status != 200:
                    self.problems.append(f"status {status}: {answer}")
            except (OSError, ValueError) as error:
                self.problems.append(repr(error))
            self.took.append(time.monotonic() - begun)
            self.asked_at = None
            self.ends.wait(0.05)

    def waits(self, at_most_s):
        """Whether it waits for an answer, and has not waited so long yet."""
        asked_at = self.asked_at
        return asked_at is not None and time.monotonic() - asked_at < at_most_s


class Server:
    """A cluster with a key for the victim and one for the attacker."""

    def __init__(self, kind, folder):
        keys = pathlib.Path(folder, "keys")
        keys.write_text(f"{VICTIM} victim\n{ATTACKER} attacker\n")
        self.tls = kind == "tls"
        options = dict(drafts=1, wait_for_drafts=False, worker_flags=(f"--kv_bytes={KV_BYTES}",))
        if self.tls:
            self.cluster = TlsCluster(*make_certificate(folder, "server"), **options)
        else:
            self.cluster = (FewDescriptors if kind == "few descriptors" else Cluster)(**options)
        self.cluster.flags["coordinator"] += (f"--api_keys_file={keys}",)
        self.cluster.__enter__()
        self.coordinator = self.cluster.process("coordinator")

    def ask_victim(self, body):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {VICTIM}"}
        return self.cluster.api.post_raw(json.dumps(body).encode(), headers=headers)

    def resident_bytes(self):
        try:
            for line in pathlib.Path(f"/proc/{self.coordinator.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) << 10
        except OSError:
            pass
        return 0

    def observe(self, seconds, attack, limit_s, end_attack=lambda: None):
        """(victim, /health, largest resident bytes) over so many seconds. The attack ends when both have the answers that they wait for,
        or have waited longer than the limit."""
        victim = Asking(lambda: self.ask_victim(attack.victim) if attack.victim else self.cluster.api.get("/health"))
        health = Asking(lambda: self.cluster.api.get("/health"))
        ends_at, most = time.monotonic() + seconds, 0
        while self.coordinator.alive() and time.monotonic() < ends_at:
            most = max(most, self.resident_bytes())
            time.sleep(0.05)
        for asking in (victim, health):
            asking.ends.set()
        while self.coordinator.alive() and (victim.waits(limit_s) or health.waits(limit_s)):
            time.sleep(0.05)
        end_attack()
        victim.join()
        health.join()
        return victim, health, most

    def close(self):
        self.cluster.stop()


class Verdicts:
    def __init__(self, options):
        self.options, self.bad = options, []

    def attack(self, server, attack):
        """Attacks, and tells what the victim noticed."""
        options, cluster = self.options, server.cluster
        watch, begun = Stopwatch(), time.monotonic()
        alone, _, before = server.observe(options.alone, attack, options.limit)
        # On a machine that others keep busy all takes longer, so the limit is larger.
        limit_s = options.limit * (time.monotonic() - begun) / watch.seconds()
        log_before = len(server.coordinator.output())
        attacker = cluster.launch(f"attack-{attack.name}", [sys.executable, "-B", HERE / "attacks.py", attack.name, str(cluster.port), ATTACKER,
                                                            *(["--tls"] if server.tls else [])])
        ended = []

        def end_attack():
            ended.extend([] if attacker.alive() else [f"the attack has ended by itself: {attacker.output()[-500:]}"])
            attacker.end()
            cluster.launched.remove(attacker)
        victim, health, most = server.observe(options.seconds, attack, limit_s, end_attack)
        log_grown = len(server.coordinator.output()) - log_before
        problems = ended
        if not server.coordinator.alive():
            problems.append(f"the coordinator has ended with {server.coordinator.process.returncode}: {server.coordinator.output()[-300:]}")
        for who, asked in (("the victim", victim), ("/health", health)):
            if max(asked.took) > limit_s:
                problems.append(f"{who} is delayed by {max(asked.took):.1f} s")
            if asked.problems:
                problems.append(f"{who} is refused {len(asked.problems)} times: {asked.problems[0][:200]}")
        if most - before > options.memory << 20:
            problems.append(f"memory grows by {(most - before) >> 20} MiB")
        if attack.victim is None and log_grown > LOG_BYTES:  # otherwise it has a line for each request of the attack
            problems.append(f"the log grows by {log_grown >> 10} KiB")
        name = attack.name if attack.cluster == "plain" else f"{attack.name} ({attack.cluster})"
        print(f"{name:30} alone {statistics.median(alone.took):6.3f} s, attacked {statistics.median(victim.took):6.3f} s, largest "
              f"{max(victim.took):6.2f} s, /health {max(health.took):6.2f} s of {limit_s:.1f} s; {len(victim.took)} requests; "
              f"memory {before >> 20} to {most >> 20} MiB" + "".join(f"; {p}" for p in problems), flush=True)
        if problems:
            self.bad.append(name)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(dict.fromkeys(a.name for a in ATTACKS))}; all of them if none is named")
    parser.add_argument("--seconds", type=float, default=15, help="of each attack")
    parser.add_argument("--alone", type=float, default=3, help="seconds without attack before it")
    parser.add_argument("--limit", type=float, default=2, help="seconds that a small request may take, on a free machine")
    parser.add_argument("--memory", type=int, default=256, help="MiB by which the coordinator may grow")
    options = parser.parse_args()
    unknown = [name for name in options.attacks if not hasattr(Attacker, name)]
    if unknown:
        parser.error(f"no such attack: {', '.join(unknown)}")
    return options


def main():
    options = arguments()
    chosen = [a for a in ATTACKS if not options.attacks or a.name in options.attacks]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    verdicts, server, kind = Verdicts(options), None, None
    with tempfile.TemporaryDirectory() as folder:
        try:
            for attack in chosen:
                if server is None or kind != attack.cluster or not server.coordinator.alive():
                    if server is not None:
                        server.close()
                    server, kind = Server(attack.cluster, folder), attack.cluster
                verdicts.attack(server, attack)
        finally:
            if server is not None:
                server.close()
    print(f"attacks {len(chosen)}, withstood {len(chosen) - len(verdicts.bad)}" + (f"; not: {', '.join(verdicts.bad)}" if verdicts.bad else ""))
    return bool(verdicts.bad)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it cleans up
    sys.exit(main())
