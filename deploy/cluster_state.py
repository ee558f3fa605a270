#!/usr/bin/env python3
"""Asks a coordinator whether its cluster is ready. Uses only the Python standard library.

  cluster_state.py ready --url URL [--replicas R] [--drafts D]   exits 0 if /ready answers 200 and R replicas and D draft
                                                                 nodes are ready; else prints what is missing, exits 1
  cluster_state.py show --url URL                                prints /cluster as a short table; exits 1 if not ready
"""
import argparse
import json
import sys
import urllib.error
import urllib.request


def get(url):
    """(status, body text) of a GET. Raises OSError if there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def reason_of(body):
    """The message in the body of an error or a state answer. The body may be JSON of several shapes, or plain text."""
    try:
        content = json.loads(body)
    except ValueError:
        return body.strip() or "no reason given"
    error = content.get("error")
    if isinstance(error, dict):
        return error.get("message") or "no reason given"
    return content.get("reason") or content.get("status") or body.strip()


def missing_nodes(cluster, replicas, drafts):
    """Says which nodes are missing, or None if the cluster is complete."""
    for kind, key, wanted in (("replica", "replicas", replicas), ("draft node", "draft_nodes", drafts)):
        ready = sum(node.get("state") == "ready" for node in cluster.get(key, []))
        if ready < wanted:
            return f"{ready} of {wanted} {kind}s ready"
    return None


def cluster_problem(url, replicas, drafts):
    """Why the cluster is not ready with so many replicas and draft nodes, or None if it is."""
    try:
        status, body = get(url + "/ready")
        if status != 200:
            return reason_of(body)
        return missing_nodes(json.loads(get(url + "/cluster")[1]), replicas, drafts)
    except OSError:
        return "the coordinator does not answer yet"


def show(args):
    try:
        status, body = get(args.url + "/ready")
        cluster = json.loads(get(args.url + "/cluster")[1])
    except OSError as error:
        return f"the coordinator does not answer: {error}"
    print(f"state {cluster.get('state', '?')}, requests {json.dumps(cluster.get('requests', {}))}")
    def reason(node):
        return f" ({node['reason']})" if node.get("reason") else ""

    for replica in cluster.get("replicas", []):
        kv = replica.get("kv", {})
        print(f"replica {replica['id']}: {replica['state']}{reason(replica)}, ranks {len(replica.get('ranks', []))}, "
              f"step {replica.get('step')}, running {replica.get('running')}, "
              f"KV blocks {kv.get('blocks_used')} of {kv.get('blocks_total')} used")
    for node in cluster.get("draft_nodes", []):
        print(f"draft node {node['id']}: {node['state']}{reason(node)}, sessions {node.get('sessions')}")
    return None if status == 200 else reason_of(body)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("ready", "show"))
    parser.add_argument("--url", required=True)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--drafts", type=int, default=0)
    args = parser.parse_args()
    problem = cluster_problem(args.url, args.replicas, args.drafts) if args.command == "ready" else show(args)
    if problem:
        print(problem, file=sys.stderr if args.command == "show" else sys.stdout)
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
