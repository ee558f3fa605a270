"""A cluster that has been started: the folder with its state, who may work on that, and how its hosts are asked and ended."""
import contextlib
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import sys

from agent import Agent, HostError
from installation import told


class Failure(Exception):
    """Ends the script with its message and status 1."""


@contextlib.contextmanager
def locked(state):
    """Holds the lock of a state folder, a file beside it. Who locks it removes it; so a lock counts only while its file is there."""
    path = pathlib.Path(f"{state}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "w", encoding="utf8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Failure(f"another {told('cluster.sh')} is at work on {state}") from error
            except OSError:  # a file system without locks
                pass
            try:
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    continue
            except FileNotFoundError:
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


class Running:
    """A launch and where its hosts keep what belongs to it. Written to a file of the state folder, so that down and status
    find it."""

    def __init__(self, state, content):
        self.state, self.content = state, content
        self.agent = Agent(content["agent"], tuple(content["local"]))

    @classmethod
    def read(cls, state):
        try:
            with open(state / "cluster.json", encoding="utf8") as file:
                return cls(state, json.load(file))
        except FileNotFoundError as error:
            raise Failure(f"no cluster with its state in {state}") from error
        except (OSError, ValueError) as error:
            raise Failure(f"{state / 'cluster.json'}: {error}") from error

    def write(self):
        """All of the file or nothing, on a full disk too."""
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = self.state / "cluster.json.new"
        try:
            written.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf8")
            os.replace(written, self.state / "cluster.json")
        except OSError as error:
            raise Failure(f"{self.state / 'cluster.json'}: {error.strerror}") from error
        finally:
            written.unlink(missing_ok=True)

    def hosts(self):
        return list(self.content["hosts"])

    def flat(self):
        return self.content["local"] == self.hosts()

    def folder(self, host, state=None):
        """Logs and process ids of a host are there, on that host. Hosts may share a file system."""
        state = state or self.state
        return str(state if self.flat() else state / host)

    def request(self, host, **fields):
        return {"id": self.content["id"], "host": host, "folder": self.folder(host),
                "run_folders": self.content["run_folders"], **fields}

    def status(self, ready_for=None, ranks=False):
        """{host: what host.py status says, or the HostError}"""
        requests = {host: self.request(host, ranks=ranks) for host in self.hosts()}
        if ready_for:
            requests[self.content["coordinator"]] |= dict(api=self.content["api"], replicas=ready_for[0], drafts=ready_for[1])
        return self.agent.ask_all("status", requests)

    def stop(self, keep_logs=False, forget=False):
        """Ends everything. Returns what could not be ended, in words. The state remains then, unless it is to be forgotten."""
        kept = {host: {"keep": self.folder(host, pathlib.Path(f"{self.state}.failed"))} if keep_logs else {} for host in self.hosts()}
        answers = self.agent.ask_all("stop", {host: self.request(host, **kept[host]) for host in self.hosts()})
        failed = [str(answer) for answer in answers.values() if isinstance(answer, HostError)]
        if forget or not failed:
            shutil.rmtree(self.state, ignore_errors=True)
        for host, answer in answers.items():
            if not isinstance(answer, HostError) and answer["kept"]:
                print(f"cluster: logs{'' if self.flat() else f' of {host}'} are kept in {kept[host]['keep']}", file=sys.stderr)
        return failed

    def way_out(self):
        """What to do when stop could not end all."""
        down = f"{told('cluster.sh down')} --state {shlex.quote(str(self.state))}"
        return f"what ran there may still run: {down} when it can be reached, or {down} --forget if it is gone for good"
