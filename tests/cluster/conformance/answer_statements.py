"""Statements 36 to 57 and 59: answers, beams, speculation and determinism."""
import itertools
import math

from fixture import BEAMS, PROMPT, SHORT, Statements, essence, together

SAMPLES = dict(seed=7, max_tokens=16, return_token_ids=True)
DISTRIBUTIONS = {
    "multinomial": dict(decoding="multinomial", seed=7),
    "beam_sampling": dict(decoding="beam_sampling", beam_width=4, n=3, seed=7),
    "beam_sampling_without_replacement": dict(decoding="beam_sampling_without_replacement", beam_width=4, n=3, seed=7),
    "beam_search": dict(decoding="beam_search", beam_width=4, n=3),
}


def g_statistic(counts, probabilities, total):
    return 2 * sum(n * math.log(n / (total * probabilities[key])) for key, n in counts.items() if n)


def chi_square_quantile(degrees, z=4.76):
    """Wilson and Hilferty; z = 4.76 is an error of 1e-6."""
    return degrees * (1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3


class Answers(Statements):
    def choice(self, **fields):
        return self.ask(**fields)["choices"][0]

    def test_36_shapes(self):
        answer = self.ask(seed=1)
        self.assertEqual((answer["object"], answer["id"][:5]), ("text_completion", "cmpl-"))
        for key in ("created", "model", "system_fingerprint", "usage", "timings"):
            self.assertIn(key, answer)
        self.assertLessEqual({"index", "text", "finish_reason", "stop_reason", "seed", "score", "joint_logprob", "logprobs"},
                             set(answer["choices"][0]))
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_36_shape_of_a_chat(self):
        answer = self.served(dict(messages=[dict(role="user", content="What is a?")], max_tokens=4), "/v1/chat/completions")
        self.assertEqual((answer["object"], answer["id"][:9]), ("chat.completion", "chatcmpl-"))
        self.assertEqual(set(answer["choices"][0]["message"]), {"role", "content"})
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")

    def test_36_shape_of_a_response(self):
        answer = self.served(dict(input="What is a?", max_output_tokens=4, seed=1), "/v1/responses")
        self.assertEqual((answer["object"], answer["id"][:5], answer["output"][0]["type"]), ("response", "resp_", "message"))
        chat = dict(messages=[dict(role="user", content="What is a?")], max_tokens=4, seed=1)
        text = self.served(chat, "/v1/chat/completions")["choices"][0]["message"]["content"]
        self.assertEqual(answer["output"][0]["content"][0]["text"], text)
        self.assertEqual(answer["usage"]["total_tokens"], answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"])

    def test_36_shape_of_a_message(self):
        chat = dict(messages=[dict(role="user", content="What is a?")], max_tokens=4, seed=1)
        answer = self.served(chat, "/v1/messages")
        self.assertEqual((answer["type"], answer["id"][:4], answer["role"]), ("message", "msg_", "assistant"))
        text = self.served(chat, "/v1/chat/completions")["choices"][0]["message"]["content"]
        self.assertEqual("".join(block["text"] for block in answer["content"]), text)
        counted = self.served(dict(messages=chat["messages"]), "/v1/messages/count_tokens")["input_tokens"]
        self.assertEqual(counted, answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"])

    def test_37_max_and_min_tokens(self):
        for seed in range(5):
            answer = self.ask(max_tokens=5, ignore_eos=True, seed=seed)
            self.assertEqual((answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]), (5, "length"))
            self.assertGreaterEqual(self.ask(min_tokens=10, max_tokens=40, seed=seed)["usage"]["completion_tokens"], 10)

    def test_38_stop_token_ids(self):
        ids = self.choice(**SAMPLES)["token_ids"]
        choice = self.choice(**SAMPLES, stop_token_ids=[ids[4]])
        self.assertEqual(choice["token_ids"], ids[:ids.index(ids[4]) + 1])
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("stop", ids[4]))

    def test_39_logit_bias(self):
        greedy = dict(temperature=0, max_tokens=6, ignore_eos=True, return_token_ids=True)
        self.assertEqual(self.choice(**greedy, logit_bias={"77": 100})["token_ids"], [77] * 6)
        first = self.choice(**greedy)["token_ids"][0]
        self.assertNotIn(first, self.choice(**dict(greedy, max_tokens=1), logit_bias={str(first): -100})["token_ids"])

    def test_40_logprobs(self):
        for temperature in (0, 1):
            choice = self.choice(logprobs=3, temperature=temperature, seed=2, max_tokens=8)
            logprobs = choice["logprobs"]
            lengths = {len(logprobs[key]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
            self.assertEqual(len(lengths), 1)
            for chosen, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
                self.assertGreaterEqual(len(top), 3)
                self.assertTrue(all(value <= 0 for value in [chosen, *top.values()]))
                if temperature == 0:
                    self.assertAlmostEqual(chosen, max(top.values()), places=5)

    def test_41_echo_scores_the_prompt(self):
        answer = self.ask(echo=True, max_tokens=0, logprobs=1)
        choice = answer["choices"][0]
        self.assertEqual((choice["text"], answer["usage"]["completion_tokens"]), (PROMPT, 0))
        values = choice["logprobs"]["token_logprobs"]
        self.assertEqual(len(values), answer["usage"]["prompt_tokens"])
        self.assertIsNone(values[0])
        self.assertTrue(all(value <= 0 for value in values[1:]))

    def test_42_several_prompts(self):
        prompts = ["Once", "One day, Tom", PROMPT]
        whole = self.ask(**SAMPLES, prompt=prompts, n=2)
        self.assertEqual([c["index"] for c in whole["choices"]], list(range(6)))
        for i, prompt in enumerate(prompts):
            alone = self.ask(**SAMPLES, prompt=prompt, n=2)
            self.assertEqual([e[1:] for e in essence(alone)], [e[1:] for e in essence(whole)][2 * i:2 * i + 2])

    def test_43_seeds(self):
        self.assertEqual(self.choice(seed=123)["seed"], 123)
        drawn = self.ask(return_token_ids=True)
        seed = drawn["choices"][0]["seed"]
        self.assertTrue(0 <= seed < 1 << 53)
        self.same(self.ask(seed=seed, return_token_ids=True), drawn)

    def test_44_samples_and_best_of(self):
        several = self.ask(**SAMPLES, n=3)["choices"]
        for i, choice in enumerate(several):
            alone = self.choice(**dict(SAMPLES, seed=7 + i))
            self.assertEqual((choice["token_ids"], choice["text"]), (alone["token_ids"], alone["text"]))
        best = [c["score"] for c in self.ask(**SAMPLES, best_of=4, n=2)["choices"]]
        scores = sorted((self.choice(**dict(SAMPLES, seed=7 + i))["score"] for i in range(4)), reverse=True)
        self.assertEqual(best, scores[:2])


class Beams(Statements):
    def beams(self, **fields):
        return self.ask(**dict(BEAMS, return_token_ids=True, **fields))

    def test_45_use_beam_search_alone(self):
        self.same(self.ask(use_beam_search=True, return_token_ids=True), self.beams(n=1))

    def test_46_spellings(self):
        wanted = self.ask(decoding="beam_search", beam_width=3, n=3, return_token_ids=True)
        for fields in (dict(use_beam_search=True, n=3), dict(num_beams=3, n=3), dict(use_beam_search=True, best_of=3, n=3)):
            self.same(self.ask(**fields, return_token_ids=True), wanted)

    def test_47_width_1_is_greedy(self):
        self.same(self.ask(decoding="beam_search", beam_width=1, return_token_ids=True), self.ask(temperature=0, return_token_ids=True))

    def test_48_scores(self):
        for penalty in (0, 1, 2):
            choices = self.beams(n=4, length_penalty=penalty)["choices"]
            self.assertEqual(len({tuple(c["token_ids"]) for c in choices}), 4)
            scores = [c["score"] for c in choices]
            self.assertEqual(scores, sorted(scores, reverse=True))
            for c in choices:
                self.assertAlmostEqual(c["score"], c["joint_logprob"] / len(c["token_ids"]) ** penalty, delta=1e-5)

    def test_49_joint_logprob_is_the_sum(self):
        choices = self.beams(n=4, logprobs=0)["choices"]
        for choice in choices:
            self.assertAlmostEqual(sum(choice["logprobs"]["token_logprobs"]), choice["joint_logprob"], delta=1e-3)
            prompt = choice["prompt_token_ids"] + choice["token_ids"]
            scored = self.ask(prompt=prompt, echo=True, max_tokens=0, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"]
            self.assertAlmostEqual(sum(scored[-len(choice["token_ids"]):]), choice["joint_logprob"], delta=1e-3)

    def test_50_fewer_choices_are_the_first(self):
        self.assertEqual(essence(self.beams(n=2)), essence(self.beams(n=4))[:2])

    def test_51_early_stopping(self):
        best = {stop: self.beams(early_stopping=stop, length_penalty=0.5)["choices"][0]["score"] for stop in (True, "never")}
        self.assertLessEqual(best[True], best["never"] + 1e-9)
        self.same(self.beams(early_stopping=False), self.beams(early_stopping="never"))

    def test_52_sampled_beams(self):
        for distribution in ("beam_sampling", "beam_sampling_without_replacement"):
            body = dict(decoding=distribution, beam_width=4, n=4, seed=3, return_token_ids=True)
            choices = self.ask(**body)["choices"]
            self.assertTrue(1 <= len(choices) <= 4)
            self.assertEqual(len({tuple(c["token_ids"]) for c in choices}), len(choices))
            self.same(self.ask(**body), self.ask(**body))

    def test_53_stop_with_beams(self):
        able = self.cluster.get("/v1/models").json["data"][0]["capabilities"]["stop_with_beams"]
        stop = self.cluster.post(dict(SHORT, **BEAMS)).json["choices"][0]["text"].split()[2]
        answer = self.cluster.post(dict(SHORT, **BEAMS, stop=stop))
        if able:
            self.assertEqual(answer.status, 200)
            self.assertNotIn(stop, answer.json["choices"][0]["text"])
        else:
            self.assertEqual((answer.status, answer.error["code"]), (400, "unsupported_combination"))
        self.assertTrue(able)  # docs/api.md 1: the server says so


class Speculation(Statements):
    def test_54_speculation_changes_no_answer(self):
        shapes = [dict(draft_width=w, draft_depth=d) for w, d in itertools.product((1, 4, 16), (1, 4, 8))]
        for name, distribution in DISTRIBUTIONS.items():
            for seed in range(20 if name != "beam_search" else 1):
                body = dict(distribution, max_tokens=10, return_token_ids=True, prompt=PROMPT, seed=seed)
                answers = together([lambda s=s: self.served(dict(body, speculative=s)) for s in [False, "auto", *shapes]])
                for answer in answers[1:]:
                    self.assertEqual(essence(answer), essence(answers[0]), (name, seed))

    def test_55_other_requests_change_no_answer(self):
        for distribution in DISTRIBUTIONS.values():
            body = dict(distribution, max_tokens=16, return_token_ids=True, prompt=PROMPT)
            alone = self.served(body)
            others = [dict(DISTRIBUTIONS[name], prompt=f"Day {i}", max_tokens=20) for i, name in enumerate([*DISTRIBUTIONS, *DISTRIBUTIONS])]
            answers = together([lambda b=b: self.served(b) for b in [body, *others]])
            self.same(answers[0], alone)

    def test_56_layers_and_passes(self):
        body = dict(seed=7, max_tokens=8, ignore_eos=True)
        plain = self.ask(**body, speculative=False)["usage"]["speculation"]
        self.assertEqual((plain["drafted_nodes"], plain["block_efficiency"]), (0, 1))
        drafted = self.ask(**body, speculative=dict(draft_width=4, draft_depth=4))["usage"]["speculation"]
        self.assertEqual(drafted["layers"], plain["layers"])
        self.assertLessEqual(drafted["target_passes"], plain["target_passes"])

    def test_57_accepted_nodes(self):
        for distribution in DISTRIBUTIONS.values():
            stats = self.ask(**distribution, speculative=dict(draft_width=8, draft_depth=4))["usage"]["speculation"]
            self.assertEqual(sum(stats["accepted_by_layer"]), stats["accepted_nodes"])
            self.assertLessEqual(stats["accepted_nodes"], stats["drafted_nodes"])

    def test_59_the_distribution_of_two_tokens(self):
        shape = dict(max_tokens=2, top_k=4, ignore_eos=True, return_token_ids=True, prompt=PROMPT)
        able = self.cluster.get("/v1/models").json["data"][0]["capabilities"]["methods"]
        methods = [m["name"] for m in able if m["lossless"] and "multinomial" in m["decodings"] and not m["greedy_only"]]
        self.assertGreaterEqual(len(methods), 2)
        probabilities = self.distribution_of_two_tokens(shape)
        for number, method in enumerate(methods):
            counts = dict.fromkeys(probabilities, 0)
            bodies = [dict(shape, n=50, seed=10 ** 6 * number + 50 * i, speculative=dict(method=method)) for i in range(40)]
            for i in range(0, 40, 4):
                for answer in together([lambda b=b: self.served(b) for b in bodies[i:i + 4]]):
                    for choice in answer["choices"]:
                        counts[tuple(choice["token_ids"])] += 1  # KeyError: a pair outside of the four most likely
            self.assertEqual(sum(counts.values()), 2000)
            g = g_statistic(counts, probabilities, 2000)
            self.assertLess(g, chi_square_quantile(len(probabilities) - 1), method)

    def distribution_of_two_tokens(self, shape):
        """{(first, second): probability} over the four most likely tokens at each place; the best 4 of beam search score them."""
        ids = self.served(dict(prompt=shape["prompt"]), "/tokenize")["tokens"]
        first = self.most_likely(ids)
        distribution = {}
        for a, p in first.items():
            for b, q in self.most_likely(ids + [a]).items():
                distribution[a, b] = p * q
        return distribution

    def most_likely(self, ids):
        """{token: probability among the four most likely next tokens}"""
        answer = self.ask(prompt=ids, decoding="beam_search", beam_width=4, n=4, max_tokens=1, ignore_eos=True, return_token_ids=True)
        weights = {c["token_ids"][0]: math.exp(c["joint_logprob"]) for c in answer["choices"]}
        total = sum(weights.values())
        return {token: weight / total for token, weight in weights.items()}
