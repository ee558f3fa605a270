"""What the training tools share in reading their arguments."""
import argparse
import importlib.util


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


def missing_modules(names):
    """Those of the Python modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def need_modules(names):
    """Raises ArgumentFault that names the first missing module."""
    if missing := missing_modules(names):
        raise ArgumentFault(f"needs the Python module {missing[0]}: pip install {missing[0]} (see --help)")
