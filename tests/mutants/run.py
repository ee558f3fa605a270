#!/usr/bin/env python3
"""Plants bugs in a copy of the tree, one at a time, and runs the test that must catch each bug. The test must fail, crash or
hang. The list is bugs/*.toml; README.md says how to add to it. The tree itself is never changed.

First, all these tests run without a bug and must pass. Exit status 1 if a bug survives its test or does not build, or if its
old text does not occur exactly once where it is looked for.
"""
import argparse
import contextlib
import dataclasses
import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import bug_list

ROOT = os.path.dirname(os.path.dirname(bug_list.HERE))
# What the tests of a build run with: the threads of simulated kernels in a random order, a race at once the end.
ENVIRONMENT = {
    "release": {},
    "cuda-sim": {"DEV_ORDER": "random", "DEV_SEED": "7"},
    "tsan": {"DEV_ORDER": "random", "DEV_SEED": "7",
             "TSAN_OPTIONS": "suppressions={copy}/tests/sanitizers/races.supp:ignore_noninstrumented_modules=1:halt_on_error=1:"
                             "symbolize=0:exitcode=66"},
}
MOST_MEMORY = 16 << 30       # bytes of address space that a test may use: a bug may allocate without end. The thread sanitizer
                             # reserves more than any machine has, so its tests are not limited
LONGEST_BUILD_S = 3600
LONGEST_CLEAN_TEST_S = 600
PATIENCE = 5                 # a test hangs if, with the bug, it takes longer than this times its usual time, plus LEAST_WAIT_S
LEAST_WAIT_S = 15

# Kinds of outcome.
CAUGHT, SURVIVED, NOT_BUILT, NOT_FOUND = "caught", "SURVIVED", "did not build", "old text not found once"


class Stop(Exception):
    """Ends the program with this message."""


@dataclasses.dataclass
class Outcome:
    kind: str
    how: str = ""

    def __str__(self):
        return f"{self.kind} by {self.how}" if self.kind == CAUGHT else f"{self.kind}{': ' if self.how else ''}{self.how}"


@dataclasses.dataclass
class Ended:
    status: int  # of the process; negative: the signal
    output: str
    seconds: float
    timed_out: bool = False


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def end_group(process):
    """Ends a process and what is left of its group: first with SIGTERM, after which ninja stops its compilers (they are not in
    this group), then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(5)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            pass
    process.wait()


def run(command, cwd, environment, timeout_s, limited=False):
    """Runs a command in a new process group. The whole group has ended when this returns or is interrupted."""
    begin_s = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=limit_memory if limited else None)
        timed_out = False
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end_group(process)
        output.seek(0)
        text = output.read().decode("utf8", "replace")
    return Ended(process.returncode, text, time.monotonic() - begin_s, timed_out)


def tree_files(root):
    """The files that git would commit. Without git, all files except those in build folders."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True)
    if listed.returncode == 0:
        return [name.decode() for name in listed.stdout.split(b"\0") if name and os.path.isfile(os.path.join(root, name.decode()))]
    names = []
    for directory, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", "__pycache__") and not f.startswith(".")]
        names += [os.path.relpath(os.path.join(directory, file), root) for file in files]
    return names


def same_bytes(a, b):
    if not os.path.isfile(b) or os.path.getsize(a) != os.path.getsize(b):
        return False
    with open(a, "rb") as first, open(b, "rb") as second:
        return first.read() == second.read()


def copy_tree(root, copy):
    """Makes `copy` equal to the tree, except for build folders. A file that already has the same bytes keeps its time stamp."""
    names = tree_files(root)
    for name in names:
        source, target = os.path.join(root, name), os.path.join(copy, name)
        if same_bytes(source, target):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)  # has a new time stamp, so it is built again
        shutil.copymode(source, target)
    wanted = set(names)
    for directory, folders, files in os.walk(copy):
        if directory == copy:
            folders[:] = [f for f in folders if f not in ("build", ".git")]
        for file in files:
            path = os.path.join(directory, file)
            if os.path.relpath(path, copy) not in wanted:
                os.remove(path)


class Workshop:
    """A copy of the tree and its build folders, one for each preset."""

    def __init__(self, copy, jobs):
        self.copy = copy
        self.jobs = jobs
        self.files = bug_list.Files(copy)
        # With these, ccache finds objects wherever the copy is.
        self.environment = dict(os.environ, CCACHE_BASEDIR=copy, CCACHE_NOHASHDIR="1", PYTHONDONTWRITEBYTECODE="1")

    def folder(self, build):
        return os.path.join(self.copy, "build", build)

    def configure(self, build):
        # Sources are compiled one at a time, because a planted bug changes one of them.
        ended = run(["cmake", "--preset", build, "-DCOPPICE_UNITY=OFF"], self.copy, self.environment, LONGEST_BUILD_S)
        if ended.status != 0:
            raise Stop(f"cmake --preset {build} failed:\n{ended.output}")

    def build(self, build, targets):
        return run(["cmake", "--build", self.folder(build), "--parallel", str(self.jobs), "--target", *targets], self.copy,
                   self.environment, LONGEST_BUILD_S)

    def test(self, bug, timeout_s):
        if bug.ctest:
            command = ["ctest", "--test-dir", self.folder(bug.build), "--output-on-failure", "--no-tests=error", "-R", f"^{bug.ctest}$"]
        else:
            command = [os.path.join(self.folder(bug.build), "bin", bug.target), f"--gtest_filter={bug.test}"]
        settings = {name: value.format(copy=self.copy) for name, value in ENVIRONMENT[bug.build].items()}
        return run(command, self.copy, {**self.environment, **settings, **bug.environment}, timeout_s, limited=bug.build != "tsan")


def passes(bug, ended):
    """True if the test ran and passed. If the filter selects no test, it has not passed."""
    return ended.status == 0 and not ended.timed_out and (
        bool(bug.ctest) or re.search(r"^\[  PASSED  \] [1-9]", ended.output, re.M) is not None)


def how_caught(bug, ended):
    """Which test caught the bug, and how."""
    if bug.ctest:
        return f"{bug.ctest} ({'hung' if ended.timed_out else 'failed'})"
    failed = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", ended.output, re.M)
    begun = re.findall(r"^\[ RUN      \] (\S+)", ended.output, re.M)
    if failed:
        return f"{failed[0]} (failed)"
    name = begun[-1] if begun else bug.target
    if ended.timed_out:
        return f"{name} (hung)"
    return f"{name} ({'crashed' if ended.status < 0 else f'status {ended.status}'})"


def plant_and_test(workshop, bug, timeout_s):
    try:
        path = os.path.join(workshop.copy, workshop.files.path_of(bug.file))
        with open(path, encoding="utf8") as file:
            original = file.read()
        planted = bug.planted_in(original)
    except bug_list.ListError as error:
        return Outcome(NOT_FOUND, str(error))
    try:
        with open(path, "w", encoding="utf8") as file:
            file.write(planted)
        if bug.target:
            built = workshop.build(bug.build, [bug.target])
            if built.status != 0 or built.timed_out:
                errors = re.findall(r"^.*\berror: (.*)$", built.output, re.M)
                return Outcome(NOT_BUILT, errors[0] if errors else "")
        ended = workshop.test(bug, timeout_s)
    finally:
        with open(path, "w", encoding="utf8") as file:
            file.write(original)
    return Outcome(SURVIVED) if passes(bug, ended) else Outcome(CAUGHT, how_caught(bug, ended))


@contextlib.contextmanager
def workplace(kept):
    """The folder for the copy: `kept`, or a temporary one that is removed at the end. The temporary one has the same name in
    every run, so that ccache can use its objects from earlier runs, even those of files with bugs."""
    stem = os.path.realpath(kept or os.path.join(tempfile.gettempdir(), f"coppice-mutants-{zlib.crc32(ROOT.encode()):08x}"))
    with open(stem + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Stop(f"{stem}: another run is at work there; give this one a --folder of its own") from error
        if not kept:
            shutil.rmtree(stem, ignore_errors=True)  # left by a run that was killed
        os.makedirs(stem, mode=0o700, exist_ok=True)
        try:
            yield stem
        finally:
            if not kept:
                shutil.rmtree(stem, ignore_errors=True)
            os.remove(stem + ".lock")


def minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run_without_bugs(workshop, bugs):
    """Builds all targets and runs all tests without a bug. Returns the seconds that each test takes, by build and name."""
    begin_s = time.monotonic()
    for build in sorted({bug.build for bug in bugs}):
        workshop.configure(build)
        targets = sorted({bug.target for bug in bugs if bug.build == build and bug.target})
        print(f"building {len(targets)} tests without a bug, preset {build}", flush=True)
        built = workshop.build(build, targets) if targets else None
        if built and (built.status != 0 or built.timed_out):
            raise Stop(f"the tree does not build:\n{built.output[-4000:]}")
    print(f"built in {minutes(time.monotonic() - begin_s)} min; running them", flush=True)
    seconds = {}
    for bug in bugs:
        if (bug.build, bug.test_name()) in seconds:
            continue
        ended = workshop.test(bug, LONGEST_CLEAN_TEST_S)
        if not passes(bug, ended):
            raise Stop(f"{bug.test_name()} does not pass without a bug:\n{ended.output[-4000:]}")
        seconds[bug.build, bug.test_name()] = ended.seconds
    print(f"{len(seconds)} tests pass in {sum(seconds.values()):.0f} s", flush=True)
    return seconds


def run_bugs(workshop, bugs, clean_s, keep_going):
    """Plants and tests all bugs, ordered by test and file, so that less must be rebuilt."""
    outcomes = {}
    ordered = sorted(bugs, key=lambda bug: (bug.build, bug.target, bug.file))
    begin_s = time.monotonic()
    for number, bug in enumerate(ordered, 1):
        outcome = plant_and_test(workshop, bug, PATIENCE * clean_s[bug.build, bug.test_name()] + LEAST_WAIT_S)
        outcomes[bug.id] = outcome
        spent_s = time.monotonic() - begin_s
        left_s = spent_s / number * (len(ordered) - number)
        print(f"[{number:3}/{len(ordered)}, {minutes(left_s)} min left] {bug.id}: {outcome}", flush=True)
        if outcome.kind != CAUGHT and not keep_going:
            break
    return outcomes


def print_table(bugs, outcomes):
    rows = [("id", "file", "test", "outcome")]
    rows += [(bug.id, bug.file, bug.test_name(), str(outcomes[bug.id])) for bug in bugs if bug.id in outcomes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print()
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)) + "  " + row[3])


def select(bugs, only, kinds):
    for name in only:
        if not any(name in (bug.id, bug.list) for bug in bugs):
            raise Stop(f"--only {name}: neither a bug nor a list of bugs/")
    return [bug for bug in bugs if (not only or bug.id in only or bug.list in only) and (bug.kind or not kinds)]


def possible_here(bugs):
    """The bugs that can be planted on this machine and caught by their tests; names the others."""
    with open("/proc/cpuinfo", encoding="utf8") as file:
        flags = set(re.search(r"^flags\s*:(.*)$|\Z", file.read(), re.MULTILINE).group(0).split())
    has_cuda = os.path.isfile(os.path.join(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "include/cuda_bf16.h"))
    possible = []
    for bug in bugs:
        if bug.needs and bug.needs not in flags:
            print(f"not planted: {bug.id}: this processor has no {bug.needs}")
        elif bug.target.startswith("cuda_") and not has_cuda:
            print(f"not planted: {bug.id}: the headers of the CUDA toolkit are not installed")
        else:
            possible.append(bug)
    return possible


def work(options, bugs, copy):
    begin_s = time.monotonic()
    if not bugs:
        raise Stop("no bug to plant here")
    copy_tree(ROOT, copy)
    workshop = Workshop(copy, options.jobs)
    clean_s = run_without_bugs(workshop, bugs)
    outcomes = run_bugs(workshop, bugs, clean_s, options.keep_going)
    print_table(bugs, outcomes)
    caught = sum(outcome.kind == CAUGHT for outcome in outcomes.values())
    print(f"\n{caught} of {len(outcomes)} bugs caught, {100 * caught / len(outcomes):.0f} %, "
          f"in {minutes(time.monotonic() - begin_s)} min")
    if len(outcomes) < len(bugs):
        print(f"{len(bugs) - len(outcomes)} were not tried: --keep-going tries them all")
    return 0 if caught == len(bugs) else 1


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="ID|LIST",
                        help="plant this bug, or the bugs of this list; may be repeated")
    parser.add_argument("--kinds", action="store_true", help="plant one bug of each kind that the lists name")
    parser.add_argument("--list", action="store_true", help="print the bugs and end")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="number of parallel compilers (default: all cores)")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first bug that is not caught")
    parser.add_argument("--folder", help="folder for the copy; it is kept, so the next run builds less "
                                         "(default: a temporary folder, removed at the end)")
    return parser.parse_args()


def main():
    options = parse_options()
    for number in (signal.SIGINT, signal.SIGTERM):  # even if the shell has made this process ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    try:
        bugs = select(bug_list.read_bugs(), options.only, options.kinds)
        if options.list:
            for bug in bugs:
                print(f"{bug.id}\n    {bug.file}: {bug.what}\n    {bug.test_name()} [{bug.build}]{f' = {bug.kind}' if bug.kind else ''}")
            print(f"{len(bugs)} bugs")
            return 0
        with workplace(options.folder) as copy:
            return work(options, possible_here(bugs), copy)
    except (Stop, bug_list.ListError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
