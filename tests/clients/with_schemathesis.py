"""Schemathesis: requests that it makes of /openapi.json. Every status, header, content type and body must be one of the document."""
# /// script
# dependencies = ["schemathesis"]
# ///
import json
import os
import pathlib
import subprocess
import urllib.request

from checks import FOLDER, URL, check, expect, main

# negative_data_rejection and positive_data_acceptance are left out: the server accepts empty values of any type and unknown fields,
# and refuses combinations of fields, which no schema can say. ignored_auth: this server runs without keys.
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,"
          "unsupported_method,allow_header_conformance")
EXAMPLES = int(os.environ.get("COPPICE_EXAMPLES", 50))
# 503 and 504 are answers to a request that asks for an end of the drain or for a deadline of a moment.
CONFIG = """[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503", "504"]
"""


def run(*options):
    config = pathlib.Path(FOLDER, "schemathesis.toml")
    config.write_text(CONFIG)
    result = subprocess.run(
        ["st", "--config-file", config, "run", f"{URL}/openapi.json", "--checks", CHECKS, "--phases", "coverage,fuzzing",
         "--max-examples", str(EXAMPLES), "--seed", "1", "--generation-database", "none", "--request-timeout", "60",
         "--continue-on-failure", "--warnings", "off",
         "--no-color", *options],
        capture_output=True, text=True)
    failures = result.stdout.partition("FAILURES")[2] or result.stdout[-2500:]
    expect(result.returncode == 0, (failures + result.stderr)[:6000])
    print(" ".join(result.stdout.partition("SUMMARY")[2].split()))


@check
def completions():
    run("--include-tag", "completions")


@check
def tokens_and_models():
    run("--include-tag", "tokens", "--include-tag", "models")


@check
def state_of_the_server():
    run("--include-tag", "server")


@check
def administration():
    """Last, since it drains the cluster."""
    try:
        run("--include-tag", "administration")
    finally:
        undrain = urllib.request.Request(f"{URL}/admin/undrain", json.dumps({"target": "cluster"}).encode())
        undrain.add_header("Content-Type", "application/json")
        urllib.request.urlopen(undrain).close()


main()
