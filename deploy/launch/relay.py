#!/usr/bin/env python3
"""A link with delay and loss, since not every kernel has tc's netem. It makes two interfaces, eth0 in one namespace and a
port in another, and passes packets between them, each `delay` seconds after it came; some are lost. Started by network.py;
ends with its standard input.

  relay.py NAMESPACE_OF_THE_PORT NAMESPACE_OF_ETH0 PORT      prints "ready"; then reads lines "DELAY_S LOSS"
"""
import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000
CLONE_NEWNET = 0x40000000
LONGEST_QUEUE = 4096  # packets on their way in one direction; as in a switch, what is beyond is lost
LARGEST_PACKET = 65536


def make_interface(name):
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(interface, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return interface


class Settings:
    """The lines "DELAY_S LOSS" of a pipe. Of several that have come, the last counts."""

    def __init__(self, pipe):
        self.pipe, self.rest = pipe, b""
        self.delay_s, self.loss = 0.0, 0.0

    def read(self):
        """Takes in what has come. False when the pipe has ended."""
        piece = os.read(self.pipe, 4096)
        *lines, self.rest = (self.rest + piece).split(b"\n")
        if lines:
            self.delay_s, self.loss = map(float, lines[-1].split())
        return bool(piece)


class Direction:
    def __init__(self, source, target):
        self.source, self.target = source, target
        self.queue = collections.deque()  # (when it leaves, packet)

    def take(self, delay_s, loss, rng):
        """Takes in what has come."""
        now = time.monotonic()
        for _ in range(64):
            try:
                packet = os.read(self.source, LARGEST_PACKET)
            except BlockingIOError:
                return
            if len(self.queue) < LONGEST_QUEUE and not (loss and rng.random() < loss):
                self.queue.append((now + delay_s, packet))

    def give(self, now):
        """Sends what is due. Returns when the next packet is, or None."""
        while self.queue and self.queue[0][0] <= now:
            try:
                os.write(self.target, self.queue.popleft()[1])
            except (BlockingIOError, OSError):  # the interface is down, or its queue is full: the packet is lost
                pass
        return self.queue[0][0] if self.queue else None


def main():
    switch, host, port = sys.argv[1:]
    with open(f"/var/run/netns/{switch}", "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            sys.exit(f"relay: setns: {os.strerror(ctypes.get_errno())}")
    outer, inner = make_interface(port), make_interface(port + "h")
    subprocess.run(["ip", "link", "set", port + "h", "netns", host, "name", "eth0"], check=True)
    print("ready", flush=True)
    directions = (Direction(outer, inner), Direction(inner, outer))
    settings, rng = Settings(sys.stdin.fileno()), random.Random(1)
    while True:
        now = time.monotonic()
        due = [when for when in (direction.give(now) for direction in directions) if when is not None]
        wait = max(0.0, min(due) - now) if due else None
        readable = select.select([outer, inner, settings.pipe], [], [], wait)[0]
        if settings.pipe in readable and not settings.read():
            return
        for direction in directions:
            if direction.source in readable:
                direction.take(settings.delay_s, settings.loss, rng)


if __name__ == "__main__":
    main()
