"""What the training tools share in reading their arguments."""
import argparse
import importlib.util


BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # in /proc/cpuinfo; the last is Arm's


class ArgumentFault(Exception):
    """Arguments that do not fit together, or a machine that lacks what they need."""


class DataError(Exception):
    """Files that cannot be used; the text names the file, the place and why."""


def positive(kind):
    """The type of an argument that is a number of this kind (int, float) and more than 0."""
    def parsed(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected more than 0, got {text}")
        return value
    parsed.__name__ = kind.__name__
    return parsed


def numbers(text):
    """The type of an argument such as 0,1,28,29."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [-1]
    if min(found) < 0:
        raise argparse.ArgumentTypeError(f"expected numbers such as 0,1,28,29, got {text!r}")
    return found


def add_cluster_options(parser):
    """Of tools that ask a served target."""
    parser.add_argument("--url", help="a cluster that serves the target; default: start one")
    parser.add_argument("--threads", type=int, default=0, help="of the cluster that is started; 0: all cores (%(default)s)")
    parser.add_argument("--dtype", default="auto", help="of its weights (%(default)s: as in the file)")
    parser.add_argument("--worker-flag", action="append", default=[], help="a further flag of its worker; may be repeated")
    parser.add_argument("--timeout", type=positive(float), default=1800, help="seconds for a request (%(default)s)")


def add_dtype(parser):
    """--dtype of a training. After parsing, `dtype_of` says what auto is."""
    parser.add_argument("--dtype", choices=["auto", "bf16", "f32"], default="auto",
                        help="of matrix products; auto: bf16 where the processor or the device multiplies it, else f32 (%(default)s)")


def dtype_of(asked, device, cpuinfo="/proc/cpuinfo"):
    """"bf16" or "f32". Without instructions for it, PyTorch's products in bfloat16 take many times as long as in float32."""
    if asked != "auto":
        return asked
    if device.split(":")[0] != "cpu":
        return "bf16"
    try:
        with open(cpuinfo, encoding="utf8") as file:
            return "bf16" if BF16_FLAGS.intersection(file.read().split()) else "f32"
    except OSError:
        return "f32"


def missing_modules(names):
    """Those of the Python modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def need_modules(names):
    """Raises ArgumentFault that names the first missing module."""
    if missing := missing_modules(names):
        raise ArgumentFault(f"needs the Python module {missing[0]}: pip install {missing[0]} (see --help)")
