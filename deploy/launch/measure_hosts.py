#!/usr/bin/env python3
"""netns_cluster.sh: a cluster across network namespaces, and its throughput against replicas, link rate and delay."""
import argparse
import json
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

import installation
from network import Link, Network, NetworkError, why_not

DEPLOY = pathlib.Path(__file__).resolve().parents[1]
QUESTIONS = DEPLOY / "demo/questions.jsonl"
COLUMNS = ("replicas", "rate_mbit", "delay_ms", "requests_per_s", "tokens_per_s", "rounds_per_s", "accepted_per_round",
           "bytes_per_accepted", "late")


class Failed(Exception):
    pass


def numbers(text):
    try:
        return [float(word) for word in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between, got {text!r}") from error


def arguments():
    parser = argparse.ArgumentParser(description="see netns_cluster.sh --help", allow_abbrev=False)
    parser.add_argument("--replicas", type=numbers, default=[1, 2])
    parser.add_argument("--rates", type=numbers, default=[0])
    parser.add_argument("--delays", type=numbers, default=[0])
    parser.add_argument("--loss", type=float, default=0)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--body", default='{"speculative": {"draft_width": 8, "draft_depth": 4}}')
    parser.add_argument("--target", type=pathlib.Path, default=DEPLOY / "demo/wikisql-target")
    parser.add_argument("--draft", type=pathlib.Path, default=DEPLOY / "demo/wikisql-draft")
    parser.add_argument("--bin", type=pathlib.Path, default=installation.program_folder())
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


class HostsCluster:
    """The cluster: host `front` has the coordinator, `r0`, `r1`, ... a replica each, `drafts` as many draft nodes."""

    def __init__(self, network, folder, args, replicas):
        self.network, self.folder, self.args, self.replicas = network, folder, args, replicas
        self.state = folder / "state"

    def script(self, *words):
        """(exit status, stderr) of cluster.sh. It is in a session of its own: when this program is interrupted it is told to end, and
        waited for, since it must remove what it has started."""
        process = subprocess.Popen([DEPLOY / "cluster.sh", *map(str, words), "--state", self.state], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            errors = process.communicate()[1]
        except BaseException:
            process.terminate()
            process.communicate(timeout=60)
            raise
        return process.returncode, errors

    def __enter__(self):
        hosts = ["front", *(f"r{i}" for i in range(self.replicas)), "drafts"]
        folders = dict(target=self.args.target, draft=self.args.draft, bin=pathlib.Path(self.args.bin))
        lines = [f"{key} = {json.dumps(str(folder.absolute()))}" for key, folder in folders.items()]
        lines += ['dtype = "f32"', "threads = 1"]
        for host in hosts:
            lines += ["[[host]]", f'name = "{host}"', f'address = "{self.network.address(host)}"']
        lines += ["[coordinator]", 'listen = "0.0.0.0:8000"']
        for i in range(self.replicas):
            lines += ["[[replica]]", f"on = {json.dumps([f'r{i}'] * self.args.tp)}"]
        lines += ["[[draft_node]]", 'on = ["drafts"]'] * self.replicas
        (self.folder / "cluster.toml").write_text("\n".join(lines) + "\n", encoding="utf8")
        status, errors = self.script("up", "--cluster", self.folder / "cluster.toml", "--agent", self.network.agent())
        if status != 0:
            raise Failed(errors.strip())
        return self

    def __exit__(self, *_):
        if self.state.exists():
            self.script("down")

    def metrics(self):
        """{metric: sum over its series}; draft fallbacks by their reason."""
        url = f"http://{self.network.address('front')}:8000/metrics"
        text = self.network.run("client", ["curl", "-sS", "--fail", "--max-time", "10", url], check=True).stdout
        sums = {}
        for name, labels, value in re.findall(r"^coppice_(\w+)(\{[^}]*\})? ([\d.e+-]+)$", text, re.M):
            kind = re.search(r'reason="(\w+)"', labels)
            key = f"{name}:{kind[1]}" if kind else name
            sums[key] = sums.get(key, 0) + float(value)
        return sums

    def load(self, requests):
        """The result of the load generator on the host `client`."""
        questions = self.folder / "questions.jsonl"
        prompts = [json.loads(line)["prompt"] for line in QUESTIONS.read_text(encoding="utf8").splitlines() if line.strip()]
        questions.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf8")
        result = self.network.run("client", [
            pathlib.Path(self.args.bin).absolute() / "coppice-loadgen", f"--base-url=http://{self.network.address('front')}:8000",
            "--dataset-name=custom", f"--dataset-path={questions}", f"--num-prompts={requests}", f"--output-len={self.args.tokens}",
            "--ignore-eos", f"--max-concurrency={self.args.concurrency}", f"--extra-body={self.args.body}", "--save-result",
            f"--result-dir={self.folder}", "--result-filename=result.json"])
        if result.returncode != 0:
            raise Failed((result.stderr or result.stdout).strip()[-2000:])
        return json.loads((self.folder / "result.json").read_text(encoding="utf8"))

    def measure(self, link):
        self.load(max(4, self.args.concurrency))  # connections and estimates of the draft nodes' times
        before, link_before = self.metrics(), self.network.bytes_of("drafts")
        result = self.load(self.args.requests)
        after, link_after = self.metrics(), self.network.bytes_of("drafts")
        gain = {key: after[key] - before.get(key, 0) for key in after}
        passes = gain.get("spec_decode_target_passes_total", 0)
        accepted = gain.get("spec_decode_num_accepted_tokens_total", 0)
        return dict(
            replicas=self.replicas, rate_mbit=link.rate_mbit, delay_ms=link.delay_ms,
            requests_per_s=result["request_throughput"], tokens_per_s=result["output_throughput"],
            rounds_per_s=passes / result["duration"] / self.replicas, accepted_per_round=accepted / max(1, passes),
            bytes_per_accepted=(link_after - link_before) / max(1, accepted), late=gain.get("rounds_without_draft_total:late", 0))


def run(args):
    rows = []
    most = int(max(args.replicas))
    hosts = ["front", *(f"r{i}" for i in range(most)), "drafts", "client"]
    print(" ".join(f"{column:>{max(9, len(column))}}" for column in COLUMNS), flush=True)
    with tempfile.TemporaryDirectory(prefix="coppice.") as folder, \
            Network(hosts, relayed=("drafts",) if any(args.delays) or args.loss else ()) as network:
        for replicas in map(int, args.replicas):
            with HostsCluster(network, pathlib.Path(folder), args, replicas) as cluster:
                for rate in args.rates:
                    for delay in args.delays:
                        for host in hosts[:-1]:
                            network.set_link(host, Link(rate_mbit=rate))
                        link = Link(rate, delay, args.loss)
                        network.set_link("drafts", link)
                        row = cluster.measure(link)
                        rows.append(row)
                        print(" ".join(f"{row[column]:>{max(9, len(column))}.4g}" for column in COLUMNS), flush=True)
                network.set_link("drafts", Link())
    if args.json:
        args.json.write_text(json.dumps(dict(command=shlex.join(sys.argv), rows=rows), indent=1) + "\n", encoding="utf8")


def main():
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(number, _):
        for other in signals:
            signal.signal(other, signal.SIG_IGN)  # once is enough: cleaning up takes some seconds
        raise SystemExit(128 + number)

    for number in signals:
        signal.signal(number, end)
    args = arguments()
    reason = why_not()
    if reason:
        sys.exit(f"netns_cluster: this machine does not permit it: {reason}")
    try:
        run(args)
    except (Failed, NetworkError) as error:
        sys.exit(f"netns_cluster: {error}")


if __name__ == "__main__":
    main()
