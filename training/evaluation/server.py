"""What is measured: a cluster that is started here, or one that runs at a URL. Plain HTTP with the standard library."""
import contextlib
import json
import pathlib
import sys
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
THIS_HOST = ("127.0.0.1", "localhost", "::1")
READY_DEADLINE_S = 600  # a large target takes minutes to load


class ServerError(Exception):
    """Names the request and what the server said."""


class Server:
    def __init__(self, url, timeout_s, key=None):
        self.url, self.timeout_s = url.rstrip("/"), timeout_s
        near = urllib.parse.urlsplit(self.url).hostname in THIS_HOST
        self.opener = urllib.request.build_opener(*[urllib.request.ProxyHandler({})] * near)  # a proxy does not know this host
        self.headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def fetch(self, path, body=None):
        """(JSON of a GET, or of a POST if there is a body). ServerError if that fails."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with self.opener.open(urllib.request.Request(self.url + path, data, self.headers), timeout=self.timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace").strip()
            try:
                error = json.loads(text)["error"]
                text = f"{error['code']}: {error['message']}"
            except (ValueError, KeyError, TypeError):
                pass
            raise ServerError(f"{path}: {refused.code} {text}") from refused
        except (OSError, ValueError) as error:
            raise ServerError(f"{self.url}{path} does not answer: {error}") from error

    def identity(self):
        """What an interrupted run must find again: commit, and the models of target and draft nodes (null if not to be seen)."""
        try:
            model = self.fetch("/v1/models")["data"][0]["id"]
            try:
                nodes = self.fetch("/cluster")
                drafts = sorted({node["model"] for node in nodes["draft_nodes"] if node["state"] == "ready"})
            except ServerError:  # without an administrator's key
                drafts = None
            return {"model": model, "draft_models": drafts, "commit": self.fetch("/version")["commit"]}
        except (KeyError, IndexError, TypeError) as error:
            raise ServerError(f"{self.url} does not answer as a Coppice cluster does: {error!r}") from error


@contextlib.contextmanager
def started(arguments, drafts):
    """The URL of a cluster with one replica and, if `drafts`, one draft node. It has ended when the block ends."""
    sys.path.insert(0, str(ROOT / "tests/cluster"))
    from cluster import BIN, Cluster, StartFailure
    threads = (f"--threads={arguments.threads}",)
    for program in ("coordinator", "worker", "draft"):
        if not (BIN / f"coppice-{program}").exists():
            raise ServerError(f"{BIN / f'coppice-{program}'} does not exist: build it with deploy/build.sh, or set COPPICE_BIN")
    cluster = Cluster(target=arguments.target, draft=arguments.draft, tp=arguments.tp, drafts=int(drafts), dtype=arguments.dtype,
                      worker_flags=(*threads, *arguments.worker_flag), draft_flags=(*threads, *arguments.draft_flag))
    cluster.start()
    try:
        try:
            cluster.wait_ready(READY_DEADLINE_S)
        except StartFailure as failure:
            raise ServerError(f"the cluster does not start: {failure}") from failure
        yield f"http://127.0.0.1:{cluster.port}"
    finally:
        cluster.stop()
