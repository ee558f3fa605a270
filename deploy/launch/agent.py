"""Runs host.py on the hosts of a cluster: here without an agent, elsewhere through one (ssh, or a command that is called as
ssh is)."""
import concurrent.futures
import dataclasses
import json
import pathlib
import shlex
import subprocess

from description import LOCAL

HOST_SCRIPT = pathlib.Path(__file__).resolve().parent / "host.py"
DEFAULT_AGENT = "ssh -o BatchMode=yes -o ConnectTimeout=10"
CALL_TIMEOUT_S = 60


class HostError(Exception):
    """A host could not be reached, or refused. The message names it and why."""


@dataclasses.dataclass(frozen=True)
class Agent:
    command: str            # "" for none
    local: tuple[str, ...]  # names of hosts that are this one

    def words(self, host, command):
        """The command line that runs a command on the host."""
        if host in self.local:
            return list(command)
        return [*shlex.split(self.command), host, shlex.join(command)]

    def run(self, host, command, text=""):
        """What became of the command on the host. HostError when it could not be run."""
        words = self.words(host, command)
        try:
            # In a session of its own, so that Ctrl-C does not end what is about to clean up.
            return subprocess.run(words, input=text, capture_output=True, text=True, timeout=CALL_TIMEOUT_S, start_new_session=True)
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{host}: no answer within {CALL_TIMEOUT_S} s") from error
        except OSError as error:
            raise HostError(f"{host}: {words[0]}: {error.strerror}") from error

    def ask(self, host, task, request):
        """What host.py answers there for the task: its last line, since the login may print some before."""
        result = self.run(host, ["python3", "-B", str(HOST_SCRIPT), task], json.dumps(request))
        if result.returncode != 0:
            said = result.stderr.strip() or result.stdout.strip() or f"exit status {result.returncode}"
            raise HostError(said if host == LOCAL else f"{host}: {said}")
        try:
            return dict(json.loads(result.stdout.splitlines()[-1]))
        except (IndexError, TypeError, ValueError) as error:
            raise HostError(f"{host}: expected the answer of {HOST_SCRIPT.name}, got {result.stdout[-200:]!r}") from error

    def ask_all(self, task, requests):
        """{host: what it answers, or the HostError}, all at the same time."""
        def one(host):
            try:
                return self.ask(host, task, requests[host])
            except HostError as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(max_workers=min(32, max(1, len(requests)))) as pool:
            return dict(zip(requests, pool.map(one, requests)))
