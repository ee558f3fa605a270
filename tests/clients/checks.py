"""Named checks of a client. A script marks functions with @check and ends with main(). Each check prints a line; run.py reads
the results as JSON from the file that COPPICE_CHECKS names."""
import json
import os
import sys
import traceback

URL = os.environ.get("COPPICE_URL", "http://127.0.0.1:8000")
API = URL + "/v1"
MODEL = os.environ.get("COPPICE_MODEL", "stories260k")
FOLDER = os.environ.get("COPPICE_FOLDER", "/tmp")  # for files that a check writes
KEY = os.environ.get("COPPICE_API_KEY", "none")
MESSAGES = [{"role": "user", "content": "Tell a story."}]
CHECKS = []


def check(function=None, *, not_served=None):
    """not_served: why the check fails today by design of the server. That it passes is then reported."""
    if function is None:
        return lambda f: check(f, not_served=not_served)
    CHECKS.append((function, not_served))
    return function


def expect(condition, told=""):
    if not condition:
        raise AssertionError(told or "not what was expected")


def main():
    """Runs the checks whose names contain one of the arguments, or all. Ends with status 1 if one fails unexpectedly."""
    results = []
    for function, not_served in CHECKS:
        name = function.__name__
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        why = None
        with open(os.path.join(FOLDER, "check"), "w", encoding="utf8") as file:  # for a recorder
            file.write(name)
        try:
            function()
        except Exception as error:  # a client may raise anything
            why = f"{type(error).__name__}: {error}"
            if os.environ.get("COPPICE_TRACE"):
                traceback.print_exc()
        outcome = {(True, False): "passed", (False, False): "failed", (False, True): "not served",
                   (True, True): "passes now"}[why is None, not_served is not None]
        results.append(dict(name=name, outcome=outcome, why=why or "", reason=not_served or ""))
        print(f"{outcome:10} {name}{': ' if why else ''}{' '.join((why or '').split())[:1500]}", flush=True)
    if "COPPICE_CHECKS" in os.environ:
        with open(os.environ["COPPICE_CHECKS"], "w", encoding="utf8") as file:
            json.dump(results, file)
    sys.exit(any(result["outcome"] == "failed" for result in results))
