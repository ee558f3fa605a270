#!/usr/bin/env python3
"""`trace` of a whole cluster (docs/api.md 3.3): what it shows adds up to the statistics and texts of the answer, streamed or not, for
every method and decoding; it changes no token; and the notebook that explains it runs."""
import json
import os
import signal
import unittest

from cluster import ROOT, Cluster, send_signal

PROMPT = "One day, Tom and his mom went to the store."


class Tree:
    """What someone who sees only the rounds knows about one sequence."""

    def __init__(self):
        self.run, self.parent, self.token, self.text = 0, {0: None}, {0: None}, {0: ""}
        self.nodes = self.accepted = self.layers = self.rounds = self.own = 0
        self.beams, self.log_probs = [], []

    def add(self, test, round_):
        if round_["run"] > self.run:
            self.__init__()
            self.run = round_["run"]
        test.assertEqual(round_["round"], self.rounds)
        self.rounds += 1
        for root in round_["roots"]:
            test.assertIn(root, self.parent)
        for path in round_["paths"]:
            test.assertEqual(path["path"], len(self.parent))
            test.assertIn(path["parent"], self.parent)
            for field in ("parent", "token", "text"):
                getattr(self, field)[path["path"]] = path[field]
        drafted = set()
        for node in round_["nodes"]:
            if "log_prob" in node:
                test.assertLessEqual(node["log_prob"], 1e-9)
                self.log_probs.append(node["log_prob"])
            if "path" not in node:
                continue
            drafted.add(node["path"])
            above = node["parent"]
            above = round_["roots"][-1 - above] if above < 0 else round_["nodes"][above]["path"]
            test.assertEqual((self.parent[node["path"]], self.token[node["path"]]), (above, node["token"]))
        self.nodes += len(round_["nodes"])
        self.accepted += len(drafted)
        self.own += len(round_["paths"]) - len(drafted)
        self.layers += round_["layers"] if round_["round"] > 0 else 0
        self.beams = round_["beams"]
        for name in ("time_ms", "round_ms", "draft_wait_ms", "draft_ms", "forward_ms", "decision_ms"):
            test.assertGreaterEqual(round_[name], 0)

    def tokens(self, path):
        return [] if path == 0 else self.tokens(self.parent[path]) + [self.token[path]]


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(tp=1, drafts=1)
        cls.cluster.__enter__()
        cls.api = cls.cluster.api
        cls.rows = json.loads(cls.api.get("/v1/models")[1])["data"][0]["capabilities"]["methods"]

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__(None)

    def trees(self, rounds):
        trees = {}
        for round_ in rounds:
            trees.setdefault((round_["prompt"], round_["sample"]), Tree()).add(self, round_)
        return trees

    def check(self, answer, usage, choices):
        trees = self.trees(answer)
        statistics = usage["speculation"]
        self.assertEqual(sum(t.nodes for t in trees.values()), statistics["drafted_nodes"])
        self.assertEqual(sum(t.accepted for t in trees.values()), statistics["accepted_nodes"])
        self.assertEqual(sum(t.layers for t in trees.values()), statistics["layers"])
        shown = {tuple(t.tokens(path)) for t in trees.values() for path in t.parent}
        for choice in choices:
            self.assertIn(tuple(choice["token_ids"]), shown)
        return trees

    def test_the_rounds_are_those_of_the_answer_for_every_method_and_decoding(self):
        drafted = 0
        for row in self.rows:
            for decoding in row["decodings"]:
                body = dict(prompt=PROMPT, seed=4, max_tokens=14, decoding=decoding, return_token_ids=True,
                            speculative=dict(method=row["name"], **({} if row["lossless"] else dict(allow_lossy=True))))
                if row["draft_form"] != "none":
                    body["speculative"]["draft_depth"] = 3
                if decoding != "multinomial":
                    body.update(beam_width=3, n=3)
                elif row["greedy_only"]:
                    body.update(temperature=0)
                with self.subTest(row["name"], decoding=decoding):
                    plain = self.api.complete(body)
                    traced = self.api.complete(dict(body, trace=True))
                    self.assertNotIn("trace", plain)
                    if row["reproducible"]:
                        self.assertEqual([c["token_ids"] for c in traced["choices"]], [c["token_ids"] for c in plain["choices"]])
                    trees = self.check(traced["trace"], traced["usage"], traced["choices"])
                    if row["draft_form"] != "none":
                        drafted += sum(t.nodes for t in trees.values())
                        probable = sum(len(t.log_probs) for t in trees.values())
                        self.assertGreater(probable, 0.5 * sum(t.nodes for t in trees.values()))
        self.assertGreater(drafted, 100)

    def test_samples_and_prompts_have_rounds_of_their_own(self):
        body = dict(prompt=[PROMPT, "The big dog ran to the park and"], n=3, seed=2, max_tokens=12, trace=True, return_token_ids=True)
        answer = self.api.complete(body)
        trees = self.check(answer["trace"], answer["usage"], answer["choices"])
        self.assertEqual(sorted(trees), [(prompt, sample) for prompt in range(2) for sample in range(3)])
        for i, choice in enumerate(answer["choices"]):
            tree = trees[divmod(i, 3)]
            self.assertEqual(tree.tokens(tree.beams[0]["path"]), choice["token_ids"])

    def test_a_stream_shows_every_round_before_its_text(self):
        for fields in (dict(), dict(use_beam_search=True, n=4, beam_width=4), dict(decoding="beam_sampling", n=2, beam_width=4)):
            for path, question in (("/v1/completions", dict(prompt=PROMPT)),):
                with self.subTest(fields):
                    body = dict(question, seed=3, max_tokens=24, return_token_ids=True, stream_options=dict(include_usage=True), **fields)
                    plain = self.api.complete({k: v for k, v in body.items() if k != "stream_options"}, path)
                    rounds, known, texts, usage = [], {()}, {}, None
                    for event in self.api.stream(dict(body, trace=True), path=path):
                        if event == "[DONE]":
                            continue
                        usage = event["usage"] or usage
                        if "trace" in event:
                            self.assertEqual(event["choices"], [])
                            rounds += event["trace"]
                            known = {tuple(t.tokens(p)) for t in self.trees(rounds).values() for p in t.parent}
                        for choice in event["choices"]:
                            tokens = texts.setdefault(choice["index"], [])
                            tokens += choice["token_ids"]
                            self.assertIn(tuple(tokens), known)
                    self.assertEqual(texts, {c["index"]: c["token_ids"] for c in plain["choices"]})
                    self.check(rounds, usage, [dict(token_ids=tokens) for tokens in texts.values()])
                    self.assertGreater(len(rounds), 2)

    def test_without_drafts_a_round_has_no_nodes(self):
        answer = self.api.complete(dict(prompt=PROMPT, max_tokens=6, trace=True, speculative=False, return_token_ids=True))
        (tree,) = self.check(answer["trace"], answer["usage"], answer["choices"]).values()
        self.assertEqual((tree.nodes, tree.own), (0, len(answer["choices"][0]["token_ids"])))

    def test_bad_values_are_refused(self):
        status, answer = self.api.post(dict(prompt=PROMPT, trace="yes"))
        self.assertEqual((status, answer["error"]["param"]), (400, "trace"))
        for path, body in (("/v1/responses", dict(input=PROMPT)), ("/v1/messages", dict(messages=[], max_tokens=2))):
            status, answer = self.api.post(dict(body, trace=True), path)
            self.assertEqual((status, "trace" in answer["error"]["message"]), (400, True))

    def test_the_notebook_runs(self):
        notebook = json.loads((ROOT / "lab/notebooks/forest.ipynb").read_text())
        os.environ["COPPICE_URL"] = f"http://127.0.0.1:{self.api.port}"
        names = {"__name__": "notebook"}
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                self.assertEqual(cell["outputs"], [])
                exec(compile("".join(cell["source"]), "forest.ipynb", "exec"), names)
        self.assertGreater(names["statistics"]["drafted_nodes"], 0)
        self.assertIn("<svg", names["svg"])


class Lost(unittest.TestCase):
    def test_a_second_run_begins_anew(self):
        with Cluster(tp=1, drafts=1, coordinator_flags=("--failover_wait=30",)) as cluster:
            (replica,) = cluster.process("replica-0").ranks().values()

            def replace_replica(event, count):
                if count == 1:
                    send_signal(replica, signal.SIGKILL)
                    cluster.start_replica("replica-1")

            body = dict(prompt=PROMPT, seed=3, max_tokens=300, ignore_eos=True, decoding="beam_sampling", beam_width=64, trace=True,
                        return_token_ids=True)
            rounds, tokens = [], []
            for event in cluster.api.stream(body, replace_replica):
                if event != "[DONE]":
                    rounds += event.get("trace", [])
                    tokens += [token for choice in event["choices"] for token in choice["token_ids"]]
            self.assertEqual({r["run"] for r in rounds}, {0, 1})
            tree = Tree()
            for round_ in rounds:
                tree.add(self, round_)
            self.assertIn(tokens, [tree.tokens(beam["path"]) for beam in tree.beams])


if __name__ == "__main__":
    unittest.main()
