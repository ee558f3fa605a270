#!/usr/bin/env python3
"""What starts a cluster by Slurm, Kubernetes or in images, as far as it can be checked without them: the lines that would
start, the structure of the objects, flags that the programs know, packages of the images. All scripts of deploy/ pass
shellcheck. Starts nothing."""
import json
import re
import subprocess
import unittest

from cluster import BIN, ROOT
from stopwatch import at_most

DEPLOY = ROOT / "deploy"
STEP = "srun --exact --mem=0 --kill-on-bad-exit=1 --job-name={0} --output={0}-%j.log "
CONTROL = "--coordinator=tcp://ADDRESS_OF_FIRST_NODE:7000"
KEY = " --cluster_key_file=KEY_FOLDER/cluster_key"
KEY_STEP = ("srun --overlap --kill-on-bad-exit=0 --wait=0 --job-name=key --nodes=NODES_OF_JOB --ntasks=NODES_OF_JOB --ntasks-per-node=1 "
            f"--cpus-per-task=1 --mpi=none {ROOT}/deploy/slurm/keep_key.sh KEY_FOLDER/cluster_key")
WITH_ADDRESS = f"{ROOT}/deploy/with_address.sh ADDRESS_OF_FIRST_NODE "
COORDINATOR_STEP = (STEP.format("coordinator") + "--nodes=1 --ntasks=1 --cpus-per-task=1 --nodelist=FIRST_NODE /b/coppice-coordinator "
                    "--listen=0.0.0.0:8000 --control_listen=tcp://ADDRESS_OF_FIRST_NODE:7000 --model=/m/t" + KEY)
REPLICA_STEP = (STEP + "--nodes=1 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=4 --gpus-per-node=2 --gpu-bind=none --mpi=pmix " + WITH_ADDRESS +
                "/b/coppice-worker " + CONTROL + " --replica_id={0} --tp=2 --model=/m/t --backend=cuda --dtype=bf16 --threads=4" + KEY)
DRAFT_STEP = (STEP + "--nodes=1 --ntasks=1 --cpus-per-task=4 --gpus=1 --mpi=none " + WITH_ADDRESS + "/b/coppice-draft " + CONTROL +
              r" --node_id={0} --model=/m/d --backend=cuda --dtype=bf16 --threads=4 --listen=direct://%ADDRESS%:\*" + KEY)
WIDE_STEP = (STEP.format("replica-0") + "--nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix " + WITH_ADDRESS +
             "/b/coppice-worker " + CONTROL + " --replica_id=replica-0 --tp=4 --model=/m/t --backend=cpu --dtype=auto --threads=1 "
             r"--plan_listen=tcp://%ADDRESS%:\*" + KEY)
QUANTITY = re.compile(r"\d+(m|Mi|Gi|Ti)?")


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=at_most(60))


def flags_of(program):
    text = run(BIN / program, "--help").stdout
    return set(re.findall(r"^  --(\w+)", text, re.M))


class Slurm(unittest.TestCase):
    def dry(self, *options):
        return run(DEPLOY / "slurm/cluster.sh", "--bin", "/b", "--dry-run", *options)

    def test_a_step_for_each_replica(self):
        result = self.dry("--target", "/m/t", "--draft", "/m/d", "--tp", 2, "--replicas", 2, "--drafts", 1, "--cpus", 4, "--backend", "cuda",
                          "--dtype", "bf16")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.splitlines(), [KEY_STEP, COORDINATOR_STEP, REPLICA_STEP.format("replica-0"),
                                                      REPLICA_STEP.format("replica-1"), DRAFT_STEP.format("draft-0")])

    def test_a_replica_over_two_nodes(self):
        result = self.dry("--target", "/m/t", "--tp", 4, "--nodes-per-replica", 2)
        self.assertEqual((result.returncode, result.stdout.splitlines()), (0, [KEY_STEP, COORDINATOR_STEP, WIDE_STEP]))

    def test_a_key_of_the_user_or_none(self):
        for given, flag in (("/keys/k", " --cluster_key_file=/keys/k"), ("none", "")):
            result = self.dry("--target", "/m/t", "--tp", 4, "--nodes-per-replica", 2, "--cluster-key", given)
            self.assertEqual((result.returncode, result.stdout.splitlines()),
                             (0, [step.replace(KEY, flag) for step in (COORDINATOR_STEP, WIDE_STEP)]))

    def test_mistakes_are_named(self):
        for options, reason in ((["--tp", "2"], "needs --target DIR"), (["--target", "t", "--tp", "x"], "--tp must be a number, got 'x'"),
                                (["--target", "t", "--tp", "3", "--nodes-per-replica", "2"], "--tp 3 ranks do not divide over 2 nodes"),
                                (["--target", "t", "--backend", "rocm"], "--backend must be cpu or cuda, got 'rocm'"),
                                (["--target", "t", "--cluster-key", ""], "--cluster-key needs a file, or none"),
                                (["--tp"], "--tp needs a value"), (["--ranks", "2"], "unknown option '--ranks'")):
            result = self.dry(*options)
            self.assertEqual((result.returncode, result.stderr), (2, f"slurm/cluster.sh: {reason} (see --help)\n"))
        result = subprocess.run([DEPLOY / "slurm/cluster.sh", "--target", "t"], capture_output=True, text=True,
                                env={"PATH": "/usr/bin:/bin", "HOME": "/"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("not in a Slurm job; submit it with sbatch", result.stderr)


class Kubernetes(unittest.TestCase):
    OPTIONS = ("--image", "registry/coppice:cuda", "--target", "/models/t", "--draft", "/models/d", "--backend", "cuda", "--tp", 4,
               "--ranks-per-pod", 2, "--replicas", 2, "--drafts", 3, "--cpus", 4, "--memory", "16Gi", "--namespace", "serving")

    def objects(self, *options):
        result = run(DEPLOY / "kubernetes/manifests.py", *options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        document = json.loads(result.stdout)
        self.assertEqual((document["apiVersion"], document["kind"]), ("v1", "List"))
        return document["items"]

    def pods(self, item):
        """{role: template} of the pods that an object makes."""
        if item["kind"] == "Deployment":
            return {item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]}
        return {role: spec["template"] for role, spec in item["spec"].get("mpiReplicaSpecs", {}).items()}

    def test_objects_and_what_selects_what(self):
        items = self.objects(*self.OPTIONS)
        self.assertEqual([(item["kind"], item["metadata"]["name"]) for item in items],
                         [("Deployment", "coppice-coordinator"), ("Service", "coppice-http"), ("Service", "coppice-control"),
                          ("Deployment", "coppice-draft"), ("MPIJob", "coppice-replica-0"), ("MPIJob", "coppice-replica-1")])
        versions = {"Deployment": "apps/v1", "Service": "v1", "MPIJob": "kubeflow.org/v2beta1"}
        by_name = {item["metadata"]["name"]: item for item in items}
        for item in items:
            self.assertEqual(item["apiVersion"], versions[item["kind"]])
            self.assertEqual(item["metadata"]["namespace"], "serving")
            for template in self.pods(item).values():
                self.check_pod(template["spec"])
            if item["kind"] == "Deployment":
                self.assertEqual(item["spec"]["selector"]["matchLabels"], item["spec"]["template"]["metadata"]["labels"])
        coordinator = by_name["coppice-coordinator"]["spec"]["template"]
        ports = {port["name"]: port["containerPort"] for port in coordinator["spec"]["containers"][0]["ports"]}
        for name, always in (("http", False), ("control", True)):
            service = by_name[f"coppice-{name}"]["spec"]
            self.assertEqual(service["selector"], coordinator["metadata"]["labels"])
            self.assertEqual([(p["port"], p["targetPort"]) for p in service["ports"]], [(ports[name], name)])
            self.assertEqual(service["publishNotReadyAddresses"], always)
        self.assertEqual(by_name["coppice-draft"]["spec"]["replicas"], 3)
        self.assertNotEqual(by_name["coppice-draft"]["spec"]["selector"], by_name["coppice-coordinator"]["spec"]["selector"])

    def check_pod(self, pod):
        self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 5)
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod.get("initContainers", []) + pod["containers"]:
            self.assertEqual(container["image"], "registry/coppice:cuda")
            self.assertTrue({mount["name"] for mount in container["volumeMounts"]} <= volumes)
            for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
                for amount in amounts.values():
                    self.assertRegex(amount, QUANTITY)
            self.assertIn("cpu", container["resources"]["requests"])
            self.assertIn("memory", container["resources"]["limits"])
            self.check_command(container["command"])

    def check_command(self, command):
        """Every flag is one of the program that the command runs."""
        programs = [word for word in command if word.startswith("/opt/coppice/bin/")]
        for script in (word for word in command if word.startswith("/opt/coppice/lib/coppice/deploy/")):
            self.assertTrue((DEPLOY / script.removeprefix("/opt/coppice/lib/coppice/deploy/")).is_file(), script)
        for program in programs:
            known = flags_of(program.rpartition("/")[2])
            for word in command[command.index(program) + 1:]:
                self.assertIn(re.fullmatch(r"--(\w+)=.*", word)[1], known)

    def test_an_mpi_job_has_a_slot_and_a_gpu_for_each_rank(self):
        spec = self.objects(*self.OPTIONS)[4]["spec"]
        launcher, worker = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
        self.assertEqual((spec["slotsPerWorker"], worker["replicas"], launcher["replicas"]), (2, 2, 1))
        command = launcher["template"]["spec"]["containers"][0]["command"]
        self.assertEqual(command[:4], ["mpirun", "-q", "-np", "4"])
        self.assertIn("--tp=4", command)
        self.assertIn("--replica_id=replica-0", command)
        pod = worker["template"]["spec"]["containers"][0]
        self.assertEqual(pod["resources"]["requests"], {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"})
        self.assertEqual(pod["resources"]["requests"], pod["resources"]["limits"])
        self.assertIn("/dev/shm", [mount["mountPath"] for mount in pod["volumeMounts"]])
        environment = {entry["name"]: entry["value"] for entry in launcher["template"]["spec"]["containers"][0]["env"]}
        self.assertEqual(environment["OMPI_MCA_btl"], "vader,self,tcp")
        # The server that the operator's keys are for, as the image has it.
        self.assertEqual(pod["command"], ["/usr/sbin/sshd", "-De", "-f", "/opt/coppice/sshd_config"])
        server = (DEPLOY / "docker/sshd_config").read_text(encoding="utf8")
        self.assertIn(f"Port {pod['readinessProbe']['tcpSocket']['port']}\n", server)
        self.assertIn(f"HostKey {spec['sshAuthMountPath']}/id_rsa\n", server)
        self.assertIn(f"    Port {pod['ports'][0]['containerPort']}\n", (DEPLOY / "docker/ssh_config").read_text(encoding="utf8"))

    def test_probes_ask_what_the_coordinator_answers(self):
        container = self.objects(*self.OPTIONS)[0]["spec"]["template"]["spec"]["containers"][0]
        paths = {kind: container[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        # A coordinator without a replica is alive, and not ready: to restart it would help nobody.
        self.assertEqual(paths, {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"})

    def test_cpu_cluster_without_drafts(self):
        items = self.objects("--image", "registry/coppice:cuda", "--target", "/models/t", "--name", "x")
        self.assertEqual([item["metadata"]["name"] for item in items], ["x-coordinator", "x-http", "x-control", "x-replica-0"])
        self.assertNotIn("nvidia.com/gpu", json.dumps(items))
        self.assertNotIn("namespace", items[0]["metadata"])

    def test_mistakes_are_named(self):
        for options, reason in ((["--tp", 3, "--ranks-per-pod", 2], "--tp 3 is not a multiple of --ranks-per-pod 2"),
                                (["--tp", 0], "--tp must be at least 1"), (["--name", "A_b"], "--name must be small letters"),
                                (["--memory", "8GB"], "--memory must be a number and Mi, Gi or Ti")):
            result = run(DEPLOY / "kubernetes/manifests.py", "--image", "i", "--target", "t", *options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(reason, result.stderr)


class Images(unittest.TestCase):
    def setUp(self):
        text = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf8")
        self.stages = re.split(r"^FROM ", re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " "), flags=re.M)[1:]

    def test_build_stage_installs_what_setup_installs_and_nothing_else(self):
        build = self.stages[0]
        self.assertIn("\nRUN deploy/setup.sh\n", build)
        self.assertNotIn("apt-get", build)
        self.assertLess(build.index("COPY deploy/setup.sh deploy/setup.sh"), build.index("RUN deploy/setup.sh"))

    def test_run_stage_installs_the_libraries_that_the_programs_need(self):
        run_stage = self.stages[1]
        named = re.search(r"apt-get install (.*?)&&", run_stage)[1].split()
        self.assertEqual([word for word in named if not word.startswith("-")],
                         ["$(cat", "/missing_packages)", "openmpi-bin", "openssh-client", "openssh-server", "python3", "python3-numpy", "python3-pip",
                          "ca-certificates", "curl"])
        # A package that the image has and holds must not be named: here libc6 is there, the other is not.
        missing = re.search(r"RUN (for .*?done) > /missing_packages", run_stage)[1].replace("$(cat /runtime_packages)", "libc6 no-such-package")
        self.assertEqual(run("sh", "-c", missing).stdout, "no-such-package\n")
        result = run(DEPLOY / "docker/runtime_packages.sh", *(BIN / f"coppice-{role}" for role in ("coordinator", "worker", "draft", "loadgen")))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        packages = result.stdout.split()
        self.assertEqual(packages, sorted(set(packages)))
        for wanted in (r"libc6", r"libzmq5", r"libopenmpi3.*", r"libprotobuf\d+.*", r"libabsl\d+.*", r"libspdlog.*", r"libpcre2-8-0", r"libutf8proc\d+"):
            self.assertTrue([package for package in packages if re.fullmatch(wanted, package)], wanted)
        self.assertEqual(run("dpkg-query", "-W", *packages).returncode, 0)

    def test_a_program_with_a_missing_library_fails_the_build(self):
        result = run(DEPLOY / "docker/runtime_packages.sh", "/nowhere/program")
        self.assertNotEqual(result.returncode, 0)

    def test_everything_copied_exists_and_the_programs_are_built(self):
        for stage in self.stages:
            for source in re.findall(r"^COPY (?!--from)(\S+) ", stage, re.M):
                self.assertTrue((ROOT / source).exists(), source)
        built = re.search(r"deploy/build.sh \${PRESET} (.*?)&&", self.stages[0])[1].split()
        self.assertEqual(built, ["coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen", "coppice-catalogue"])
        self.assertIn("&& cmake --install build/${PRESET} --prefix /opt/coppice ", self.stages[0])  # tests/package says what that is

    def test_the_two_lines_of_docker(self):
        line = ("docker build --file {0}/deploy/docker/Dockerfile --build-arg BUILD_IMAGE={1} --build-arg RUN_IMAGE={2} "
                "--build-arg PRESET={3} --tag {4} {0}\n")
        self.assertEqual(run(DEPLOY / "docker/build.sh", "cpu", "--dry-run").stdout,
                         line.format(ROOT, "debian:12", "debian:12-slim", "release", "coppice:cpu"))
        cuda = "nvidia/cuda:13.0.0-{}-ubuntu24.04"
        self.assertEqual(run(DEPLOY / "docker/build.sh", "cuda", "here/coppice:1", "--dry-run").stdout,
                         line.format(ROOT, cuda.format("devel"), cuda.format("runtime"), "cuda", "here/coppice:1"))
        self.assertEqual(run(DEPLOY / "docker/build.sh", "rocm").returncode, 2)


class Scripts(unittest.TestCase):
    def test_shellcheck(self):
        scripts = sorted(path.relative_to(ROOT) for path in [*DEPLOY.glob("*.sh"), *DEPLOY.glob("*/*.sh"), DEPLOY / "coppice", *DEPLOY.glob("package/*.bash"),
                                                                   *DEPLOY.glob("package/p*st*"), DEPLOY / "package/prerm",
                                                                   *(ROOT / "tests/package").glob("*.sh")])
        self.assertGreater(len(scripts), 10)
        result = subprocess.run(["shellcheck", "-x", *scripts], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
