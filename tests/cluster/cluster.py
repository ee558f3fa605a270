"""A real cluster for tests. Coordinator, worker ranks and draft nodes are processes, under one mpirun or started separately.
Every process that is launched has its own session. All of them have ended when the `with` block ends, whatever happened."""
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from api_client import ApiClient
from stopwatch import Stopwatch, at_most, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COPPICE_BIN", ROOT / "build/release/bin"))
TARGET = ROOT / "tests/models/stories260k"
DRAFT = ROOT / "tests/models/stories260k-draft"
READY_DEADLINE_S = 60
REASON = re.compile(r"^coppice-[a-z]+: .*", re.MULTILINE)


def free_port():
    """A free port below the range for outgoing connections, so that no connection takes it in the meantime."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def launch_environment():
    """The settings that the launchers give their processes."""
    script = f'. "{ROOT}/deploy/environment.sh" && env -0'
    output = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode()
    return dict(line.split("=", 1) for line in output.split("\0") if "=" in line)


def session_processes(session):
    """[(pid, state letter)] of the processes in a session, zombies included."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        fields = text.rpartition(") ")[2].split()
        if int(fields[3]) == session:
            found.append((int(text.split()[0]), fields[0]))
    return found


def processes_naming(text):
    """[(pid, command line)] of all processes whose command line contains the text, except the caller."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command and int(path.parent.name) != os.getpid():
            found.append((int(path.parent.name), command))
    return found


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_sessions_gone(sessions, seconds):
    """Waits until the sessions are empty, at most so many seconds. Returns the processes that are left, with orphans that
    init has not reaped yet."""
    watch = Stopwatch()
    while left := [process for session in sessions for process in session_processes(session)]:
        if watch.seconds() > seconds:
            break
        time.sleep(0.02)
    return left


def run_launcher(arguments, timeout=at_most(180), environment=None):
    """Runs a launcher script to its end with the programs under test. Returns (pid, exit status, stdout, stderr). The launcher gives up
    after 120 s, and then says why."""
    process = subprocess.Popen([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(environment or os.environ, COPPICE_BIN=str(BIN)))
    output, errors = process.communicate(timeout=timeout)
    return process.pid, process.returncode, output, errors


def folders_left(pid):
    """The folders for session files and shared memory that the launcher with this pid made and that still exist."""
    places = (pathlib.Path("/dev/shm"), pathlib.Path(os.environ.get("TMPDIR", "/tmp")))
    return [folder for place in places for folder in place.glob(f"coppice.{pid}.*")]


class Launched:
    """A process that a test has started. It is the leader of its session and writes its output to a file."""

    def __init__(self, name, arguments, folder, environment):
        self.name, self.arguments = name, arguments
        self.log = pathlib.Path(folder) / f"{name}.log"
        # If the test is killed, its processes end too, even stopped ones. mpirun gets SIGTERM, because it must clean up.
        # The signal comes when the thread ends that has started the process, so only the main thread starts some.
        assert threading.current_thread() is threading.main_thread(), f"{name} is started by a thread that may end before it"
        guard = ["setpriv", "--pdeathsig", "TERM" if arguments[0] == "mpirun" else "KILL"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(guard + [str(a) for a in arguments], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
        self.session = self.process.pid

    def output(self):
        return self.log.read_text(errors="replace")

    def reasons(self):
        return sorted(set(REASON.findall(self.output())))

    def alive(self):
        return self.process.poll() is None

    def left(self):
        """Reaps the leader if it has ended. Returns the processes of the session that still exist."""
        self.process.poll()
        return session_processes(self.session)

    def wait_gone(self, seconds):
        """Waits at most so many seconds. True if no process of the session is left."""
        return wait_until(lambda: not self.left(), seconds, poll_s=0.02)  # left() reaps the leader

    def ranks(self):
        """{rank: pid} of the processes that this mpirun has started."""
        found = {}
        for pid, _ in self.left():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            for entry in environment.split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(entry.split(b"=")[1])] = pid
        return found

    def end(self):
        for pid, state in self.left():
            if state in "Tt":
                send_signal(pid, signal.SIGCONT)
        if self.alive():
            self.process.terminate()
        if not self.wait_gone(3):
            for pid, _ in self.left():
                send_signal(pid, signal.SIGKILL)
            self.wait_gone(3)
        self.process.wait()


class StartFailure(Exception):
    """The cluster ended or hung before it was ready. The message names the process and its reason."""


class Cluster:
    """with Cluster(tp=2, drafts=1) as cluster: cluster.api.complete({...})"""

    def __init__(self, target=TARGET, draft=DRAFT, tp=1, replicas=1, drafts=1, together=False, dtype="f32",
                 coordinator_flags=(), worker_flags=(), draft_flags=(), wait_for_drafts=True, stuck_after=60,
                 environments=None):
        """environments: by the name of a process started apart, variables for it alone."""
        self.target, self.draft = target, draft
        self.tp, self.replicas, self.drafts, self.together, self.dtype = tp, replicas, drafts, together, dtype
        # On a busy machine drafts are late, and a round without its draft is plain. So by default, rounds wait for drafts.
        patience = ("--draft_deadline_min=2", "--draft_deadline_max=4") if wait_for_drafts else ()
        # For the same reason, a slow step must not count as hung. None: the coordinator's default limit.
        limit = () if stuck_after is None else (f"--stuck_after={stuck_after}",)
        self.flags = {"coordinator": (*limit, *coordinator_flags), "worker": (*patience, *worker_flags), "draft": draft_flags}
        self.port = free_port()
        self.api = ApiClient(self.port)
        self.launched = []
        self.environments = environments or {}

    def __enter__(self):
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for process in self.launched:
                print(f"---- {process.name}\n{process.output()[-3000:]}")
        self.stop()

    def start(self):
        self.folder = tempfile.mkdtemp(prefix="coppice.")
        self.shm_folder = tempfile.mkdtemp(prefix="coppice.", dir="/dev/shm")
        self.environment = launch_environment()
        self.environment["OMPI_MCA_orte_tmpdir_base"] = self.folder
        self.environment["OMPI_MCA_btl_vader_backing_directory"] = self.shm_folder
        if self.together:
            self.start_together()
        else:
            self.start_apart()

    def program(self, role, *flags):
        return [BIN / f"coppice-{role}", *flags, *self.flags[role]]

    def start_together(self):
        self.launch("mpirun", [
            "mpirun", "-q", "-np", "1", *self.program("coordinator", f"--listen=127.0.0.1:{self.port}", f"--model={self.target}"),
            ":", "-np", str(self.tp * self.replicas),
            *self.program("worker", f"--model={self.target}", f"--tp={self.tp}", f"--dtype={self.dtype}", "--threads=1"),
            *([":", "-np", str(self.drafts),
               *self.program("draft", f"--model={self.draft}", f"--dtype={self.dtype}", "--threads=1")] if self.drafts else []),
        ])

    def start_apart(self):
        self.control = f"tcp://127.0.0.1:{free_port()}"
        self.launch("coordinator", self.program("coordinator", f"--listen=127.0.0.1:{self.port}",
                                                f"--control_listen={self.control}", f"--model={self.target}"))
        for i in range(self.replicas):
            self.start_replica(f"replica-{i}")
        for i in range(self.drafts):
            self.start_draft(f"draft-{i}")

    def start_replica(self, name):
        # Each mpirun gets its own session folder. Two that start at once would race to create a shared one.
        self.environment["OMPI_MCA_orte_tmpdir_base"] = tempfile.mkdtemp(prefix=f"{name}.", dir=self.folder)
        return self.launch(name, ["mpirun", "-q", "-np", str(self.tp), *self.program(
            "worker", f"--model={self.target}", f"--tp={self.tp}", f"--dtype={self.dtype}", "--threads=1",
            f"--coordinator={self.control}", f"--replica_id={name}")])

    def start_draft(self, name):
        return self.launch(name, self.program("draft", f"--model={self.draft}", f"--dtype={self.dtype}", "--threads=1",
                                              f"--coordinator={self.control}", f"--node_id={name}"))

    def launch(self, name, arguments):
        environment = dict(self.environment, **self.environments.get(name, {}))
        self.launched.append(Launched(name, arguments, self.folder, environment))
        return self.launched[-1]

    def process(self, name):
        return next(p for p in self.launched if p.name == name)

    def wait_ready(self, seconds=READY_DEADLINE_S):
        watch = Stopwatch()
        while not self.ready():
            ended = [p for p in self.launched if not p.alive()]
            if ended:
                raise StartFailure("; ".join(f"{p.name}: {p.reasons() or p.output()[-500:]}" for p in ended))
            if watch.seconds() > seconds:
                raise StartFailure(f"not ready after {seconds} s of a free machine")
            time.sleep(0.05)

    def ready(self):
        try:
            if self.replicas > 0 and self.api.get("/ready")[0] != 200:
                return False
            state = self.api.cluster()
        except OSError:
            return False
        return all(sum(n["state"] == "ready" for n in state[key]) >= wanted
                   for key, wanted in (("replicas", self.replicas), ("draft_nodes", self.drafts)))

    def stop(self):
        for process in self.launched:
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.shm_folder, ignore_errors=True)
