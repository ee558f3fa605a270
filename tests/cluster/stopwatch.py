"""Time limits that follow the machine's speed. A stopwatch counts seconds of a machine with a free core for each thread: while more
threads want to run than there are cores, it counts more slowly, by the share of a core that each gets. So a test that has waited 60 s on it
has waited for something that hangs, not for a busy machine. Under sanitizers it counts more slowly, too."""
import os
import threading
import time

SLOWDOWN = float(os.environ.get("COPPICE_SLOWDOWN", 1))  # how much slower sanitizers make the programs under test
SLOWEST = 10  # a second on a stopwatch takes at most so many, times SLOWDOWN
SAMPLE_S = 0.05
CORES = len(os.sched_getaffinity(0))


def share():
    """The share of a core that a thread gets now. The caller's own thread does not count."""
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            running = int(file.read().split()[3].split("/")[0]) - 1
    except (OSError, ValueError, IndexError):
        return 1.0
    return max(1 / SLOWEST, min(1.0, CORES / max(running, 1)))


class Clock(threading.Thread):
    """Adds up the seconds, for all stopwatches of this process."""

    def __init__(self):
        super().__init__(daemon=True, name="stopwatch")
        self.lock, self.counted_s = threading.Lock(), 0.0
        self.read_s, self.share = time.monotonic(), share()
        self.start()

    def run(self):
        while True:
            time.sleep(SAMPLE_S)
            self.now_s()

    def now_s(self):
        with self.lock:
            now_s, last = time.monotonic(), self.share
            self.share = share()
            self.counted_s += (now_s - self.read_s) * (last + self.share) / 2 / SLOWDOWN
            self.read_s = now_s
            return self.counted_s


CLOCK = Clock()


class Stopwatch:
    def __init__(self):
        self.begun_s = CLOCK.now_s()

    def seconds(self):
        return CLOCK.now_s() - self.begun_s


def at_most(seconds):
    """A limit, in seconds of the clock, for calls that take only those: no stopwatch counts so many seconds later."""
    return seconds * SLOWEST * SLOWDOWN


def wait_until(condition, seconds=30, poll_s=0.05):
    """Whether the condition was true within so many seconds on a stopwatch."""
    watch = Stopwatch()
    while not condition():
        if watch.seconds() > seconds:
            return False
        time.sleep(poll_s)
    return True
