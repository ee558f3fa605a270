"""Hosts as network namespaces of one machine: each has an interface eth0 on a switch, a bridge in a namespace of its own.
Nothing is added to the machine's own network. A link may be cut, and limited in rate, delay and loss. Needs root, `ip` and
`tc`, and /dev/net/tun for links with delay or loss.

with Network(["a", "b"]) as network: network.run("a", [...])
"""
import ctypes
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys

AGENT = pathlib.Path(__file__).resolve().parents[1] / "netns_agent.sh"
RELAY = pathlib.Path(__file__).resolve().parent / "relay.py"
NAME = "coppice-"  # of all namespaces, followed by the id of the process that made them
CLONE_NEWNET = 0x40000000


class NetworkError(Exception):
    """The machine cannot have such a network. The message says why."""


@dataclasses.dataclass
class Link:
    """One direction is like the other. rate_mbit 0: as fast as it can."""
    rate_mbit: float = 0
    delay_ms: float = 0
    loss_percent: float = 0

    def __post_init__(self):
        if self.rate_mbit < 0 or self.delay_ms < 0 or not 0 <= self.loss_percent < 100:
            raise NetworkError(f"no such link: {self}")


def ip(*arguments, tool="ip"):
    result = subprocess.run([tool, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        raise NetworkError(f"{tool} {' '.join(arguments)}: {result.stderr.strip() or result.returncode}")
    return result.stdout


def why_not():
    """Why this machine cannot have such networks, or None if it can."""
    try:
        if os.geteuid() != 0:
            return "not root"
        with Network(["try"], relayed=("try",)):
            return None
    except (NetworkError, OSError) as error:
        return str(error)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def clean_up():
    """Removes the namespaces of processes that are gone without having done it."""
    for line in ip("netns", "list").splitlines():
        match = re.match(rf"{NAME}(\d+)-", line)
        if match and not alive(int(match[1])):
            remove(line.split()[0])


def remove(namespace):
    """Removes a namespace with what still runs in it, but for this process."""
    for pid in subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout.split():
        try:
            if int(pid) != os.getpid():
                os.kill(int(pid), 9)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True)


class Network:
    """relayed: the hosts whose links pass a program that delays and loses packets (relay.py). The others are pairs of virtual
    interfaces, which are faster; they can be limited in rate, and cut."""

    def __init__(self, hosts, relayed=()):
        self.hosts, self.relayed = list(hosts), tuple(relayed)
        self.prefix = f"{NAME}{os.getpid()}"
        self.relays = {}

    def __enter__(self):
        try:
            clean_up()
            self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def namespace(self, host):
        return f"{self.prefix}-{host}"

    def address(self, host):
        return f"10.77.0.{self.hosts.index(host) + 1}"

    def agent(self):
        return f"{AGENT} {self.prefix}"

    def make(self):
        switch = self.namespace("switch")
        ip("netns", "add", switch)
        ip("-n", switch, "link", "add", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for i, host in enumerate(self.hosts):
            name = self.namespace(host)
            ip("netns", "add", name)
            if host in self.relayed:
                self.relays[host] = self.start_relay(switch, name, f"port{i}")
            else:
                ip("-n", switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", switch, "link", "set", f"port{i}", "master", "switch", "up")
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def start_relay(self, switch, name, port):
        relay = subprocess.Popen([sys.executable, "-B", str(RELAY), switch, name, port], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True, start_new_session=True)
        if relay.stdout.readline() != "ready\n":
            raise NetworkError("the relay of a link did not start (its message is above); is there /dev/net/tun?")
        return relay

    def set_link(self, host, link):
        """Both directions of the host's link. Delay and loss need a relayed host."""
        if host in self.relays:
            self.relays[host].stdin.write(f"{link.delay_ms / 1000} {link.loss_percent / 100}\n")
            self.relays[host].stdin.flush()
        elif link.delay_ms or link.loss_percent:
            raise NetworkError(f"the link of {host} has no relay, so neither delay nor loss")
        port = f"port{self.hosts.index(host)}"
        for namespace, device in ((self.namespace(host), "eth0"), (self.namespace("switch"), port)):
            if link.rate_mbit:
                # The bucket takes what comes in 4 ms, and at least the largest packet that a virtual interface is given.
                burst = max(70_000, int(link.rate_mbit * 1e6 / 8 * 0.004))
                ip("-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{link.rate_mbit}mbit", "burst", str(burst),
                   "latency", "100ms", tool="tc")
            else:
                subprocess.run(["tc", "-n", namespace, "qdisc", "del", "dev", device, "root"], capture_output=True)

    def cut(self, host):
        """As if its cable were pulled at the switch: the host itself sees nothing of it."""
        ip("-n", self.namespace("switch"), "link", "set", f"port{self.hosts.index(host)}", "nomaster")

    def restore(self, host):
        ip("-n", self.namespace("switch"), "link", "set", f"port{self.hosts.index(host)}", "master", "switch")

    def bytes_of(self, host):
        """Bytes that the host's interface has received and sent, with their headers."""
        text = self.run(host, "cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth0/statistics/tx_bytes").stdout
        return sum(map(int, text.split()))

    def run(self, host, command, **options):
        """Runs a command (words, or a line for a shell) on the host. Its variables are those of the agent."""
        line = command if isinstance(command, str) else shlex.join(map(str, command))
        return subprocess.run([*shlex.split(self.agent()), host, line], capture_output=True, text=True, **options)

    def enter(self, host):
        """Moves the calling thread, and the threads and processes that it starts from now on, into the network of the host."""
        with open(f"/var/run/netns/{self.namespace(host)}", "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
                raise NetworkError(f"setns: {os.strerror(ctypes.get_errno())}")

    def close(self):
        for relay in self.relays.values():
            relay.stdin.close()
            try:
                relay.wait(timeout=5)
            except subprocess.TimeoutExpired:
                relay.kill()
                relay.wait()
            relay.stdout.close()
        self.relays = {}
        for host in [*self.hosts, "switch"]:
            remove(self.namespace(host))
