#!/usr/bin/env python3
"""The cluster key of clusters that Slurm and Kubernetes start: every process has it, a node with another key is refused, and no
command line, variable or log shows it. Without them: stand-ins for srun and for what a kubelet does with a pod."""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import unittest

from api_client import ApiClient
from cluster import (BIN, DRAFT, ROOT, TARGET, Launched, free_port, launch_environment, run_launcher, send_signal, session_processes,
                     wait_sessions_gone)
from stopwatch import at_most, wait_until

DEPLOY = ROOT / "deploy"
BODY = dict(prompt="Once upon a time, there was a", max_tokens=40, speculative=dict(draft_width=8, draft_depth=4))
KEY = re.compile(r"coppice-cluster-key-1 ([0-9a-f]{64})\n")
READY_S, END_S = 60, 20
# Starts each task of a step here and gives each the whole standard input, as srun does. When it is ended it kills its tasks. Writes
# down how it was called. Task 1 of the step `key` uses the folder FOLDER_OF_TASK_1, if that is set: a node unlike the first.
SRUN = '''#!/usr/bin/env python3
import os, signal, subprocess, sys
with open("calls", "a") as calls:
    print(*sys.argv, file=calls)
words, options = sys.argv[1:], {}
while words[0].startswith("--"):
    name, _, value = words.pop(0)[2:].partition("=")
    options[name] = value
log = open(options["output"].replace("%j", os.environ["SLURM_JOB_ID"]), "ab") if "output" in options else None
tasks, starting, ended = [], True, False

def end(*_):
    global ended
    ended = True
    if starting:  # a task that has just begun may not be in the list
        return
    for task in tasks:
        task.kill()
    os._exit(143)

signal.signal(signal.SIGTERM, end)
for i in range(int(options["ntasks"])):
    other = os.environ.get("FOLDER_OF_TASK_1") if options["job-name"] == "key" and i == 1 else None
    own = words if other is None else [words[0], other + "/cluster_key"]
    tasks.append(subprocess.Popen(own, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=False))
starting = False
if ended:
    end()
while data := os.read(0, 4096):
    for task in tasks:
        try:
            os.write(task.stdin.fileno(), data)
        except BrokenPipeError:
            end()
for task in tasks:
    task.stdin.close()
sys.exit(max(task.wait() & 255 for task in tasks))
'''


def flag_of(pid):
    """The value of --cluster_key_file of a process, or None."""
    found = re.search(rb"\0--cluster_key_file=([^\0]*)", pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    return found and found[1].decode()


def programs(sessions):
    """{pid: name} of Coppice's programs in the sessions."""
    found = {}
    for session in sessions:
        for pid, _ in session_processes(session):
            try:
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                continue
            if name.startswith("coppice-"):
                found[pid] = name
    return found


class KeyTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="coppice.")))
        self.port, self.control = free_port(), free_port()
        self.api = ApiClient(self.port)

    def ready_nodes(self):
        try:
            state = self.api.cluster()
        except OSError:
            return set()
        return {node["id"].split("-")[0] + "-" + node["id"].split("-")[-1]
                for key in ("replicas", "draft_nodes") for node in state[key] if node["state"] == "ready"}

    def check_private(self, file):
        """The key in a file that only this user can read. Returns its digits."""
        about = os.stat(file)
        self.assertEqual((stat.S_IMODE(about.st_mode), about.st_uid), (0o600, os.geteuid()))
        found = KEY.fullmatch(pathlib.Path(file).read_text(encoding="utf8"))
        self.assertTrue(found, "not one key")
        return found[1]

    def check_hidden(self, digits, *folders):
        """No process has the key in its command line or its variables, and no file of the folders has it."""
        for path in [*pathlib.Path("/proc").glob("[0-9]*/cmdline"), *pathlib.Path("/proc").glob("[0-9]*/environ")]:
            try:
                self.assertNotIn(digits.encode(), path.read_bytes(), str(path))
            except OSError:  # the process has ended, or is another user's
                pass
        for path in (path for folder in folders for path in pathlib.Path(folder).rglob("*") if path.is_file()):
            self.assertNotIn(digits.encode(), path.read_bytes(), str(path))

    def check_strangers(self):
        """A node with another key, and one without, are refused with a reason."""
        other = self.folder / "other"
        subprocess.run([DEPLOY / "cluster_key.sh", other], check=True)
        for flags, reason in (([f"--cluster_key_file={other}"], "it has another cluster key"), ([], "this node has none")):
            result = subprocess.run([BIN / "coppice-draft", f"--model={DRAFT}", "--threads=1", "--dtype=f32", "--node_id=stranger",
                                     f"--coordinator=tcp://127.0.0.1:{self.control}", *flags], capture_output=True, text=True,
                                    timeout=at_most(30))
            self.assertNotEqual(result.returncode, 0)
            self.assertRegex(result.stderr, rf"(?m)^coppice-draft: .*{reason}.*\(--cluster_key_file\)$")

    def check_answer(self):
        self.assertGreater(self.api.complete(BODY)["usage"]["speculation"]["accepted_nodes"], 0)


class Slurm(KeyTest):
    OPTIONS = ("--target", TARGET, "--draft", DRAFT, "--replicas", 2, "--drafts", 1, "--dtype", "f32", "--address", "127.0.0.1",
               "--listen", "127.0.0.1")

    def setUp(self):
        super().setUp()
        (self.folder / "programs").mkdir()
        self.write_program("srun", SRUN)
        self.work, self.place = self.folder / "work", self.folder / "tmp"  # where the job is submitted, and TMPDIR of its nodes
        self.work.mkdir()
        self.place.mkdir()
        self.environment = dict(os.environ, PATH=f"{self.folder}/programs:{os.environ['PATH']}", SLURM_JOB_ID="7", SLURM_JOB_NUM_NODES="2",
                                SLURM_SUBMIT_DIR=str(ROOT), SLURMD_NODENAME="node7", TMPDIR=str(self.place))

    def write_program(self, name, text):
        path = self.folder / "programs" / name
        path.write_text(text, encoding="utf8")
        path.chmod(0o755)

    def start(self, *options, bin=BIN):
        words = [DEPLOY / "slurm/cluster.sh", *self.OPTIONS, "--bin", bin, "--port", self.port, "--control-port", self.control, *options]
        with open(self.work / "slurm-7.out", "wb") as output:
            job = subprocess.Popen([str(word) for word in words], cwd=self.work, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output, start_new_session=True)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        for pid, _ in session_processes(job.pid):
            send_signal(pid, signal.SIGKILL)
        job.wait()

    def output(self):
        return (self.work / "slurm-7.out").read_text(encoding="utf8", errors="replace")

    def logs(self):
        return "".join(path.read_text(encoding="utf8", errors="replace") for path in sorted(self.work.iterdir()))

    def running_key(self, job):
        """Waits until all nodes are ready. Returns (file, digits) of the key that all processes have."""
        self.assertTrue(wait_until(lambda: self.ready_nodes() == {"replica-0", "replica-1", "draft-0"}, READY_S), self.logs())
        found = programs([job.pid])
        self.assertEqual(sorted(found.values()), ["coppice-coordinator", "coppice-draft", "coppice-worker", "coppice-worker"])
        files = {flag_of(pid) for pid in found}
        self.assertEqual(len(files), 1)
        file = files.pop()
        self.assertIsNotNone(file, "the processes have no key")
        return file, self.check_private(file)

    @staticmethod
    def keepers(job):
        """The tasks that keep the key."""
        commands = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid, _ in session_processes(job.pid)}
        return [pid for pid, words in commands.items() if len(words) > 1 and words[1].endswith(b"/keep_key.sh")]

    def check_ended(self, job):
        self.assertEqual(wait_sessions_gone([job.pid], END_S), [])
        self.assertEqual(list(self.place.iterdir()), [])

    def test_each_job_has_a_key_of_its_own(self):
        job = self.start()
        file, digits = self.running_key(job)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(file)).st_mode), 0o700)
        self.assertEqual(pathlib.Path(file).parent.parent, self.place)
        self.check_answer()
        self.check_strangers()
        self.check_hidden(digits, self.work)
        job.terminate()
        self.assertEqual(job.wait(timeout=at_most(END_S)), 143)
        self.check_ended(job)
        self.check_hidden(digits, self.work)
        # Another job has another key. Its tasks that keep the key are killed, and this node removes it all the same.
        job = self.start()
        file, other = self.running_key(job)
        self.assertNotEqual(other, digits)
        for pid in self.keepers(job):
            send_signal(pid, signal.SIGKILL)
        coordinator = next(pid for pid, name in programs([job.pid]).items() if name == "coppice-coordinator")
        send_signal(coordinator, signal.SIGKILL)  # the job ends with it
        self.assertNotEqual(job.wait(timeout=at_most(END_S)), 0)
        self.check_ended(job)

    def test_a_signal_to_all_processes_removes_the_key_everywhere(self):
        """As scancel sends it. The second node has a place of its own."""
        other = self.folder / "other_node" / "key"
        other.parent.mkdir()
        self.environment["FOLDER_OF_TASK_1"] = str(other)
        job = self.start()
        _, digits = self.running_key(job)
        self.assertEqual(self.check_private(other / "cluster_key"), digits)
        keepers = self.keepers(job)
        self.assertEqual(len(keepers), 2)
        for pid in [*keepers, job.pid]:
            send_signal(pid, signal.SIGTERM)
        self.assertEqual(job.wait(timeout=at_most(END_S)), 143)
        self.check_ended(job)
        self.assertEqual(list(other.parent.iterdir()), [])

    def test_the_end_of_the_script_removes_the_key_everywhere(self):
        other = self.folder / "other_node" / "key"
        other.parent.mkdir()
        self.environment["FOLDER_OF_TASK_1"] = str(other)
        stubs = self.folder / "stubs"
        stubs.mkdir()
        for role in ("coordinator", "worker", "draft"):
            (stubs / f"coppice-{role}").write_text(f"#!/bin/sh\n[ {role} = coordinator ] || exec sleep 1000\n[ -s '{other}/cluster_key' ] && exit 5\n")
            (stubs / f"coppice-{role}").chmod(0o755)
        job = self.start(bin=stubs)
        self.assertEqual(job.wait(timeout=at_most(END_S)), 5, self.output())  # the status of the coordinator, which has seen the key
        self.check_ended(job)
        self.assertEqual(list(other.parent.iterdir()), [])

    def test_nodes_that_do_not_keep_the_key_start_nothing(self):
        self.environment["FOLDER_OF_TASK_1"] = "/proc/key"
        job = self.start()
        self.assertEqual(job.wait(timeout=at_most(END_S)), 1)
        self.assertRegex(self.output(), r"\Aslurm/cluster.sh: key not kept on node7: mkdir: .*/proc/key.*TMPDIR.*--cluster-key .*\n\Z")
        self.assertEqual(len((self.work / "calls").read_text().splitlines()), 1)
        self.check_ended(job)
        self.write_program("srun", "#!/bin/sh\necho srun: error: no >&2\nexit 1\n")
        job = self.start()
        self.assertEqual(job.wait(timeout=at_most(END_S)), 1)
        self.assertRegex(self.output(), "srun: error: no\nslurm/cluster.sh: only 0 of 2 nodes have said that they keep the cluster key")
        self.check_ended(job)

    def test_a_key_of_the_user_is_used_and_stays(self):
        key = self.work / "mine"
        subprocess.run([DEPLOY / "cluster_key.sh", key], check=True)
        text = key.read_text()
        for given in (str(key), "mine"):
            job = self.start("--cluster-key", given)
            self.assertEqual(self.running_key(job)[0], str(key))
            self.assertNotIn("keep_key", (self.work / "calls").read_text())
            job.terminate()
            job.wait(timeout=at_most(END_S))
            self.check_ended(job)
            self.assertEqual(key.read_text(), text)
        job = self.start("--cluster-key", "absent")
        self.assertEqual(job.wait(timeout=at_most(END_S)), 1)
        self.assertEqual(self.output(), f"slurm/cluster.sh: --cluster-key {self.work}/absent: not a file that can be read on node7\n")

    def test_a_folder_that_somebody_else_has_put_there_gets_no_key(self):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (self.folder / "link").symlink_to(elsewhere)
        (self.folder / "file").write_text("")
        for name in ("link", "file"):
            result = subprocess.run([DEPLOY / "slurm/keep_key.sh", self.folder / name / "cluster_key"], input="coppice-cluster-key-1 00\n",
                                    capture_output=True, text=True, timeout=at_most(END_S))
            self.assertEqual((result.returncode, result.stderr), (1, ""))
            self.assertRegex(result.stdout, rf"\Akey not kept on \S+: mkdir: .*{name}.*exists\n\Z")
        self.assertEqual(list(elsewhere.iterdir()), [])
        self.assertTrue((self.folder / "file").is_file())


class Pod:
    """A pod of the manifests on this machine: a folder for each volume. A word of a container that is a path below a mount of this
    container, or has one in it, names the place in the volume instead."""

    def __init__(self, spec, folder, secrets):
        self.spec, self.volumes = spec, {}
        for volume in spec["volumes"]:
            place = self.volumes[volume["name"]] = folder / volume["name"]
            if "persistentVolumeClaim" in volume:
                self.volumes[volume["name"]] = ROOT / "tests/models"
            elif "secret" in volume:  # as a kubelet lays it: links to files of the given mode
                data = place / "..data"
                data.mkdir(parents=True)
                for item in volume["secret"]["items"]:
                    (data / item["path"]).write_bytes(secrets[volume["secret"]["secretName"]][item["key"]])
                    (data / item["path"]).chmod(volume["secret"]["defaultMode"])
                    (place / item["path"]).symlink_to(pathlib.Path("..data", item["path"]))
            else:
                place.mkdir(parents=True)

    def words(self, container, words):
        for mount in sorted(container["volumeMounts"], key=lambda mount: -len(mount["mountPath"])):
            at = re.compile(rf"(?<![\w/.-]){re.escape(mount['mountPath'])}(?=/|$)")
            words = [at.sub(str(self.volumes[mount["name"]]), word) for word in words]
        return words

    def begin(self):
        """Runs what comes before the containers."""
        for container in self.spec.get("initContainers", []):
            subprocess.run(self.words(container, container["command"]), check=True, timeout=at_most(30))


class Kubernetes(KeyTest):
    OPTIONS = ("--image", "i", "--target", "/models/stories260k", "--draft", "/models/stories260k-draft", "--dtype", "f32", "--tp", "2",
               "--cpus", "1", "--name", "sql")
    MAKE_SECRET = "deploy/cluster_key.sh - | kubectl create secret generic coppice-cluster-key --from-file=cluster_key=/dev/stdin"

    def manifests(self, *options):
        result = subprocess.run([DEPLOY / "kubernetes/manifests.py", *self.OPTIONS, *options], capture_output=True, text=True, timeout=at_most(60))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def templates(self, *options):
        """{name: spec} of the pods."""
        found = {}
        for item in json.loads(self.manifests(*options))["items"]:
            if item["kind"] == "Deployment":
                found[item["metadata"]["name"]] = item["spec"]["template"]["spec"]
            for role, spec in item["spec"].get("mpiReplicaSpecs", {}).items():
                found[f"{item['metadata']['name']}-{role.lower()}"] = spec["template"]["spec"]
        return found

    def make_secret(self):
        """What the line of the documentation puts into the Secret."""
        for text in ((ROOT / "docs/hosts.md").read_text(encoding="utf8"),
                     subprocess.run([DEPLOY / "kubernetes/manifests.py", "--help"], capture_output=True, text=True, check=True).stdout):
            self.assertTrue(self.MAKE_SECRET in text, text[:500])
        key = subprocess.run([DEPLOY / "cluster_key.sh", "-"], capture_output=True, timeout=at_most(30), check=True)
        self.assertEqual(key.stderr, b"")
        return {"sql-cluster-key": {"cluster_key": key.stdout}}

    def here(self, words):
        """A command of a pod with the places and names of this machine."""
        for pattern, place in (("/opt/coppice/bin/", f"{BIN}/"), ("/opt/coppice/lib/coppice/deploy/", f"{DEPLOY}/"), ("0.0.0.0:8000", f"127.0.0.1:{self.port}"),
                               ("0.0.0.0:7000", f"127.0.0.1:{self.control}"), ("sql-control:7000", f"127.0.0.1:{self.control}"),
                               ("sql-control", "127.0.0.1"), ("$(POD_NAME)", "sql-draft-0")):
            words = [word.replace(pattern, place) for word in words]
        return words

    def launch(self, name, words, environment=None):
        process = Launched(name, self.here(words), self.folder / "logs", environment or os.environ)
        self.addCleanup(process.end)
        return process

    def test_the_processes_of_all_pods_have_the_key_of_the_secret(self):
        secrets = self.make_secret()
        digits = KEY.fullmatch(secrets["sql-cluster-key"]["cluster_key"].decode())[1]
        (self.folder / "logs").mkdir()
        templates = self.templates()
        pods = {name: Pod(spec, self.folder / "pods" / name, secrets) for name, spec in templates.items()}
        self.assertEqual(sorted(pods), ["sql-coordinator", "sql-draft", "sql-replica-0-launcher", "sql-replica-0-worker"])
        for pod in pods.values():
            pod.begin()
        launched = []
        for name in ("sql-coordinator", "sql-draft"):
            container = templates[name]["containers"][0]
            launched.append(self.launch(name, pods[name].words(container, container["command"])))
        # mpirun of the launcher starts the ranks in the worker pods: the paths of their command are of a worker pod.
        launcher, worker = (templates[f"sql-replica-0-{role}"]["containers"][0] for role in ("launcher", "worker"))
        variables = {entry["name"]: entry["value"] for entry in launcher["env"]}
        launched.append(self.launch("sql-replica-0", pods["sql-replica-0-worker"].words(worker, launcher["command"]),
                                    launch_environment() | variables | {"OMPI_MCA_orte_tmpdir_base": str(self.folder)}))
        self.assertTrue(wait_until(lambda: self.ready_nodes() == {"replica-0", "sql-0"}, READY_S),
                        "".join(process.output() for process in launched))
        found = programs([process.session for process in launched])
        self.assertEqual(sorted(found.values()), ["coppice-coordinator", "coppice-draft", "coppice-worker", "coppice-worker"])
        for pid in found:
            file = flag_of(pid)
            self.assertIsNotNone(file, "a process has no key")
            self.assertEqual(self.check_private(file), digits)
        self.check_answer()
        self.check_strangers()
        self.check_hidden(digits, self.folder / "logs")

    def test_only_a_container_that_runs_before_sees_the_secret(self):
        for name, spec in self.templates().items():
            reads = name != "sql-replica-0-launcher"  # mpirun alone; it is no rank
            before, (container,) = spec.get("initContainers", []), spec["containers"]
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            self.assertEqual(len(before), 1 if reads else 0, name)
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            self.assertFalse([mount for mount in mounts if "secret" in volumes[mount]], name)
            self.assertEqual("key" in mounts, reads, name)
            if not reads:
                self.assertNotIn("secret", json.dumps(spec["volumes"]))
                continue
            self.assertTrue(mounts["key"]["readOnly"])
            self.assertEqual(volumes["key"]["emptyDir"]["medium"], "Memory")
            self.assertEqual(volumes["secret"]["secret"]["secretName"], "sql-cluster-key")
            # A file of the user that the programs run as, which a file of the Secret is not. Groups of the pod would make it readable.
            self.assertEqual(before[0]["securityContext"], container["securityContext"])
            self.assertNotIn("securityContext", spec)
            self.assertEqual(before[0]["image"], container["image"])
            self.assertEqual(before[0]["resources"]["requests"], before[0]["resources"]["limits"])

    def test_another_secret_or_none(self):
        text = self.manifests("--cluster-key", "keys.2")
        self.assertEqual(set(re.findall(r'"secretName": "(.*)"', text)), {"keys.2"})
        text = self.manifests("--cluster-key", "none")
        self.assertNotIn("cluster_key", text)
        self.assertNotIn("ecret", text)
        self.assertNotIn("initContainers", text)
        for name in ("A", "", "-a", "a" * 254):
            result = subprocess.run([DEPLOY / "kubernetes/manifests.py", *self.OPTIONS, f"--cluster-key={name}"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--cluster-key must be the name of a Secret, or none", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
