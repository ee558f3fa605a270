"""The virtual environment of the peers: made once, kept in a cache folder, with pinned packages from PyPI."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
FIELDS = {"what": str, "packages": list, "program": str, "beams": bool}


class PeerError(Exception):
    """Why a peer is left out. The text is for the user."""


def read_peers(path=HERE / "peers.toml"):
    """{name: fields} of the table. PeerError names a field that is missing or wrong."""
    try:
        with open(path, "rb") as file:
            peers = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise PeerError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    for name, peer in peers.items():
        for field, kind in FIELDS.items():
            if not isinstance(peer, dict) or not isinstance(peer.get(field), kind):
                raise PeerError(f"{path}: {name}: {field}: expected a {kind.__name__}")
    return peers


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME", "")
    return pathlib.Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "coppice", "peers")


def run(arguments, log, **variables):
    """Runs a process to its end with its output in the log; ends it if this one is ended. Returns the exit status."""
    with open(log, "ab") as output:
        process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   env=dict(os.environ, **variables), start_new_session=True)
        try:
            return process.wait()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 15)
                process.wait()


def reason(log):
    """What pip's log says of a failure, in a line."""
    text = pathlib.Path(log).read_text(encoding="utf8", errors="replace")
    if re.search(r"failed to establish|name resolution|timed out|unreachable|connection (?:broken|refused)|proxy|max retries", text, re.IGNORECASE):
        return "the package index is not reached (no network?)"
    if "ensurepip" in text:
        return "Python's venv is incomplete (Debian's package is python3-venv)"
    errors = [line.strip() for line in text.splitlines() if re.match(r"\s*(ERROR|error):? ", line)]
    return errors[-1] if errors else "no reason given"


def has(python, packages):
    """Whether this Python has these pinned packages."""
    wanted = [package.partition("==") for package in packages]
    script = "import sys, importlib.metadata as m\nfor a in sys.argv[1:]:\n n, _, v = a.partition('==')\n" \
             " assert m.version(n).partition('+')[0] == v"
    return subprocess.run([python, "-c", script, *(f"{name}=={version}" for name, _, version in wanted)], capture_output=True).returncode == 0


def prepare(folder, name, peer, tell):
    """The Python of the environment in this folder, with the packages of the peer. PeerError says why it cannot be had."""
    python, log = folder / "bin/python", folder / f"{name}.log"
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    if not (folder / "bin/pip").exists():  # pip comes last
        tell(f"making {folder}")
        if run([sys.executable, "-m", "venv", folder], log) != 0:
            raise PeerError(f"{name}: no virtual environment in {folder}: {reason(log)}")
    if has(python, peer["packages"]):
        log.unlink(missing_ok=True)
        return python
    tell(f"{name}: installing {', '.join(peer['packages'])}{' (it is built here)' if peer.get('built') else ''}, log in {log}")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:  # pip leaves its files if it is ended
        status = run([python, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir", "--retries", "1", "--timeout", "15",
                      *peer["packages"]], log, TMPDIR=temporary, **peer.get("built", {}))
    if status != 0:
        raise PeerError(f"{name}: cannot be installed: {reason(log)} (log in {log})")
    log.unlink(missing_ok=True)
    return python


def check(python, name, peer):
    """That a Python which the user named has the peer's packages, whatever their version. PeerError if not."""
    script = "import sys, importlib.metadata as m\nfor n in sys.argv[1:]:\n m.version(n)"
    found = subprocess.run([python, "-c", script, *(package.partition("==")[0] for package in peer["packages"])], capture_output=True, text=True)
    if found.returncode != 0:
        raise PeerError(f"{name}: {python} lacks {found.stderr.strip().splitlines()[-1].rpartition(' ')[2] if found.stderr else 'its packages'}")
