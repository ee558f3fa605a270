#!/usr/bin/env python3
"""Asks a coordinator whether its cluster is ready. Uses only the Python standard library.

  cluster_state.py ready --url URL [--replicas R] [--drafts D]   exits 0 if /ready answers 200 and R replicas and D draft
                                                                 nodes are ready; else prints what is missing, exits 1
  cluster_state.py show --url URL                                prints /cluster as a short table; exits 1 if not ready

--cert FILE (of an https URL): the server's certificate, which alone is trusted, whatever name is in it. --admin-keys FILE: the
coordinator's; its first key is sent.
"""
import argparse
import json
import ssl
import sys
import urllib.error
import urllib.request


class Coordinator:
    """The API at a URL, with the file of its certificate and of its admins' keys if it has them."""

    def __init__(self, url, cert=None, admin_keys=None):
        self.url, self.cert, self.admin_keys = url, cert, admin_keys

    def context(self):
        context = ssl.create_default_context(cafile=self.cert)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself, not who signed it
        return context

    def headers(self):
        if not self.admin_keys:
            return {}
        with open(self.admin_keys, encoding="utf8") as file:
            keys = [line.split()[0] for line in file if line.strip() and not line.strip().startswith("#")]
        return {"Authorization": f"Bearer {keys[0]}"} if keys else {}

    def opener(self):
        """Asks the coordinator itself: a proxy of the environment does not reach it, and must not see the admin's key."""
        https = [urllib.request.HTTPSHandler(context=self.context())] if self.cert else []
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), *https)

    def get(self, path):
        """(status, body text) of a GET. Raises OSError if there is no answer, or a file cannot be read."""
        request = urllib.request.Request(self.url + path, headers=self.headers())
        try:
            with self.opener().open(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def cluster(self):
        """What /cluster says. Raises Refused."""
        status, body = self.get("/cluster")
        if status != 200:
            raise Refused(f"/cluster: {reason_of(body)}", status)
        return json.loads(body)


class Refused(Exception):
    """The coordinator answered, but not what was asked for; the text says why."""

    def __init__(self, reason, status):
        super().__init__(reason)
        self.status = status


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


def cluster_problem(coordinator, replicas, drafts):
    """(why the cluster is not ready with so many replicas and draft nodes, or None if it is; whether waiting does not help)"""
    try:
        status, body = coordinator.get("/ready")
        if status != 200:
            return reason_of(body), False
        return missing_nodes(coordinator.cluster(), replicas, drafts), False
    except Refused as refused:
        return str(refused), refused.status in (401, 403)
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, (ConnectionError, TimeoutError)):
            return "the coordinator does not answer yet", False
        lasts = isinstance(reason, (FileNotFoundError, PermissionError, ssl.SSLCertVerificationError))
        return f"the coordinator cannot be asked: {reason}", lasts


def show(coordinator):
    try:
        status, body = coordinator.get("/ready")
        cluster = coordinator.cluster()
    except Refused as refused:
        return str(refused)
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
    parser.add_argument("--cert")
    parser.add_argument("--admin-keys")
    args = parser.parse_args()
    coordinator = Coordinator(args.url, args.cert, args.admin_keys)
    problem = cluster_problem(coordinator, args.replicas, args.drafts)[0] if args.command == "ready" else show(coordinator)
    if problem:
        print(problem, file=sys.stderr if args.command == "show" else sys.stdout)
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
