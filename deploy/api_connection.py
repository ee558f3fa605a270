"""What ask.py and chat.py share: the connection to a coordinator, and JSON lines files of questions. Uses only the Python standard
library."""
import http.client
import json
import os
import re
import ssl
import urllib.parse


class Fault(Exception):
    """What the user gave cannot be used; the text is one line."""


def add_options(parser):
    parser.add_argument("--url", metavar="URL", help="http://HOST[:PORT] or https://HOST[:PORT]; default: http://127.0.0.1:8000")
    parser.add_argument("--port", metavar="PORT", help="of a server on this host: --url http://127.0.0.1:PORT")
    parser.add_argument("--cert", metavar="FILE", help="of an https URL: the server's certificate or that of its CA, which alone is trusted")
    parser.add_argument("--api-key", metavar="KEY", default=os.environ.get("COPPICE_API_KEY", ""), help="default: $COPPICE_API_KEY")


class Server:
    """A coordinator's address and what its clients need. Raises Fault."""

    def __init__(self, args):
        if args.port is not None and args.url is not None:
            raise Fault("--port and --url exclude each other")
        if args.port is not None and not (re.fullmatch("[0-9]{1,5}", args.port) and 1 <= int(args.port) <= 65535):
            raise Fault(f"--port must be between 1 and 65535, got '{args.port}'")
        self.url = f"http://127.0.0.1:{args.port or 8000}" if args.url is None else args.url
        try:
            parts = urllib.parse.urlsplit(self.url)
            self.host, self.port = parts.hostname, parts.port
            known = parts.scheme in ("http", "https") and self.host and parts.path in ("", "/") and not re.search(r"[@?#\s]", self.url)
            (self.host or "").encode("idna")
        except ValueError:
            known = False
        if not known:
            raise Fault(f"--url must be http://HOST[:PORT] or https://HOST[:PORT], got '{self.url}'")
        if args.cert and parts.scheme == "http":
            raise Fault("--cert is for an https URL")
        if not re.fullmatch(r"[!-~]*", args.api_key):
            raise Fault("--api-key (or $COPPICE_API_KEY) must be ASCII characters without spaces")
        self.context = context_of(args.cert) if parts.scheme == "https" else None
        self.headers = {"Content-Type": "application/json"}
        if args.api_key:
            self.headers["Authorization"] = f"Bearer {args.api_key}"

    def connect(self, timeout_s):
        if self.context:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def context_of(cert):
    try:
        context = ssl.create_default_context(cafile=cert)
    except OSError as error:
        raise Fault(f"--cert {cert}: {error.strerror or error}, expected a PEM file") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the server's own certificate is enough
    return context


def read_questions(path, expected):
    """The objects of a JSON lines file. expected(object) says what one should have and lacks, or returns None. Raises Fault."""
    questions = []
    try:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    question = json.loads(line)
                except ValueError:
                    question = None
                lack = expected(question) if isinstance(question, dict) else "a JSON object"
                if lack:
                    raise Fault(f"{path}:{number}: expected {lack}")
                questions.append(question)
    except OSError as error:
        raise Fault(f"{path}: {error.strerror}, expected a file of JSON lines") from error
    if not questions:
        raise Fault(f"{path}: expected a question, the file has none")
    return questions
