#!/usr/bin/env python3
"""cluster.sh up --dry-run: a description of a cluster gives exactly these lines, and each mistake in one is told with its
file, line and field. Starts nothing."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from cluster import ROOT, run_launcher
from stopwatch import at_most

sys.path.insert(1, str(ROOT / "deploy/launch"))
import host as host_script  # noqa: E402
from cluster_file import read_cluster_file  # noqa: E402
from description import DescriptionError, read_host_file  # noqa: E402
from host import write_private  # noqa: E402

TWO_HOSTS = """target = "/models/target"
draft = "/models/draft"
backend = "cuda"
dtype = "bf16"
tp = 2
replicas = 3
drafts = 2
bin = "/opt/coppice/bin"

[coordinator]
listen = "0.0.0.0:8000"

[[host]]
name = "gpu1"
address = "10.0.0.1"
gpus = 4

[[host]]
name = "gpu2"
address = "10.0.0.2"
gpus = ["0", "1", "2", "GPU-5a3f"]
"""
KEY = " --cluster_key_file=/tmp/coppice.dry-run/cluster_key"
MODELS = "--model=/models/target --backend=cuda --dtype=bf16"
REPLICA = ("env CUDA_VISIBLE_DEVICES={gpus} COPPICE_LAUNCH=dry-run/{host}/replica-{i} OMPI_MCA_orte_tmpdir_base=/tmp/coppice.dry-run/replica-{i} "
           "OMPI_MCA_btl_vader_backing_directory=/dev/shm/coppice.dry-run mpirun -q -np 2 /opt/coppice/bin/coppice-worker "
           "--coordinator=tcp://10.0.0.1:7000 --replica_id=replica-{i} --tp=2 " + MODELS + KEY)
DRAFT = ("env CUDA_VISIBLE_DEVICES={gpus} COPPICE_LAUNCH=dry-run/{host}/draft-{i} /opt/coppice/bin/coppice-draft --coordinator=tcp://10.0.0.1:7000 "
         "--node_id=draft-{i} --model=/models/draft --backend=cuda --dtype=bf16 '--listen=direct://{address}:*'" + KEY)
TWO_HOSTS_LINES = [
    "env COPPICE_LAUNCH=dry-run/gpu1/coordinator /opt/coppice/bin/coppice-coordinator --listen=0.0.0.0:8000 "
    "--control_listen=tcp://10.0.0.1:7000 --model=/models/target" + KEY,
    REPLICA.format(gpus="0,1", host="gpu1", i=0), REPLICA.format(gpus="0,1", host="gpu2", i=1),
    REPLICA.format(gpus="2,3", host="gpu1", i=2),
    DRAFT.format(gpus="2", host="gpu2", i=0, address="10.0.0.2"), DRAFT.format(gpus="GPU-5a3f", host="gpu2", i=1, address="10.0.0.2"),
]
LARGE = TWO_HOSTS.replace("tp = 2", "tp = 6").replace("replicas = 3", "replicas = 1")
WITH_ADDRESS = f"{ROOT}/deploy/with_address.sh "  # so that NCCL takes the interface of that address
WORKER_OF_8 = ("/opt/coppice/bin/coppice-worker --coordinator=tcp://10.0.0.1:7000 --replica_id=replica-0 --tp=6 " + MODELS +
               " '--plan_listen=tcp://10.0.0.1:*'" + KEY)
LARGE_LINE = (
    "env COPPICE_LAUNCH=dry-run/gpu1/replica-0 OMPI_MCA_orte_tmpdir_base=/tmp/coppice.dry-run/replica-0 "
    "OMPI_MCA_btl_vader_backing_directory=/dev/shm/coppice.dry-run OMPI_MCA_btl=vader,self,tcp "
    "OMPI_MCA_btl_tcp_if_include=10.0.0.0/30 OMPI_MCA_oob_tcp_if_include=10.0.0.0/30 "
    "'OMPI_MCA_plm_rsh_agent=ssh -o BatchMode=yes -o ConnectTimeout=10' OMPI_MCA_oob_tcp_keepalive_time=10 "
    "OMPI_MCA_oob_tcp_keepalive_intvl=2 OMPI_MCA_oob_tcp_keepalive_probes=3 mpirun "
    "-host localhost:4 -x OMP_WAIT_POLICY=passive -x CUDA_VISIBLE_DEVICES=0,1,2,3 -x COPPICE_LAUNCH=dry-run/gpu1/replica-0 -np 4 " +
    WITH_ADDRESS + "10.0.0.1 " + WORKER_OF_8 +
    " : -host gpu2:2 -x OMP_WAIT_POLICY=passive -x CUDA_VISIBLE_DEVICES=0,1 -x COPPICE_LAUNCH=dry-run/gpu2/replica-0 -np 2 " +
    WITH_ADDRESS + "10.0.0.2 " + WORKER_OF_8)


class Description(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.file = pathlib.Path(self.folder, "cluster.toml")
        self.shell = {}

    def up(self, *arguments):
        """(exit status, stdout, stderr)"""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")} | self.shell
        return run_launcher([ROOT / "deploy/cluster.sh", "up", "--state", self.folder + "/state", *arguments], timeout=at_most(20),
                            environment=environment)[1:]

    def dry(self, text, *arguments):
        self.file.write_text(text, encoding="utf8")
        return self.up("--cluster", self.file, "--dry-run", *arguments)

    def lines(self, text, *arguments):
        """The command lines that would start, and what stands above them."""
        status, output, errors = self.dry(text, *arguments)
        self.assertEqual((status, errors), (0, ""))
        self.assertFalse(os.path.exists(self.folder + "/state"))
        self.comments = [line for line in output.splitlines() if line.startswith("#")]
        return [line for line in output.splitlines() if not line.startswith("#")]

    def test_two_hosts_of_four_gpus(self):
        self.assertEqual(self.lines(TWO_HOSTS), TWO_HOSTS_LINES)
        self.assertIn("# replica-1 on gpu2 (by ssh -o BatchMode=yes -o ConnectTimeout=10 gpu2), "
                      f"log {self.folder}/state/gpu2/replica-1.log", self.comments)

    def test_example_of_the_page_is_this_cluster(self):
        page = (ROOT / "docs/hosts.md").read_text(encoding="utf8")
        example = (ROOT / "deploy/examples/two_hosts.toml").read_text(encoding="utf8")
        block = re.search(r"```toml\n(.*?)```", page, re.S)[1]
        bare = [[line.split("#")[0].strip() for line in text.splitlines()] for text in (block, example)]
        self.assertEqual(*([line for line in lines if line] for lines in bare))
        lines = self.lines(example)
        self.assertEqual([re.search(r"CUDA_VISIBLE_DEVICES=(\S+)", line)[1] for line in lines[1:]], ["0,1", "0,1", "2,3", "2", "3"])

    def test_examples_are_valid(self):
        for path in sorted((ROOT / "deploy/examples").glob("*.toml")):
            with self.subTest(path.name):
                self.assertGreater(len(self.lines(path.read_text(encoding="utf8"))), 2)

    def test_a_replica_too_large_for_a_host_spans_hosts(self):
        self.assertEqual(self.lines(LARGE)[1], LARGE_LINE)

    def test_exact_is_passed_to_workers(self):
        plain, exact = self.lines(TWO_HOSTS), self.lines("exact = true\n" + TWO_HOSTS.lstrip())
        for before, after in zip(plain, exact):
            self.assertEqual(" --exact" in after, "coppice-worker" in after, after)
            self.assertEqual(after.replace(" --exact", ""), before)
        self.assertEqual(self.lines("exact = false\n" + TWO_HOSTS.lstrip()), plain)
        for flags in ((), ("--exact",)):
            status, output, errors = self.up("--target", "/models/target", "--tp", "2", *flags, "--dry-run")
            self.assertEqual((status, errors), (0, ""))
            self.assertEqual(output.count(" --exact"), len(flags), output)
        self.assertRegex(output, r"coppice-worker .* --tp=2 .* --exact( |$)")

    def test_type_of_kv_is_passed_to_workers_and_draft_nodes(self):
        plain, codes = self.lines(TWO_HOSTS), self.lines('kv_dtype = "int8"\n' + TWO_HOSTS.lstrip())
        for before, after in zip(plain, codes):
            self.assertEqual(" --kv_dtype=int8" in after, "coppice-coordinator" not in after, after)
            self.assertEqual(after.replace(" --kv_dtype=int8", ""), before)
        status, output, errors = self.up("--target", "/models/target", "--kv-dtype", "int8", "--dry-run")
        self.assertEqual((status, errors), (0, ""))
        self.assertRegex(output, r"coppice-worker .* --kv_dtype=int8( |$)")

    def test_hosts_far_apart_are_named_one_by_one(self):
        for address, networks in (("10.0.0.3", "10.0.0.0/30"), ("10.0.9.2", "10.0.0.0/20"), ("10.0.0.0", "10.0.0.0/31"),
                                  ("192.168.0.2", "10.0.0.1/31,192.168.0.2/31")):
            line = self.lines(LARGE.replace("10.0.0.2", address))[1]
            self.assertIn(f" OMPI_MCA_btl_tcp_if_include={networks} OMPI_MCA_oob_tcp_if_include={networks} ", line)

    def test_another_agent_also_starts_ranks(self):
        agent = "/opt/agent --zone x"
        self.assertEqual(self.lines(LARGE, "--agent", agent)[1],
                         LARGE_LINE.replace("ssh -o BatchMode=yes -o ConnectTimeout=10", agent))

    def test_places_flags_and_variables_of_the_file(self):
        lines = self.lines(TWO_HOSTS.replace("replicas = 3\ndrafts = 2\n", "") + """
[[replica]]
on = ["gpu2:1,GPU-5a3f"]
[[draft_node]]
on = ["gpu1:0"]
[flags]
all = ["--log_level=debug"]
worker = ["--step_deadline=60"]
[environment]
NCCL_SOCKET_IFNAME = "eth1"
""")
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.assertIn("--log_level=debug", line)
            self.assertIn(" NCCL_SOCKET_IFNAME=eth1 ", line)
        self.assertIn("CUDA_VISIBLE_DEVICES=1,GPU-5a3f ", lines[1])
        self.assertEqual([line.count("--step_deadline=60") for line in lines], [0, 1, 0])
        self.assertIn("CUDA_VISIBLE_DEVICES=0 ", lines[2])

    def test_variables_of_nccl_reach_all_ranks(self):
        """Those of the shell too: mpirun passes none by itself, and ranks that differ would wait for each other."""
        self.shell = {"NCCL_WIN_ENABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_HOSTID": "here"}
        line, = self.lines(LARGE.replace("drafts = 2", "drafts = 0") + '[environment]\nNCCL_DEBUG = "WARN"\n')[1:]
        first, second = line.split(" : ")
        for part in (first, second):
            self.assertIn(" -x NCCL_DEBUG=WARN -x NCCL_WIN_ENABLE=0 ", part)
        self.assertNotIn("HOSTID", line)

    def test_leaders_run_the_draft_when_no_gpu_is_free(self):
        full = TWO_HOSTS.replace("replicas = 3", "replicas = 4").replace("drafts = 2", "draft_kv_bytes = 7000000")
        lines = self.lines(full)
        self.assertEqual(len(lines), 5)  # no draft node
        for i, line in enumerate(lines[1:]):
            self.assertIn(f"--replica_id=replica-{i} --tp=2 {MODELS} --draft=/models/draft --draft_kv_bytes=7000000", line)
        self.assertIn("# no GPU is free for a draft node: each replica grows drafts in its leader's process", self.comments)
        for without in (full.replace("draft_kv", "drafts = 0\ndraft_kv"), full.replace('draft = "/models/draft"\n', "")):
            lines = self.lines(without)
            self.assertEqual((len(lines), "--draft=" in "".join(lines)), (5, False))

    def test_draft_nodes_share_a_gpu_when_too_few_are_free(self):
        flagged = '[flags]\ndraft = ["--max_sessions=8"]\n'  # so draft nodes are processes of their own
        full = TWO_HOSTS.replace("replicas = 3", "replicas = 4")
        one = full.replace("drafts = 2", "drafts = 1") + flagged
        for text, sharing in ((TWO_HOSTS.replace("drafts = 2", "drafts = 3"), "draft-2"), (one, "draft-0")):
            lines = self.lines(text)
            self.assertNotIn("--draft=", "".join(lines))
            self.assertIn("CUDA_VISIBLE_DEVICES=0 ", lines[-1])
            self.assertIn(f"# {sharing} shares GPU 0 of gpu1 with replica-0, which takes 80% of its memory unless kv_bytes is given; they compute "
                          "in turns unless MPS runs there", self.comments)
        self.assertEqual([re.findall(r"--gpu_memory=\S+", line) for line in self.lines(one)[1:]], [["--gpu_memory=0.8"], [], [], [], []])
        given = self.lines(one.replace("replicas = 4", "replicas = 4\nkv_bytes = 5000"))
        self.assertNotIn("--gpu_memory", "".join(given))
        self.assertIn("--kv_bytes=5000", given[1])
        many = self.lines(full.replace("drafts = 2", "drafts = 32") + flagged)
        self.assertEqual({share for line in many for share in re.findall(r"--gpu_memory=(\S+)", line)}, {"0.5"})

    def test_host_file(self):
        hosts = pathlib.Path(self.folder, "hosts")
        hosts.write_text("# two hosts\n127.1.0.1 slots=2 cores=8 address=10.0.0.1\n\n127.1.0.2 slots=4 cores=8 address=10.0.0.2 # the larger\n")
        status, output, errors = self.up("--hostfile", hosts, "--target", "/t", "--draft", "/d", "--tp", "2", "--replicas", "2", "--dry-run")
        self.assertEqual((status, errors), (0, ""))
        where = re.findall(r"^# ([\w-]+) on (\S+)", output, re.M)
        self.assertEqual(where, [("coordinator", "127.1.0.1"), ("replica-0", "127.1.0.2"), ("replica-1", "127.1.0.1"), ("draft-0", "127.1.0.2")])
        self.assertEqual(re.findall(r"--threads=(\d+)", output), ["4", "4", "4"])  # 8 cores, shared by two ranks
        for text, reason in (("a slots=x", "1: slots: must be a number, got 'x'"), ("a colour=red", "1: colour: expected slots=N"),
                             ("a address=10.0.0.1\n a address=10.0.0.2", "2: name: a is host a already"), ("#none", " names no host"),
                             ("-oProxyCommand=x", "1: name: '-oProxyCommand=x' is not the name of a host"),
                             ("a address=no.such.host.invalid", "1: address: no.such.host.invalid has no IPv4 address here")):
            hosts.write_text(text + "\n")
            with self.assertRaises(DescriptionError) as told:
                read_host_file(hosts)
            self.assertTrue(str(told.exception).startswith(f"{hosts}:{reason}"), told.exception)

    def test_a_gguf_file_is_given_to_every_process(self):
        file = pathlib.Path(self.folder, "a.gguf")
        hosts = pathlib.Path(self.folder, "hosts")
        hosts.write_text("127.1.0.1 slots=2\n")
        for where in ((), ("--hostfile", hosts)):
            status, output, errors = self.up(*where, "--target", file, "--draft", file, "--dry-run")
            self.assertEqual((status, errors), (0, ""))
            self.assertEqual(re.findall(r"--model=(\S+)", output), [str(file)] * 3)

    def test_gpus_of_this_host(self):
        status, output, errors = self.up("--target", "/t", "--backend", "cuda", "--gpus", "3,5", "--replicas", "2", "--dry-run")
        self.assertEqual((status, errors), (0, ""))
        self.assertEqual(re.findall(r"CUDA_VISIBLE_DEVICES=(\S+)", output), ["3", "5"])
        status, _, errors = self.up("--target", "/t", "--backend", "cuda", "--gpus", "3,5", "--replicas", "3", "--dry-run")
        self.assertEqual((status, errors), (1, "cluster: --replicas: replica-2 needs 1 GPUs; free are: none\n"))

    def test_each_mistake_is_told_with_its_line_and_field(self):
        def changed(old, new):
            self.assertEqual(TWO_HOSTS.count(old), 1, old)
            return TWO_HOSTS.replace(old, new)

        placed = TWO_HOSTS.replace("replicas = 3\ndrafts = 2\n", "")
        for text, line, reason in (
                (changed("tp = 2", "tp = "), 5, "Invalid value"),
                (changed("tp = 2", 'tp = "2"'), 5, "tp: must be a number, got '2'"),
                (changed("tp = 2", "tp = 0"), 5, "tp: must be at least 1, got 0"),
                (changed("tp = 2", "tp = true"), 5, "tp: must be a number, got True"),
                (changed("tp = 2", "ranks = 2"), 5, "ranks: unknown; expected one of target, draft, tp"),
                (changed('"cuda"', '"rocm"'), 3, "backend: must be cpu or cuda, got 'rocm'"),
                (changed('target = "/models/target"\n', ""), 1, "target: not given"),
                (changed("replicas = 3", "replicas = 5"), 6, "replicas: replica-4 needs 2 GPUs; free are: none"),
                (changed('listen = "0.0.0.0:8000"', 'listen = "8000"'), 11, "coordinator.listen: expected address:port, got '8000'"),
                (changed('listen = "0.0.0.0:8000"', 'host = "gpu3"'), 11, "coordinator.host: 'gpu3' names no host; hosts are gpu1, gpu2"),
                (changed("[coordinator]", "[coordinater]"), 10, "coordinater: unknown; expected one of target"),
                (changed("[coordinator]", "[[coordinator]]"), 10, "coordinator: write it as [coordinator]"),
                (changed('name = "gpu2"', 'name = "gpu1"'), 19, "host.name: gpu1 is host gpu1 already"),
                (changed('name = "gpu2"\n', ""), 18, "host.name: not given"),
                (changed('"10.0.0.2"', '"127.0.0.1"'), 20, "host.address: 127.0.0.1 is not an address by which other hosts reach gpu2"),
                (changed("gpus = 4", "gpus = 4.5"), 16, "host.gpus: must be a number or a list, got 4.5"),
                (changed('"GPU-5a3f"', '"1"'), 21, "host.gpus: '1' is given twice"),
                (changed("gpus = 4", "memory = 80"), 16, "host.memory: unknown; expected one of name, address, gpus"),
                (placed + '[[replica]]\non = ["gpu1:0,9"]\n', 21, "replica.on: host gpu1 has no GPU '9'; it has 0, 1, 2, 3"),
                (placed + '[[replica]]\non = ["gpu1"]\n', 21, "replica.on: 'gpu1' names no GPU; expected such as gpu1:0"),
                (placed + '[[replica]]\non = ["gpu1:0"]\n', 21, "replica.on: places of 1 ranks, but tp is 2"),
                (placed + '[[replica]]\non = ["gpu1:0,1"]\n[[replica]]\non = ["gpu1:1,2"]\n', 23,
                 "replica.on: GPU 1 of host gpu1 is used by replica-0 already"),
                (placed + '[[draft_node]]\non = ["gpu1:0,1"]\n', 21, "draft_node.on: a draft node is one process, got places of 2"),
                (placed + "[[draft_node]]\n", 20, "draft_node.on: not given"),
                (TWO_HOSTS + '[flags]\nworker = ["step"]\n', 23, "flags.worker: expected flags such as \"--log_level=debug\", got 'step'"),
                (changed('"/models/target"', '"models/target"'), 1,
                 "target: must begin with /, since every host reads it, got 'models/target'"),
                (changed('"/models/draft"', '"~/draft"'), 2, "draft: must begin with /"),
                (changed('"/opt/coppice/bin"', '"none"'), 8, "bin: must begin with /"),
                ('cluster_key = "key"\n' + TWO_HOSTS, 1, "cluster_key: must begin with /"),
                ('tuning_cache = "./tuned"\n' + TWO_HOSTS, 1, "tuning_cache: must begin with /"),
                *((TWO_HOSTS + f'[flags]\ncoordinator = ["--{name}=a.pem"]\n', 23, f"flags.coordinator: --{name} must begin with /")
                  for name in ("tls_cert_file", "tls_key_file", "admin_keys_file", "api_keys_file")),
                (TWO_HOSTS + "[environment]\nA = 1\n", 23, 'environment.A: expected NAME = "text", got 1')):
            with self.subTest(reason):
                self.file.write_text(text, encoding="utf8")
                with self.assertRaises(DescriptionError) as told:
                    read_cluster_file(self.file)
                self.assertTrue(str(told.exception).startswith(f"{self.file}:{line}: {reason}"), told.exception)
        status, output, errors = self.dry(changed("tp = 2", "tp = 0"))
        self.assertEqual((status, output, errors), (1, "", f"cluster: {self.file}:5: tp: must be at least 1, got 0\n"))

    def test_file_that_cannot_be_read_and_options_beside_it(self):
        status, _, errors = self.up("--cluster", "/nowhere.toml")
        self.assertEqual((status, errors), (1, "cluster: /nowhere.toml: cannot be read: No such file or directory\n"))
        status, _, errors = self.dry(TWO_HOSTS, "--tp", "4")
        self.assertEqual((status, errors), (2, "cluster: --tp: the cluster file says it (see --help)\n"))
        status, _, errors = self.dry(TWO_HOSTS, "--port", "9000")
        self.assertEqual((status, errors), (2, "cluster: --port: the cluster file says it (see --help)\n"))

    def test_paths_of_the_command_line_may_be_relative(self):
        template = pathlib.Path(self.folder, "chat.jinja")
        template.write_text("")
        status, output, errors = self.up("--target", "t", "--bin", "programs", "--tuning-cache", "tuned", "--chat-template",
                                         os.path.relpath(template), "--dry-run")
        self.assertEqual((status, errors), (0, ""))
        for text in (f" {os.path.abspath('programs')}/coppice-worker ", f" --tuning_cache={os.path.abspath('tuned')} ",
                     f" --chat_template={template} ", f" --model={os.path.abspath('t')} "):
            self.assertIn(text, output)
        _, output, _ = self.up("--target", "t", "--tuning-cache", "", "--chat-template", "chatml", "--cluster-key", "none", "--dry-run")
        self.assertNotIn("cluster_key", output)
        self.assertIn(" --tuning_cache=\n", output)
        self.assertIn(" --chat_template=chatml\n", output)

    def test_this_host_is_known_by_each_of_its_names(self):
        self.lines(TWO_HOSTS.replace('"gpu1"', '"localhost"'))
        self.assertIn(f"# coordinator on localhost, log {self.folder}/state/localhost/coordinator.log", self.comments)
        self.assertIn("# replica-1 on gpu2 (by ssh", "\n".join(self.comments))

    def test_help_after_the_command(self):
        status, output, errors = self.up("--help")
        self.assertEqual((status, errors), (0, ""))
        self.assertTrue(output.startswith("cluster.sh up --target DIR"), output)

    def test_a_host_whose_folders_cannot_be_made_says_which(self):
        request = dict(programs=[], models=[], mpi=False, folder="/proc/coppice/state", run_folders=[])
        result = subprocess.run([sys.executable, "-B", ROOT / "deploy/launch/host.py", "start"], input=json.dumps(request),
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (1, "", "/proc/coppice: No such file or directory\n"))

    def test_an_address_that_is_in_use_is_refused(self):
        for family, host, listen in ((socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::", "[::]")):
            with self.subTest(listen), socket.socket(family, socket.SOCK_STREAM) as other:
                try:
                    other.bind((host, 0))
                except OSError:
                    self.assertEqual(family, socket.AF_INET6)  # which this host may not have
                    continue
                address = f"{listen}:{other.getsockname()[1]}"
                other.listen()
                with self.assertRaises(host_script.Refused) as told:
                    host_script.check_listen(address)
                self.assertEqual(str(told.exception), f"cannot listen on {address}: Address already in use")
                other.close()
                host_script.check_listen(address)

    def test_the_state_of_what_could_not_be_ended_remains(self):
        request = dict(id="1.none", folder=self.folder, run_folders=[self.folder + "/run"])
        with unittest.mock.patch.multiple(host_script, GRACE_S=0, FOUND_TIMEOUT_S=0, left=lambda *_: {17}):
            with self.assertRaises(host_script.Refused) as told:
                host_script.stop(request)
        self.assertEqual(str(told.exception), "processes 17 could not be ended")
        self.assertTrue(os.path.exists(self.folder))
        os.makedirs(self.folder + "/state")
        self.assertEqual(host_script.stop(dict(request, folder=self.folder + "/state")), {"kept": False})
        self.assertFalse(os.path.exists(self.folder + "/state"))

    def test_the_state_folder_without_a_home(self):
        def up(**variables):
            kept = {name: value for name, value in os.environ.items() if name != "XDG_STATE_HOME"}
            return run_launcher([ROOT / "deploy/cluster.sh", "up", "--target", "/t", "--dry-run"], timeout=at_most(20),
                                environment=dict(kept, **variables))[1:]

        self.assertEqual(up(HOME="nowhere"), (1, "", "cluster: no home folder: give --state DIR\n"))
        self.assertIn(f", log {self.folder}/.local/state/coppice/8000/coordinator.log", up(HOME=self.folder, XDG_STATE_HOME="here")[1])
        self.assertIn(f", log {self.folder}/coppice/8000/coordinator.log", up(HOME="nowhere", XDG_STATE_HOME=self.folder)[1])

    def test_the_state_folder_is_named_after_the_port(self):
        self.file.write_text(TWO_HOSTS.replace("0.0.0.0:8000", "0.0.0.0:8123"), encoding="utf8")
        _, status, output, _ = run_launcher([ROOT / "deploy/cluster.sh", "up", "--cluster", self.file, "--dry-run"], timeout=at_most(20))
        self.assertEqual(status, 0)
        self.assertIn("/coppice/8123/gpu1/coordinator.log", output)

    def test_cores_are_needed_where_processes_share_a_host(self):
        text = re.sub(r"^gpus = .*", "slots = 4", TWO_HOSTS.replace('backend = "cuda"', 'backend = "cpu"'), flags=re.M)
        status, _, errors = self.dry(text)
        self.assertEqual(status, 1)
        self.assertIn("cores is not given, and 4 processes share them: give cores, or threads", errors)
        lines = self.lines(text.replace("slots = 4", "slots = 4\ncores = 16"))
        self.assertEqual([re.search(r"--threads=(\d+)", line)[1] for line in lines[1:]], ["4", "8", "4", "8", "8"])

    def test_a_file_that_another_host_writes_again_is_never_seen_half_written(self):
        path = os.path.join(self.folder, "cluster_key")
        write_private(path, "first\n")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path, encoding="utf8") as reader:
            write_private(path, "second\n")
            self.assertEqual(reader.read(), "first\n")
        self.assertEqual(pathlib.Path(path).read_text(encoding="utf8"), "second\n")
        self.assertEqual(os.listdir(self.folder), ["cluster_key"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
