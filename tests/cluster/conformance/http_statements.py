"""Statements 3 to 35 and 81 to 84: HTTP, keys, models and tokens, validation."""
import email.utils
import gzip
import json
import pathlib
import signal
import socket
import time

from fixture import ADMIN, CONTEXT, MAX_BODY, ORIGIN, PROMPT, SHORT, USER, Statements, Stopwatch, at_most, wait_until

TEXTS = ["plain ascii", "Grüße aus Köln, ça va", "東京都の人口", "faces 😀👩‍👧 end"]


def head(method, path, *lines):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {USER}", *lines, "", ""]).encode()


class Http(Statements):
    def code(self, answer, status):
        self.assertEqual(answer.status, status, answer.data)
        return answer.error["code"]

    def test_03_unknown_paths_and_methods(self):
        self.assertEqual(self.code(self.cluster.get("/v1/nothing"), 404), "unknown_route")
        answer = self.cluster.get("/v1/completions")
        self.assertEqual((self.code(answer, 405), answer.headers["Allow"]), ("method_not_allowed", "POST, OPTIONS"))

    def test_04_content_types(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = self.cluster.post(SHORT, headers={"Content-Type": kind})
            self.assertEqual(self.code(answer, 415), "unsupported_media_type")
        for headers in ({}, {"Content-Type": "application/json; charset=utf-8"}, {"Content-Type": "application/vnd.api+json"}):
            self.assertEqual(self.cluster.call("POST", "/v1/completions", SHORT, headers=headers).status, 200)

    def test_05_malformed_json(self):
        deep = b'{"prompt": ' + b"[" * 32 + b"]" * 32 + b"}"
        for data in (b'{"prompt": ', b"[]", b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', deep):
            self.assertEqual(self.code(self.cluster.post(data), 400), "invalid_json", data[:40])

    def test_06_large_bodies_and_expect(self):
        received = self.cluster.raw(head("POST", "/v1/completions", f"Content-Length: {MAX_BODY + 1}"))
        self.assertTrue(received.startswith(b"HTTP/1.1 413"), received)
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        received = self.cluster.raw(head("POST", "/v1/completions", "Transfer-Encoding: chunked") + chunk * 5)
        self.assertTrue(received.startswith(b"HTTP/1.1 413"), received)
        received = self.cluster.raw(head("POST", "/v1/completions", "Content-Length: 2", "Expect: 100-continue"))
        self.assertTrue(received.startswith(b"HTTP/1.1 100"), received)

    def test_07_large_heads(self):
        self.assertTrue(self.cluster.raw(head("GET", "/health", "X-A: " + "a" * (17 << 10))).startswith(b"HTTP/1.1 431"))
        self.assertTrue(self.cluster.raw(head("GET", "/" + "a" * (9 << 10))).startswith(b"HTTP/1.1 414"))
        received = self.cluster.raw(head("POST", "/v1/completions", "Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
                                    until=b"never")
        self.assertTrue(received.startswith(b"HTTP/1.1 400"), received)  # and the connection has closed

    def test_08_a_header_line_that_is_left_unfinished(self):
        with socket.create_connection(("127.0.0.1", self.cluster.port), timeout=at_most(30)) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
            start = time.monotonic()
            self.assertEqual(self.cluster.post(SHORT).status, 200)
            received = slow.recv(1000)
            self.assertTrue(received == b"" or received.startswith(b"HTTP/1.1 408"), received)
            self.assertGreater(time.monotonic() - start, 5)

    def test_09_connections_stay_open_or_close(self):
        connection = self.cluster.connect()
        for _ in range(2):
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().read(), b'{"status":"ok"}')
        connection.close()
        received = self.cluster.raw(head("GET", "/health", "Connection: close"), until=b"never")
        self.assertIn(b"Connection: close", received)

    def test_10_request_ids(self):
        for path, status in (("/health", 200), ("/v1/nothing", 404)):
            answer = self.cluster.call("GET", path, headers={"X-Request-Id": "a.B-1_2:3"})
            self.assertEqual((answer.status, answer.headers["X-Request-Id"]), (status, "a.B-1_2:3"))
            self.assertEqual(len({self.cluster.get(path).headers["X-Request-Id"] for _ in range(3)}), 3)
        bad = self.cluster.post({}, headers={"X-Request-Id": "mine"})
        self.assertEqual((bad.status, bad.headers["X-Request-Id"]), (400, "mine"))
        self.assertEqual(self.code(self.cluster.call("GET", "/health", headers={"X-Request-Id": "two words"}), 400), "invalid_header")

    def test_11_every_refusal_is_json(self):
        wrong = [self.cluster.get("/v1/nothing"), self.cluster.get("/v1/completions"), self.cluster.post(b"{"),
                 self.cluster.post(b"a", headers={"Content-Type": "text/plain"}), self.cluster.post({}, key=None),
                 self.cluster.post({}, key="x"), self.cluster.get("/cluster"), self.cluster.get("/v1/models/other"),
                 self.cluster.post(dict(SHORT, temperature=9)), self.cluster.call("GET", "/health", headers={"X-Request-Id": " x y"})]
        for answer in wrong:
            self.assertGreaterEqual(answer.status, 400)
            self.assertEqual(set(answer.error), {"message", "type", "param", "code"})
            self.assertTrue(answer.error["message"] and answer.error["type"] and answer.error["code"])

    def test_12_user_keys(self):
        calls = [("GET", "/v1/models", None), ("POST", "/tokenize", dict(prompt="a")), ("POST", "/detokenize", dict(tokens=[5])),
                 ("POST", "/v1/completions", SHORT), ("POST", "/v1/chat/completions", dict(messages=[])),
                 ("POST", "/v1/responses", dict(input="a")), ("POST", "/v1/messages", dict(messages=[])),
                 ("POST", "/v1/messages/count_tokens", dict(messages=[])), ("GET", "/tokenizer_info", None)]
        for method, path, body in calls:
            answer = self.cluster.call(method, path, body, key=None)
            self.assertEqual(self.code(answer, 401), "missing_api_key")
            self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
            for key in (USER[:-1], USER + "x", "completely-other-key"):
                self.assertEqual(self.code(self.cluster.call(method, path, body, key=key), 401), "invalid_api_key")

    def test_13_admin_keys(self):
        for method, path, body in (("GET", "/cluster", None), ("POST", "/admin/drain", dict(target="nothing"))):
            self.assertEqual(self.code(self.cluster.call(method, path, body), 403), "admin_only")
            self.assertNotIn(self.cluster.call(method, path, body, key=ADMIN).status, (401, 403))

    def test_14_sighup_reloads_keys(self):
        users = pathlib.Path(self.cluster.keys.name, "users")
        before, other = users.read_text(), "another-key-0123456789"
        try:
            users.write_text(other)
            self.cluster.process("coordinator").process.send_signal(signal.SIGHUP)
            self.assertTrue(wait_until(lambda: self.cluster.get("/v1/models", other).status == 200))
            self.assertEqual(self.code(self.cluster.get("/v1/models"), 401), "invalid_api_key")
        finally:
            users.write_text(before)
            self.cluster.process("coordinator").process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_until(lambda: self.cluster.get("/v1/models").status == 200))


    def status(self, data):
        """The status of the answer to these bytes."""
        received = self.cluster.raw(data)
        self.assertTrue(received.startswith(b"HTTP/1.1 "), received)
        return int(received[9:12])

    def test_81_methods_and_dates(self):
        for path in ("/health", "/ready", "/version", "/v1/models", "/openapi.json", "/metrics", "/cluster"):
            get, of_head = (self.cluster.call(method, path, key=ADMIN) for method in ("GET", "HEAD"))
            self.assertEqual((of_head.status, of_head.headers["Content-Type"], of_head.data), (get.status, get.headers["Content-Type"], b""))
            if path not in ("/metrics", "/cluster"):  # they change
                self.assertEqual(of_head.headers["Content-Length"], str(len(get.data)))
        for path, allowed in (("/v1/completions", "POST, OPTIONS"), ("/v1/models", "GET, HEAD, OPTIONS"), ("/cluster", "GET, HEAD, OPTIONS"),
                              ("*", "GET, HEAD, POST, DELETE, OPTIONS")):
            answer = self.cluster.call("OPTIONS", path, key=None)
            self.assertEqual((answer.status, answer.headers["Allow"], answer.headers["Content-Length"]), (204, allowed, None))
        self.assertEqual(self.status(head("BREW", "/health")), 501)
        self.assertEqual(self.status(b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n"), 505)
        self.assertEqual(self.status(head("GET", "/health", "Expect: x")), 417)
        for answer in (self.cluster.get("/health"), self.cluster.get("/nothing"), self.cluster.post(b"{"), self.cluster.post(SHORT)):
            date = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
            self.assertLess(abs(time.time() - date), at_most(60))

    def test_82_heads(self):
        get = b"GET /health HTTP/1.1\r\n"
        for bad in (get + b"\r\n", get + b"Host: x\r\nHost: x\r\n\r\n", get + b"Host: a b\r\n\r\n", get + b"Host : x\r\n\r\n",
                    get + b"Host: x\nX-A: b\r\n\r\n", b"GET health HTTP/1.1\r\nHost: x\r\n\r\n"):
            self.assertEqual(self.status(bad), 400, bad)
        for good in (head("GET", "http://elsewhere:1/health"), head("GET", "/h%65alth?a=b"), b"\r\n\r\n" + head("GET", "/health"),
                     head("GET", "/health", "Connection: Upgrade", "Upgrade: h2c"), b"GET /health HTTP/1.0\r\n\r\n"):
            self.assertEqual(self.status(good), 200, good)
        body = json.dumps(dict(SHORT, stream=True)).encode()
        received = self.cluster.raw(b"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
                                    % (USER.encode(), len(body), body), until=b"never")
        headers, _, events = received.partition(b"\r\n\r\n")
        self.assertNotIn(b"Transfer-Encoding", headers)
        self.assertTrue(events.startswith(b"data: ") and events.endswith(b"data: [DONE]\n\n"), events)

    def test_83_gzip(self):
        def both(*call):
            """The same without a coding and in gzip, unpacked."""
            plain, packed = (self.cluster.call(*call, headers={"Content-Type": "application/json", **more})
                             for more in ({}, {"Accept-Encoding": "br;q=0.9, gzip;q=0.5"}))
            self.assertEqual([a.headers["Content-Encoding"] for a in (plain, packed)], [None, "gzip"])
            self.assertEqual([sorted(a.headers.get_all("Vary")) for a in (plain, packed)], 2 * [["Accept-Encoding", "Origin"]])
            return plain.data, gzip.decompress(packed.data)
        for path in ("/openapi.json", "/v1/models"):
            plain, packed = both("GET", path)
            self.assertEqual(plain, packed)
        self.assertIn(b"# TYPE coppice_", both("GET", "/metrics")[1])
        long = dict(SHORT, max_tokens=60, logprobs=20, seed=1, ignore_eos=True)
        plain, packed = map(json.loads, both("POST", "/v1/completions", long))
        self.same(plain, packed)
        small = self.cluster.call("GET", "/health", headers={"Accept-Encoding": "gzip"})
        self.assertEqual((small.headers["Content-Encoding"], small.data), (None, b'{"status":"ok"}'))
        packed = {"Content-Encoding": "gzip"}
        self.same(self.cluster.post(gzip.compress(json.dumps(dict(SHORT, seed=1)).encode()), headers=packed).json, self.ask(seed=1))
        bomb = gzip.compress(json.dumps(dict(prompt="a" * MAX_BODY)).encode())
        self.assertEqual(self.code(self.cluster.post(bomb, headers=packed), 413), "body_too_large")
        self.assertEqual(self.code(self.cluster.post(SHORT, headers=packed), 400), "invalid_body")
        refused = self.cluster.post(SHORT, headers={"Content-Encoding": "br"})
        self.assertEqual((self.code(refused, 415), refused.headers["Accept-Encoding"]), ("unsupported_media_type", "gzip, identity"))
        stream = self.cluster.post(dict(SHORT, stream=True), headers={"Accept-Encoding": "gzip"})
        self.assertEqual((stream.headers["Content-Encoding"], stream.data[:6]), (None, b"data: "))

    def test_84_web_pages(self):
        ask = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        preflight = self.cluster.call("OPTIONS", "/v1/chat/completions", key=None, headers=ask)
        self.assertEqual((preflight.status, preflight.headers["Access-Control-Allow-Origin"]), (204, ORIGIN))
        self.assertIn("POST", preflight.headers["Access-Control-Allow-Methods"])
        self.assertIn("Authorization", preflight.headers["Access-Control-Allow-Headers"])
        self.assertEqual(preflight.headers["Access-Control-Max-Age"], "7200")
        post = ("POST", "/v1/completions")
        for status, call, key in ((200, (*post, SHORT), USER), (200, (*post, dict(SHORT, stream=True)), USER), (400, (*post, b"{"), USER),
                                  (401, (*post, SHORT), None), (404, ("GET", "/nothing"), USER), (403, ("GET", "/cluster"), USER)):
            answer = self.cluster.call(*call, key=key, headers={"Origin": ORIGIN, "Content-Type": "application/json"})
            self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]), (status, ORIGIN))
            self.assertIn("X-Request-Id", answer.headers["Access-Control-Expose-Headers"])
            self.assertIn("Origin", answer.headers["Vary"])
            other = self.cluster.call(*call, key=key, headers={"Origin": "https://other.example", "Content-Type": "application/json"})
            self.assertEqual((other.status, other.headers["Access-Control-Allow-Origin"]), (status, None))


class ModelsAndTokens(Statements):
    def test_16_models(self):
        listed = self.cluster.get("/v1/models").json["data"]
        self.assertEqual(len(listed), 1)
        self.assertLessEqual({"id", "object", "created", "owned_by", "max_model_len", "capabilities"}, set(listed[0]))
        self.assertEqual(self.cluster.get("/v1/models/" + listed[0]["id"]).json, listed[0])
        self.assertEqual(self.cluster.get("/v1/models/other").status, 404)

    def test_17_the_model_of_a_request(self):
        answer = self.cluster.post(dict(SHORT, model="other"))
        self.assertEqual((answer.status, answer.error["code"]), (404, "model_not_found"))
        self.ask()

    def test_18_tokenize_counts_as_usage_does(self):
        for prompt in [PROMPT, *TEXTS]:
            tokens = self.served(dict(prompt=prompt), "/tokenize")
            self.assertEqual(tokens["count"], len(tokens["tokens"]))
            self.assertEqual(tokens["count"], self.ask(prompt=prompt, max_tokens=1)["usage"]["prompt_tokens"])

    def test_19_detokenize_inverts_tokenize(self):
        for text in TEXTS:
            tokens = self.served(dict(prompt=text, add_special_tokens=False), "/tokenize")["tokens"]
            self.assertEqual(self.served(dict(tokens=tokens), "/detokenize")["prompt"], text)

    def test_20_prompts_of_token_ids(self):
        ids = self.served(dict(prompt=PROMPT), "/tokenize")["tokens"]
        self.same(self.ask(prompt=ids, seed=3, return_token_ids=True), self.ask(seed=3, return_token_ids=True))
        self.refused(dict(prompt=[512]), "prompt")

    def test_21_prompt_and_text_join(self):
        for seed in range(5):
            choice = self.ask(seed=seed, ignore_eos=True, return_token_ids=True)["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")

            def text(ids):
                return self.served(dict(tokens=ids), "/detokenize")["prompt"]
            self.assertEqual(text(choice["prompt_token_ids"] + choice["token_ids"]), text(choice["prompt_token_ids"]) + choice["text"])


class Validation(Statements):
    def all_refused(self, cases, code=None):
        for fields, param in cases:
            with self.subTest(json.dumps(fields)[:60]):
                answer = self.cluster.post(dict(dict(prompt="a"), **fields))
                self.assertEqual(answer.status, 400, answer.data)
                self.assertEqual(answer.error["param"], param, answer.error)
                if code:
                    self.assertEqual(answer.error["code"], code)
                    self.assertIn(param.split(".")[-1], answer.error["message"])

    def test_22_sampling_ranges(self):
        self.all_refused([({"temperature": v}, "temperature") for v in (-0.1, 2.1, "1")] + [({"top_p": v}, "top_p") for v in (0, 1.1)] +
                         [({"min_p": -0.1}, "min_p"), ({"top_k": -2}, "top_k")])

    def test_23_counts(self):
        self.all_refused([({"n": v}, "n") for v in (0, 1.5, True)] + [({"max_tokens": v}, "max_tokens") for v in (-2, 0)] +
                         [({"min_tokens": 5, "max_tokens": 4}, "min_tokens")])

    def test_24_prompts_and_messages(self):
        self.refused({}, "prompt", "missing_field")
        for prompt in ([], [[]], ["a", 1], [1, "a"], [[1], "a"], 7):
            self.assertEqual(self.cluster.post(dict(prompt=prompt)).error["param"], "prompt", prompt)
        chat = "/v1/chat/completions"
        for messages, param in (([], "messages"), ([dict(role="owner", content="a")], "messages[0].role"),
                                ([dict(role="user", content=[dict(type="image_url", image_url={})])], "messages[0].content[0].type")):
            answer = self.cluster.post(dict(messages=messages), chat)
            self.assertEqual((answer.status, answer.error["param"]), (400, param), answer.error)

    def test_25_stops_and_bias(self):
        self.all_refused([({"stop": ["a"] * 17}, "stop"), ({"logit_bias": {"5": 101}}, "logit_bias"),
                          ({"logit_bias": {"x": 1}}, "logit_bias"), ({"logit_bias": {"512": 1}}, "logit_bias")])

    def test_26_further_ranges(self):
        self.all_refused([({"logprobs": 21}, "logprobs"), ({"logprobs": -1}, "logprobs"), ({"beam_width": 9}, "beam_width"),
                          ({"beam_width": 0}, "beam_width"), ({"seed": 1 << 63}, "seed"), ({"timeout": 0}, "timeout")])

    def test_27_unknown_unsupported_and_penalties(self):
        answer = self.cluster.post(dict(SHORT, foo=1, store=True, stream_options=dict(include_usage=True), length_penalty=2, stop="", tools=[]))
        self.assertEqual(answer.status, 200, answer.data)
        self.assertEqual(sorted(answer.headers["X-Coppice-Ignored"].split(",")), ["foo", "length_penalty", "store", "stream_options"])
        self.refused(dict(SHORT, suffix="x"), "suffix", "unsupported_field")
        self.refused(dict(SHORT, **{"warp_mode": "row"}), "warp_mode", "unknown_field")
        answer = self.cluster.post(dict(SHORT, speculative=dict(method="pf_gumbel")))
        self.assertEqual((answer.status, answer.error["param"]), (400, "speculative.method"))
        self.assertIn("is now called gumbel_coupling", answer.error["message"])
        self.ask(suffix=None)
        plain = dict(max_tokens=40, temperature=0, ignore_eos=True)
        for name, neutral, value in (("presence_penalty", 0, 1.5), ("repetition_penalty", 1.0, 1.2)):
            self.same(self.ask(**plain, **{name: neutral}), self.ask(**plain))
            self.assertNotEqual(self.ask(**plain, **{name: value})["choices"][0]["text"], self.ask(**plain)["choices"][0]["text"])
            self.assertEqual(self.cluster.post(dict(SHORT, **{name: 2.1})).error["param"], name)

    def test_28_aliases(self):
        body = dict(SHORT, use_beam_search=True, beam_width=4)
        self.refused(dict(body, num_beams=5), "beam_width", "conflicting_fields")
        self.served(dict(body, num_beams=4))

    def combination(self, fields, both):
        answer = self.cluster.post(dict(SHORT, **fields))
        self.assertEqual(answer.status, 400, (fields, answer.data))
        self.assertEqual(answer.error["code"], "unsupported_combination", answer.error)
        for name in both:
            self.assertIn(name, answer.error["message"])
        self.assertTrue(any(name in answer.error["param"] for name in both), answer.error)

    def test_29_combinations_with_beam_search(self):
        search = dict(decoding="beam_search", beam_width=4)
        self.combination(dict(search, temperature=0.7), ("temperature", "beam_search"))
        self.combination(dict(search, top_k=5), ("top_k", "beam_search"))
        self.combination(dict(search, n=5), ("n", "beam_width"))

    def test_30_combinations_of_samples(self):
        self.combination(dict(decoding="beam_sampling", beam_width=4, temperature=0), ("temperature", "beam_sampling"))
        for fields in (dict(beam_width=2), dict(beam_duplicates="once")):
            self.combination(dict(fields, decoding="multinomial"), (*fields, "multinomial"))
        self.combination(dict(best_of=2, stream=True), ("best_of", "stream"))

    def test_31_methods(self):
        self.combination(dict(decoding="beam_search", speculative=dict(method="gumbel_top_k")), ("method", "beam_search"))
        self.combination(dict(decoding="beam_sampling", speculative=dict(method="dsbd", width_threshold=0.5)), ("width_threshold", "allow_lossy"))

    def test_32_the_context(self):
        answer = self.cluster.post(dict(SHORT, max_tokens=CONTEXT))
        self.assertEqual((answer.status, answer.error["code"]), (400, "context_length_exceeded"))
        self.assertIn(answer.error["param"], ("max_tokens", "prompt"))
        self.served(dict(prompt=PROMPT))

    def test_33_the_kv_pool(self):
        watch = Stopwatch()
        answer = self.cluster.post(dict(SHORT, decoding="beam_search", beam_width=8, max_tokens=190, speculative=dict(draft_width=64, draft_depth=16)))
        self.assertEqual((answer.status, answer.error["code"]), (400, "kv_capacity_exceeded"), answer.error)
        self.assertIn(f"has {self.cluster.api.cluster()['replicas'][0]['kv']['blocks_total']}", answer.error["message"])
        self.assertLess(watch.seconds(), 1)

    def test_34_every_pair_of_decoding_and_method(self):
        able = self.cluster.get("/v1/models").json["data"][0]["capabilities"]
        for decoding in able["decodings"]:
            for method in able["speculative_methods"]:
                fields = dict(decoding=decoding, speculative=dict(method=method, allow_lossy=True))
                answer = self.cluster.post(dict(SHORT, max_tokens=4, **fields))
                if answer.status != 200:
                    self.assertEqual((answer.status, answer.error["code"]), (400, "unsupported_combination"), (fields, answer.error))

    def test_35_null_is_absent(self):
        fields = self.cluster.get("/openapi.json").json["components"]["schemas"]["CompletionRequest"]["properties"]
        self.assertGreater(len(fields), 50)
        plain = self.ask(seed=5, return_token_ids=True)
        for name in sorted(set(fields) - {"prompt", "seed", "return_token_ids", "max_tokens", "max_completion_tokens", "max_new_tokens"}):
            self.same(self.ask(seed=5, return_token_ids=True, **{name: None}), plain)
        self.same(self.served(dict(prompt=PROMPT, max_tokens=None, seed=5)), self.served(dict(prompt=PROMPT, seed=5)))
