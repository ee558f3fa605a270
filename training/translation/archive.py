"""Packages of a Debian archive: which hold message catalogues of a language, and their download."""
import gzip
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request

from tool_arguments import DataError

ALSO = ("libreoffice-help-en-us", "libreoffice-help-{language}")  # pages with the same paragraphs in both languages


def _read(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        raise DataError(f"{url}: {getattr(error, 'reason', error)}") from error


def _unpacked(url):
    try:
        return gzip.decompress(_read(url)).decode("utf8", "replace")
    except (OSError, EOFError) as error:
        raise DataError(f"{url}: is no gzip file: {error}") from error


def with_catalogues(contents, language):
    """The names of the packages that hold one, of the text of a Contents file: lines "path  section/name,section/name"."""
    place = re.compile(rf"/{language}(_[A-Z]+)?/LC_MESSAGES/[^/ ]+\.mo\s+(\S+)$", re.MULTILINE)
    return {entry.rpartition("/")[2] for match in place.finditer(contents) for entry in match[2].split(",")}


def described(packages):
    """{name: (path, bytes, SHA-256)} of the text of a Packages file."""
    found = {}
    for stanza in packages.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Filename|Size|SHA256): (\S+)$", stanza, re.MULTILINE))
        if len(fields) == 4:
            found[fields["Package"]] = fields["Filename"], int(fields["Size"]), fields["SHA256"]
    return found


def _is_whole(path, digest):
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def fetch(args, tell):
    """Downloads what is not in args.out yet. A file has its name only when it is whole."""
    base = f"{args.mirror}/dists/{args.release}/main"
    names = set()
    for architecture in ("all", "amd64"):
        tell(f"{base}/Contents-{architecture}.gz")
        names |= with_catalogues(_unpacked(f"{base}/Contents-{architecture}.gz"), args.language)
    packages = described(_unpacked(f"{base}/binary-amd64/Packages.gz"))
    names |= {name.format(language=args.language) for name in ALSO}
    wanted = sorted(name for name in names & packages.keys() if packages[name][1] <= 1e6 * args.most_mb)
    if not wanted:
        raise DataError(f"{base}: no package of at most {args.most_mb:g} MB has catalogues of {args.language}")
    total = sum(packages[name][1] for name in wanted) / 1e6
    tell(f"{len(wanted)} packages, {total:.0f} MB")
    os.makedirs(args.out, exist_ok=True)
    done = 0
    for number, name in enumerate(wanted, 1):
        source, size, digest = packages[name]
        path = os.path.join(args.out, os.path.basename(source))
        if not _is_whole(path, digest):
            content = _read(f"{args.mirror}/{source}")
            if hashlib.sha256(content).hexdigest() != digest:
                raise DataError(f"{args.mirror}/{source}: its SHA-256 is not {digest}, the one of the archive's index")
            with open(path + ".partial", "wb") as file:
                file.write(content)
            os.replace(path + ".partial", path)
        done += size
        if number % 50 == 0 or number == len(wanted):
            tell(f"{number} of {len(wanted)} packages, {done / 1e6:.0f} of {total:.0f} MB")
