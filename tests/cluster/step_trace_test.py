#!/usr/bin/env python3
"""Where the time of an engine goes: GET /debug/trace and --trace_file of a real cluster, and what lab/bench/cluster/overhead.py makes of them."""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

from api_client import outcome
from cluster import ROOT, Cluster
from stopwatch import at_most, wait_until

OVERHEAD = ROOT / "lab/bench/cluster/overhead.py"
BODY = dict(prompt="Once upon a time, there was a", decoding="beam_search", beam_width=4, n=4, max_tokens=60, ignore_eos=True,
            early_stopping="never", return_token_ids=True,
            speculative=dict(draft_width=4, draft_depth=3))
STEP = {"plan", "submit", "body", "head", "decide", "next draft", "commit", "report", "send"}


def report(path):
    return subprocess.run([sys.executable, OVERHEAD, path], capture_output=True, text=True, check=True, timeout=at_most(60)).stdout


class StepTrace(unittest.TestCase):
    def check(self, events, process):
        """Spans of the loop nest and have the parts of a step; rounds and drafts begin and end."""
        mine = [event for event in events if event.get("pid") == process]
        spans = sorted((e for e in mine if e["ph"] == "X" and e["tid"] == 0), key=lambda e: (e["ts"], -e["dur"]))
        self.assertLessEqual(STEP | {"step", "messages", "admission", "drafts"}, {span["name"] for span in spans})
        stack = []
        for span in spans:
            while stack and stack[-1] <= span["ts"] + 0.01:
                stack.pop()
            if stack:
                self.assertLessEqual(span["ts"] + span["dur"], stack[-1] + 0.01, span)
            stack.append(span["ts"] + span["dur"])
        self.assertTrue(any(e["name"] == "verdict" and e["tid"] > 0 for e in mine))
        for name in ("round", "draft"):
            begun, ended = ([e["id"] for e in mine if e["name"] == name and e["ph"] == phase] for phase in "be")
            self.assertTrue(begun)
            self.assertEqual(sorted(begun), sorted(ended))
        self.assertTrue(any(e["name"] == "draft" and e.get("args", {}).get("came") for e in mine))
        rounds = [e["args"] for e in mine if e["name"] == "round" and e["ph"] == "b"]
        self.assertTrue(all(r["layers"] >= 1 and r["rows"] >= 0 and r["forward_us"] > 0 for r in rounds))

    def test_a_running_cluster_is_traced(self):
        with tempfile.TemporaryDirectory() as folder, Cluster(replicas=2) as cluster:
            over = threading.Event()
            before = cluster.api.complete(BODY)

            def load():
                while not over.is_set():
                    cluster.api.complete_all([BODY] * 4)

            loads = threading.Thread(target=load, daemon=True)
            loads.start()
            try:
                self.assertTrue(wait_until(lambda: sum(r["running"] for r in cluster.api.cluster()["replicas"]) > 0))
                status, text = cluster.api.get("/debug/trace?seconds=1")
            finally:
                over.set()
                loads.join(at_most(60))
            self.assertEqual(status, 200)
            trace = json.loads(text)
            names = {e["args"]["name"]: e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"}
            self.assertEqual(set(names), {"coordinator", "replica-0", "replica-1"})
            self.assertEqual(trace["otherData"], {"dropped_spans": 0, "missing_replicas": []})
            for replica in ("replica-0", "replica-1"):
                self.check(trace["traceEvents"], names[replica])
            self.assertTrue(any(e["name"] == "request" for e in trace["traceEvents"]))
            path = pathlib.Path(folder, "trace.json")
            path.write_text(text)
            lines = report(path)
            self.assertIn("replica-1: ", lines)
            self.assertRegex(lines, r"model \d+\.\d%, engine overhead \d+\.\d% of a step")
            self.assertEqual(outcome(cluster.api.complete(BODY)), outcome(before))

    def test_a_file_has_the_whole_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            with Cluster(worker_flags=(f"--trace_file={path}",)) as cluster:
                usage = cluster.api.complete(BODY)["usage"]["speculation"]
                self.assertTrue(wait_until(lambda: path.read_text().count('"step"') > 1))
                self.assertIn("process 1: ", report(path))  # also while it is written
            events = [event for event in json.loads(path.read_text()) if event]
            self.check(events, 1)
            steps = [e for e in events if e["name"] == "step"]
            self.assertGreaterEqual(len(steps), usage["target_passes"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
