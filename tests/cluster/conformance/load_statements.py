"""Statements 58 and 60 to 80: streaming, failures, load and drain, metrics."""
import json
import pathlib
import random
import re
import socket

from api_client import KEPT_BY_SANITIZERS
from fixture import KV_BLOCKS, MARKER, PROMPT, ROOT, SHORT, SLOWDOWN, TARGET, USER, Statements, Stopwatch, at_most, essence, joined, together, wait_until

DISTRIBUTIONS = {
    "one sample": dict(decoding="multinomial", seed=4),
    "three samples": dict(decoding="multinomial", seed=4, n=3),
    "beam sampling": dict(decoding="beam_sampling", beam_width=4, n=3, seed=5),
    "without replacement": dict(decoding="beam_sampling_without_replacement", beam_width=4, n=3, seed=5),
    "beam search": dict(decoding="beam_search", beam_width=4, n=1),
    "beam search, three": dict(decoding="beam_search", beam_width=4, n=3),
}
LONG = dict(prompt=PROMPT, max_tokens=280, ignore_eos=True)


class Streams(Statements):
    def plain(self, body):
        return {c["index"]: (c["text"], c.get("token_ids", []), c["finish_reason"]) for c in self.served(body)["choices"]}

    def test_61_events(self):
        connection, response = self.cluster.open_stream(SHORT)
        self.assertEqual(response.headers["Content-Type"], "text/event-stream; charset=utf-8")
        self.assertEqual((response.headers["Cache-Control"], response.headers["X-Accel-Buffering"]), ("no-cache", "no"))
        blocks = response.read().decode().split("\n\n")
        connection.close()
        events = [block for block in blocks if block and not block.startswith(":")]
        self.assertTrue(all(event.startswith("data: ") for event in events))
        self.assertEqual([i for i, event in enumerate(events) if event == "data: [DONE]"], [len(events) - 1])
        for event in events[:-1]:
            json.loads(event.removeprefix("data: "))

    def test_62_deltas_join_to_the_answer(self):
        for name, distribution in DISTRIBUTIONS.items():
            with self.subTest(name):
                body = dict(SHORT, **distribution, return_token_ids=True)
                self.assertEqual(joined(self.stream(body)[:-1]), self.plain(body))

    def test_62_deltas_with_logprobs(self):
        body = dict(SHORT, seed=4, logprobs=2)
        values = [v for e in self.stream(body)[:-1] for c in e["choices"] for v in (c["logprobs"] or {}).get("token_logprobs", [])]
        self.assertEqual(values, self.served(body)["choices"][0]["logprobs"]["token_logprobs"])

    def test_63_the_first_event_has_text(self):
        first = self.stream(SHORT)[0]
        self.assertTrue(first["choices"][0]["text"] or first["choices"][0]["finish_reason"])
        body = dict(messages=[dict(role="user", content="a")], max_tokens=4, ignore_eos=True)
        deltas = [c["delta"] for e in self.stream(body, "/v1/chat/completions")[:-1] for c in e["choices"]]
        self.assertEqual(deltas[0].get("role"), "assistant")
        self.assertTrue(deltas[0].get("content"))
        self.assertTrue(all("role" not in delta for delta in deltas[1:]))

    def test_64_hot_samples_are_valid_utf8(self):
        for seed in range(50):  # read_events decodes each line by itself
            body = dict(SHORT, temperature=2, seed=seed, max_tokens=20, return_token_ids=True)
            self.assertEqual(joined(self.stream(body)[:-1]), self.plain(body))

    def test_65_stops_across_token_borders(self):
        body = dict(SHORT, seed=7, max_tokens=40)
        text = self.served(body)["choices"][0]["text"]
        random.seed(1)
        self.assertGreater(len(text), 12)
        for _ in range(50):
            begin = random.randrange(len(text) - 4)
            stop = text[begin:begin + random.randrange(2, 9)]
            wanted = text[:text.index(stop)]
            self.assertEqual(self.served(dict(body, stop=stop))["choices"][0]["text"], wanted)
            self.assertEqual(joined(self.stream(dict(body, stop=stop))[:-1])[0][0], wanted)

    def test_66_streamed_beams_are_never_retracted(self):
        for name in ("beam sampling", "beam search, three"):
            events = self.stream(dict(SHORT, **DISTRIBUTIONS[name], max_tokens=30))[:-1]
            self.assertTrue(all(c["index"] == 0 and c["finish_reason"] is None for e in events[:-1] for c in e["choices"]))
            last = events[-1]["choices"]
            self.assertEqual([c["index"] for c in last], list(range(len(last))))
            self.assertTrue(all(c["finish_reason"] and c["score"] is not None for c in last))

    def test_67_usage(self):
        body = dict(SHORT, seed=3)
        self.assertTrue(all("usage" not in e for e in self.stream(body)[:-1]))
        events = self.stream(dict(body, stream_options=dict(include_usage=True)))[:-1]
        self.assertTrue(all(e["usage"] is None for e in events[:-1]))
        self.assertEqual(events[-1]["choices"], [])
        totals = self.served(body)["usage"]
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(events[-1]["usage"][key], totals[key])

    def test_68_refusals_of_streams(self):
        answer = self.cluster.post(dict(SHORT, stream=True, temperature=9))
        self.assertEqual((answer.status, answer.error["param"]), (400, "temperature"))
        self.assertEqual(answer.headers["Content-Type"], "application/json")

    def test_69_slow_clients(self):
        body = dict(SHORT, seed=9, return_token_ids=True)
        data = json.dumps(body).encode()
        wanted = self.served(body)
        request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {USER}\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data
        with socket.create_connection(("127.0.0.1", self.cluster.port), timeout=at_most(60)) as slow:
            slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i, byte in enumerate(request):
                slow.sendall(bytes([byte]))
                if i % 100 == 0:
                    self.assertEqual(self.cluster.get("/health").status, 200)
            received = b""
            while piece := slow.recv(7):
                received += piece
        self.assertEqual(essence(json.loads(received.split(b"\r\n\r\n", 1)[1])), essence(wanted))


class Load(Statements):
    def idle(self, seconds=1):
        """Whether nothing runs and no block is used within some seconds."""
        def nothing():
            state = self.cluster.api.cluster()
            return state["requests"]["running"] == 0 and all(r["running"] == 0 and r["kv"]["blocks_used"] == 0 for r in state["replicas"])
        return wait_until(nothing, seconds + 1)  # heartbeats bring the figures twice a second

    def test_71_disconnects(self):
        aborted = f'coppice_request_success_total{{finished_reason="abort",model_name="{TARGET.name}"}}'
        self.assertTrue(self.idle(10))
        for stream in (True, False):
            before = self.cluster.metrics()[aborted]
            data = json.dumps(dict(LONG, n=64, stream=stream)).encode()  # a second of work at least
            request = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {USER}\r\n"
                       f"Content-Length: {len(data)}\r\n\r\n").encode() + data
            client = socket.create_connection(("127.0.0.1", self.cluster.port))
            client.sendall(request)
            self.assertTrue(wait_until(lambda: self.cluster.api.cluster()["requests"]["running"] >= 1, 10))
            client.close()
            self.assertTrue(self.idle())
            self.assertEqual(self.cluster.metrics()[aborted], before + 1)

    def test_72_deadlines(self):
        watch = Stopwatch()
        answer = self.cluster.post(dict(LONG, n=48, timeout=0.05))
        self.assertEqual((answer.status, answer.error["code"], answer.headers["x-should-retry"]), (504, "deadline_exceeded", "false"))
        self.assertLess(watch.seconds(), 1)
        connection, response = self.cluster.open_stream(dict(LONG, n=48, timeout=0.15 * SLOWDOWN))
        text = response.read().decode()
        connection.close()
        self.assertIn('"deadline_exceeded"', text)
        self.assertNotIn("[DONE]", text)
        self.assertTrue(self.idle())

    def test_74_undrain(self):
        running = [self.cluster.open_stream(dict(LONG, seed=i)) for i in range(3)]
        self.assertEqual(self.cluster.admin("/admin/drain", dict(target="cluster")).status, 202)
        answer = self.cluster.post(SHORT)
        self.assertEqual((answer.status, answer.error["code"]), (503, "draining"))
        self.assertTrue(answer.headers["Retry-After"])
        self.assertEqual((self.cluster.get("/ready").status, self.cluster.get("/health", None).status), (503, 200))
        for connection, response in running:
            self.assertTrue(response.read().decode().endswith("data: [DONE]\n\n"))
            connection.close()
        self.assertEqual(self.cluster.admin("/admin/undrain", dict(target="cluster")).status, 202)
        self.assertEqual(self.cluster.post(SHORT).status, 200)

    def test_75_many_streams(self):
        wanted = {seed: joined(self.stream(dict(SHORT, seed=seed, max_tokens=4))[:-1]) for seed in range(10)}
        for part in range(2):
            results = together([lambda i=i: joined(self.stream(dict(SHORT, seed=i % 10, max_tokens=4))[:-1]) for i in range(500)])
            self.assertEqual([r == wanted[i % 10] for i, r in enumerate(results)], [True] * 500, part)

    def resident_kib(self):
        pid = self.cluster.process("coordinator").process.pid
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])

    def mixed_requests(self, count, number):
        random.seed(number)
        connection = self.cluster.connect()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {USER}"}
        for _ in range(count):
            kind = random.choice(("good", "bad", "bad", "cancelled"))
            body = dict(SHORT, max_tokens=2, seed=random.randrange(1000), user=f"{MARKER}-{random.random()}")
            if kind == "bad":
                body["temperature"] = 9
            connection.request("POST", "/v1/completions", json.dumps(dict(body, stream=kind == "cancelled")), headers)
            if kind == "cancelled":
                connection.close()
                connection = self.cluster.connect()
                continue
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200 if kind == "good" else 400)
        connection.close()

    def test_76_ten_thousand_requests_leave_nothing(self):
        together([lambda i=i: self.mixed_requests(125, i) for i in range(8)])
        self.assertTrue(self.idle(20))
        before = self.resident_kib()
        together([lambda i=i: self.mixed_requests(1125, 100 + i) for i in range(8)])
        self.assertTrue(self.idle(20))
        self.assertLessEqual(self.resident_kib(), before * 1.05 + (KEPT_BY_SANITIZERS >> 10))


FAMILIES = """num_requests_running num_requests_waiting request_success_total request_refused_total prompt_tokens_total
generation_tokens_total beam_tokens_total failovers_total cancelled_requests_total time_to_first_token_seconds inter_token_latency_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds
request_decode_time_seconds request_prompt_tokens request_generation_tokens request_params_max_tokens request_params_n
request_params_beam_width iteration_tokens step_seconds kv_cache_usage_perc kv_blocks num_preemptions_total prefix_cache_queries_total
prefix_cache_hits_total spec_decode_num_drafts_total spec_decode_num_draft_tokens_total spec_decode_num_accepted_tokens_total
spec_decode_num_accepted_tokens_per_pos_total spec_decode_layers_total spec_decode_target_passes_total spec_decode_block_efficiency
spec_decode_accepted_width spec_decode_forest_nodes spec_decode_overlap_ratio rounds_without_draft_total draft_round_seconds
draft_wait_seconds verify_seconds bytes_read_total wire_bytes_total replica_up draft_node_up node_last_progress_seconds build_info
model_info http_requests_total http_request_duration_seconds http_connections""".split()


class Metrics(Statements):
    def text(self):
        return self.cluster.get("/metrics", None).data.decode()

    def test_77_the_text_is_wellformed(self):
        families, kinds = {}, {}
        for line in self.text().splitlines():
            if line.startswith("# HELP "):
                families[line.split()[2]] = line.split(" ", 3)[3]
            elif line.startswith("# TYPE "):
                kinds[line.split()[2]] = line.split()[3]
            else:
                match = re.fullmatch(r'([a-z_][a-z0-9_]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
                self.assertTrue(match, line)
                float(match[3].replace("Nan", "nan"))
                base = re.sub("_(bucket|sum|count)$", "", match[1])
                self.assertTrue(match[1] in kinds or kinds.get(base) == "histogram", line)
        self.assertEqual(set(families), set(kinds))
        self.assertTrue(all(families.values()))
        for name, kind in kinds.items():
            self.assertEqual(kind == "counter", name.endswith("_total"), name)
            self.assertNotIn(":", name)

    def test_78_all_metrics_and_bounded_series(self):
        self.served(dict(SHORT, seed=1))
        self.served(dict(SHORT, decoding="beam_sampling", speculative=dict(method="dsbd", draft_width=4, draft_depth=2)))
        names = set(re.findall(r"^# TYPE coppice_(\S+)", self.text(), re.MULTILINE))
        self.assertEqual(set(FAMILIES) - names, set())
        series = set(self.cluster.metrics())
        counters = {s: v for s, v in self.cluster.metrics().items() if re.match(r"\w+_(total|count|sum|bucket)\b", s)}

        def calls(i):
            for k in range(125):
                body = dict(prompt=f"{MARKER} {i}.{k}", user=f"u{i}.{k}", max_tokens=1)
                self.assertEqual(self.cluster.post(body, headers={"X-Request-Id": f"r{i}.{k}"}).status, 200)
        together([lambda i=i: calls(i) for i in range(8)])
        after = self.cluster.metrics()
        self.assertEqual(set(after) - series, set())
        self.assertEqual([s for s, v in counters.items() if after[s] < v], [])

    def test_78_the_dashboard_shows_metrics_that_exist(self):
        names = set(re.findall(r"^# TYPE (\S+)", self.text(), re.MULTILINE)) | {"coppice_energy_joules_total"}  # if metered
        board = json.loads((ROOT / "deploy/grafana.json").read_text())
        shown = set(re.findall(r"coppice_\w+", json.dumps([t["expr"] for p in board["panels"] for t in p["targets"]])))
        self.assertGreater(len(shown), 25)
        self.assertEqual({re.sub("_bucket$", "", name) for name in shown} - names, set())

    def test_79_counters_grow_by_what_usage_says(self):
        label = f'{{model_name="{TARGET.name}"}}'
        before = self.cluster.metrics()
        usages = [self.served(dict(SHORT, seed=i, n=1 + i % 3))["usage"] for i in range(10)]
        after = self.cluster.metrics()
        for name, key in (("prompt_tokens_total", "prompt_tokens"), ("generation_tokens_total", "completion_tokens")):
            self.assertEqual(after[f"coppice_{name}{label}"] - before[f"coppice_{name}{label}"], sum(u[key] for u in usages))
        for name in ("e2e_request_latency_seconds", "time_to_first_token_seconds", "request_prompt_tokens", "request_params_n"):
            self.assertEqual(after[f"coppice_{name}_count{label}"] - before[f"coppice_{name}_count{label}"], 10)

    def test_80_kv_and_cluster(self):
        series = 'coppice_kv_cache_usage_perc{replica="replica-0"}'
        seen = []

        def busy():  # heartbeats tell it twice a second; a request may be over before the next
            connection, response = self.cluster.open_stream(dict(LONG, n=8))
            seen.append(self.cluster.metrics()[series])
            response.read()
            connection.close()
            return seen[-1] > 0

        self.assertTrue(wait_until(busy))
        self.assertTrue(all(0 <= value <= 1 for value in seen))
        self.assertTrue(wait_until(lambda: self.cluster.metrics()[series] == 0))
        state = self.cluster.api.cluster()
        for node in state["replicas"] + state["draft_nodes"]:
            self.assertEqual(node["state"], "ready")
            self.assertGreater(node["kv"]["blocks_total"], 0)
        kv = state["replicas"][0]["kv"]
        self.assertTrue(0 < kv["blocks_total"] <= KV_BLOCKS)
        blocks = {s: v for s, v in self.cluster.metrics().items() if s.startswith("coppice_kv_blocks") and 'replica="replica-0"' in s}
        self.assertEqual(sum(blocks.values()), kv["blocks_total"])
