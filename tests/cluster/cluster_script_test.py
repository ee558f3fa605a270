#!/usr/bin/env python3
"""cluster.sh: up, status and down of a cluster on this host, and its answers to what an operator does wrong."""
import fcntl
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import unittest

from api_client import ApiClient
from cluster import BIN, DRAFT, ROOT, TARGET, folders_left, free_port, run_launcher, send_signal, wait_sessions_gone
from launchers_test import END_WITHIN_S, ENVIRONMENT, LONG, listening
from stopwatch import Stopwatch, at_most, wait_until

sys.path.insert(0, str(ROOT / "tests/deploy/gguf"))
from gguf_models import quantised_llama  # noqa: E402
from tls_test import make_certificate  # noqa: E402


class ClusterScript(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.state = os.path.join(self.folder.name, "state")
        self.port = free_port()

    def tearDown(self):
        if os.path.exists(self.state):
            self.run_script("down")
        self.folder.cleanup()

    def run_script(self, command, *arguments, environment=None):
        """(pid, exit status, stdout, stderr)"""
        return run_launcher([ROOT / "deploy/cluster.sh", command, "--state", self.state, *arguments], environment=environment)

    def up(self, *arguments, environment=None):
        return self.run_script("up", "--target", TARGET, "--draft", "none", "--port", str(self.port), "--dtype", "f32", "--threads", "1",
                               "--deadline", str(int(at_most(60))), *arguments, environment=environment)

    def file(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text)
        return path

    def ask(self, path, key="", method="GET", body=None, headers=()):
        """(status, headers)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=at_most(30))
        given = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request(method, path, body, {**given, **dict(headers)})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers

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
        self.assertIn(f"cluster: {TARGET}: LlamaForCausalLM, 5 layers of 64", output)
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
            watch = Stopwatch()
            while "replica-0: ended" not in output and watch.seconds() < 20:
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
        arguments = ("up", "--target", gguf, "--draft", gguf, "--port", str(self.port), "--threads", "1", "--state", self.state)
        _, status, output, errors = run_launcher([ROOT / "deploy/cluster.sh", *arguments])
        self.assertEqual(status, 0, output + errors)
        answer = ApiClient(self.port).complete(dict(prompt="a b", max_tokens=4, ignore_eos=True))
        self.assertEqual((answer["usage"]["completion_tokens"], answer["model"]), (4, "mine"))
        self.assertEqual(self.run_script("down")[1], 0)
        gguf.write_bytes(b"GGUF")
        _, status, _, errors = run_launcher([ROOT / "deploy/cluster.sh", *arguments])
        self.assertEqual(status, 1)
        self.assertIn(f"{gguf}: the file ends at byte 4, inside of the header: it is truncated", errors)
        self.assertFalse(listening(self.port))

    def test_demo_chats_with_a_file(self):
        gguf = pathlib.Path(self.folder.name, "mine.gguf")
        quantised_llama(gguf, f"{self.folder.name}/direct")
        pid, status, output, errors = run_launcher(
            [ROOT / "deploy/demo.sh", "--model", gguf, "--once", "--no-build", "--port", self.port])
        self.assertEqual(status, 0, output + errors)
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

    def test_up_with_flags_of_the_coordinator(self):
        users, admins = self.file("users", "key-of-a-user-0123\n"), self.file("admins", "key-of-an-admin-0123\n")
        flags = (f"--api_keys_file={os.path.relpath(users)}", "--admin_keys_file", os.path.relpath(admins), "--allowed_origins=*",
                 "--max_model_len", "77", "--nolog_requests", "--metrics_require_key")
        _, status, output, errors = self.up("--", *flags)
        self.assertEqual((status, errors), (0, ""), output)
        self.assertEqual(self.ask("/v1/models")[0], 401)
        status, headers = self.ask("/v1/models", "key-of-a-user-0123", headers={"Origin": "https://a.example"}.items())
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "*"))
        self.assertEqual([self.ask("/metrics")[0], self.ask("/cluster", "key-of-an-admin-0123")[0]], [401, 200])
        _, status, output, errors = run_launcher(
            ["env", "-C", "/", ROOT / "deploy/cluster.sh", "status", "--state", self.state])  # from another folder
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("\nreplica replica-0: ready", output)

    def test_up_on_another_address(self):
        _, status, output, errors = self.run_script("up", "--target", TARGET, "--threads", "1", "--", f"--listen=0.0.0.0:{self.port}")
        self.assertEqual((status, errors), (0, ""), output)
        self.assertIn(f"cluster: ready at http://127.0.0.1:{self.port}, ", output)
        self.assertEqual(self.ask("/ready")[0], 200)

    def test_up_with_files_of_the_environment(self):
        cert, key = make_certificate(self.folder.name, "api")
        users, admins = self.file("users", "key-of-a-user-0123\n"), self.file("admins", "key-of-an-admin-0123\n")
        config = self.file("config.toml", f'[coordinator]\ntls_cert_file = "{cert}"\ntls_key_file = "{key}"\n')
        there = dict(os.environ, COPPICE_API_KEYS_FILE=str(users), COPPICE_ADMIN_KEYS_FILE=str(admins), COPPICE_CONFIG=str(config))
        _, status, output, errors = self.up(environment=there)
        self.assertEqual((status, errors), (0, ""), output)
        self.assertIn(f"cluster: ready at https://127.0.0.1:{self.port}, ", output)
        _, status, output, errors = self.run_script("status")  # without that environment
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("\nreplica replica-0: ready", output)

    def test_a_refusal_that_lasts_is_not_waited_for(self):
        keys = self.file("admins", "key-of-an-admin-0123\n")
        programs = pathlib.Path(self.folder.name, "bin")
        programs.mkdir()
        (programs / "coppice-worker").symlink_to(BIN / "coppice-worker")
        real = BIN / "coppice-coordinator"
        script = programs / "coppice-coordinator"  # has keys, but does not say so
        script.write_text(f'#!/bin/sh\ncase "$*" in *--print_config) exec {real} "$@" ;; esac\nexec {real} "$@" --admin_keys_file={keys}\n')
        script.chmod(0o755)
        watch = Stopwatch()
        _, status, _, errors = self.run_script("up", "--target", TARGET, "--draft", "none", "--port", str(self.port), "--threads", "1", "--bin",
                                            programs)
        self.assertEqual(status, 1)
        self.assertRegex(errors, r"\ncluster: the cluster cannot be asked whether it is ready: /cluster: send the header Authorization")
        self.assertLess(watch.seconds(), 60)
        self.assertFalse(listening(self.port))

    def test_up_with_an_api_key(self):
        key = "sk-0123456789-of-mine"
        _, status, output, errors = self.up("--api-key", key)
        self.assertEqual((status, errors), (0, ""), output)
        self.assertEqual([self.ask("/v1/models")[0], self.ask("/v1/models", key)[0], self.ask("/health")[0]], [401, 200, 200])
        kept = pathlib.Path(self.state, "api_keys")
        self.assertEqual((kept.stat().st_mode & 0o777, kept.read_text()), (0o600, f"{key} user\n"))
        for path in pathlib.Path(self.state).iterdir():
            if path != kept:
                self.assertNotIn(key, path.read_text(), path)
        self.assertEqual(self.run_script("status")[1], 0)
        self.assertEqual(self.run_script("down")[1], 0)
        self.assertFalse(kept.exists())

    def test_bad_flags_and_keys(self):
        for arguments, reason in ((["--api-key", "short"], "--api-key: a key has at least 16 characters, got 5 "),
                                  (["--api-key", "with spaces in it, too"], "--api-key: a key has printable ASCII"),
                                  (["--api-key", "#0123456789abcdef"], "--api-key: a key has printable ASCII"),
                                  (["--api-key", 16 * "k", "--", "--api_keys_file=x"], "--api-key: --api_keys_file is given too"),
                                  (["--", "--listen=0.0.0.0:1"], "--listen after --: --port says it"),
                                  (["--", "--model=x"], "--model after --: give --target"),
                                  (["--", "max_queue=1"], "expected flags of coppice-coordinator after --, got 'max_queue=1'"),
                                  (["--", "--max_queue=1", "x"], "expected flags of coppice-coordinator after --, got 'x'")):
            _, status, _, errors = self.up(*arguments)
            self.assertEqual(status, 2, arguments)
            self.assertTrue(errors.startswith(f"cluster: {reason}"), errors)
        _, status, _, errors = self.run_script("up", "--target", TARGET, "--", "--listen=8000")
        self.assertEqual((status, errors), (2, "cluster: --listen after --: expected address:port, got '8000' (see --help)\n"))
        _, status, _, errors = self.run_script("down", "--", "--max_queue=1")
        self.assertEqual((status, errors), (2, "cluster: unknown option -- of down (see --help)\n"))
        _, status, _, errors = self.up("--", "--max_queues=1")
        self.assertEqual(status, 1)
        self.assertIn("coppice-coordinator: unknown flag --max_queues, did you mean --max_queue?", errors)

    def test_up_without_draft(self):
        self.assertEqual(self.up()[1], 0)
        api = ApiClient(self.port)
        spec = api.complete(dict(LONG, max_tokens=8))["usage"]["speculation"]
        self.assertEqual(spec["rounds"] - spec["plain_rounds"], spec["suffix_rounds"])
        self.assertTrue(wait_until(lambda: "suffix_drafts" in api.cluster()["replicas"][0]))  # comes with the heartbeats

    def test_up_finds_the_draft_beside_the_target(self):
        _, status, output, errors = self.up("--draft", "auto")
        self.assertEqual(status, 0, output + errors)
        self.assertIn(f"cluster: draft: {DRAFT}, a draft model (beside the target, by its name)\n", output)
        answer = ApiClient(self.port).complete(dict(prompt="Once", max_tokens=12, speculative=dict(draft_width=1, draft_depth=3)))
        self.assertGreater(answer["usage"]["speculation"]["drafted_nodes"], 0)
        _, status, output, errors = self.run_script("status")
        self.assertEqual(status, 0, errors)
        self.assertIn(f"\ndraft {DRAFT}, on 1 draft node(s)\n", output)
        self.assertEqual(self.run_script("down")[1], 0)
        _, status, output, errors = self.up("--draft", DRAFT, "--draft-in", "worker")
        self.assertEqual(status, 0, output + errors)
        self.assertIn("replica(s) of 1 rank(s), drafts in their processes\n", output)
        self.assertEqual(ApiClient(self.port).cluster()["draft_nodes"], [])
        self.assertIn(f"\ndraft {DRAFT}, in the processes of the replicas' leaders\n", self.run_script("status")[2])

    def test_up_finds_a_head_and_refuses_one_of_another_target(self):
        head = ROOT / "tests/models/stories260k-eagle3"
        target, beside = pathlib.Path(self.folder.name, "t"), pathlib.Path(self.folder.name, "t-eagle3")
        shutil.copytree(TARGET, target)
        shutil.copytree(head, beside)
        body = dict(prompt="Once upon a time, there was a big bear.", max_tokens=24, temperature=0, ignore_eos=True, return_token_ids=True)
        for more, where, nodes in (((), "in the processes of the replicas' leaders", 0), (("--drafts", "1"), "on 1 draft node(s)", 1)):
            _, status, output, errors = self.up("--target", target, "--draft", "auto", *more)
            self.assertEqual(status, 0, output + errors)
            self.assertIn(f"cluster: draft: {beside}, an EAGLE-3 head (beside the target, by its name)\n", output)
            self.assertIn(f"\ndraft {beside}, {where}\n", self.run_script("status")[2])
            api = ApiClient(self.port)
            self.assertEqual(len(api.cluster()["draft_nodes"]), nodes)
            plain = api.complete(dict(body, speculative=False))
            drafted = api.complete(dict(body, speculative=dict(draft_width=2, draft_depth=4)))
            self.assertEqual(drafted["choices"][0]["token_ids"], plain["choices"][0]["token_ids"])
            self.assertGreater(drafted["usage"]["speculation"]["accepted_nodes"], 0)
            self.assertEqual(self.run_script("down")[1], 0)
        other = ROOT / "deploy/demo/wikisql-target"
        _, status, _, errors = self.up("--target", other, "--draft", beside)
        self.assertEqual(status, 1)
        self.assertIn(f"coppice-worker: {beside}/config.json: vocab_size: 512, expected 4608 as the target {other} has", errors)

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
