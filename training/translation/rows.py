"""Rows of the sentences of packages."""
import collections
import gettext
import hashlib
import html
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import tarfile

from tool_arguments import DataError

NAMES = {"de": "German", "es": "Spanish", "fr": "French", "it": "Italian", "nl": "Dutch"}
LEAST_WORDS, MOST_WORDS = 4, 40
MOST_RATIO = 2.2     # of the lengths of a sentence and its translation, in characters
HELD_OUT_OF = 50     # one of so many sentences is held out

# What is no plain sentence: placeholders, markup, code, paths, options, addresses, control characters.
ODD = re.compile(r"[%<>{}\\$|@#~^`=*\[\]\x00-\x1f\x7f]|https?:|\w/\w|(^|\s)--|\.\.\.\.|(\s|^)-\w(\s|$)|_")
MNEMONIC = re.compile(r"[&_~](?=\w)")  # the next letter is underlined in a menu
PARAGRAPH = re.compile(r'<p id="(par_[^"]+)"[^>]*>(.*?)</p>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
HELP = re.compile(r"/libreoffice/help/([^/]+)/text/(.*\.html)$")


def sentence(text):
    """The text in one line, without the mark of a menu's letter; None if it is no plain sentence."""
    text = " ".join(text.split())
    if len(MNEMONIC.findall(text)) == 1:
        text = MNEMONIC.sub("", text)
    return None if ODD.search(text) else text


def pair(foreign, english):
    """(foreign, English) as plain sentences, or None."""
    foreign, english = sentence(foreign), sentence(english)
    if not foreign or not english or letters(foreign) == letters(english):
        return None
    if not LEAST_WORDS <= len(english.split()) <= MOST_WORDS or not LEAST_WORDS - 1 <= len(foreign.split()) <= MOST_WORDS:
        return None
    return (foreign, english) if 1 / MOST_RATIO < len(foreign) / len(english) < MOST_RATIO else None


def letters(text):
    """What two texts have in common that count as the same."""
    return "".join(c for c in text.casefold() if c.isalnum())


def of_catalogue(content):
    """[(foreign, English)] of the content of a .mo file; [] if it is none."""
    try:
        catalogue = gettext.GNUTranslations(io.BytesIO(content))._catalog
    except (OSError, UnicodeDecodeError, LookupError, ValueError, IndexError, SyntaxError, struct.error):
        return []
    # A context stands before the message, with the character 4 between. Plurals have a pair as key.
    texts = ((value, key.rpartition("\x04")[2]) for key, value in catalogue.items() if isinstance(key, str) and key and value)
    return [found for foreign, english in texts if (found := pair(foreign, english))]


def paragraphs(page):
    """{id: text} of a page of help."""
    return {name: html.unescape(TAG.sub("", text)) for name, text in PARAGRAPH.findall(page)}


def files_of(package, language):
    """(path, content) of the catalogues and pages of help in a .deb file."""
    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    catalogue = re.compile(rf"/{language}(_[A-Z]+)?/LC_MESSAGES/[^/]+\.mo$")
    try:
        with tarfile.open(fileobj=process.stdout, mode="r|") as files:
            for entry in files:
                if entry.isfile() and (catalogue.search(entry.name) or HELP.search(entry.name)):
                    yield entry.name, files.extractfile(entry).read()
        while process.stdout.read(1 << 20):  # what follows the archive
            pass
        if process.wait() != 0:
            raise DataError(f"{package}: is no whole Debian package: dpkg-deb ended with status {process.returncode}")
    except tarfile.TarError as error:
        raise DataError(f"{package}: is no Debian package: {error}") from error
    finally:
        process.stdout.close()
        process.wait()


def collect(folder, language, tell):
    """({letters of the English sentence: (foreign, English)}, {package: rows})"""
    packages = sorted(pathlib.Path(folder).glob("*.deb"))
    if not packages:
        raise DataError(f"{folder}: has no files *.deb; see translation_rows.py fetch")
    found, counts, pages = {}, collections.Counter(), {}

    def add(pairs, name):
        for foreign, english in pairs:
            key = letters(english)
            if key not in found:
                found[key] = foreign, english
                counts[name] += 1

    for number, package in enumerate(packages, 1):
        name = package.name.partition("_")[0]
        for path, content in files_of(package, language):
            if page := HELP.search(path):
                pages.setdefault(page[2], {})[page[1]] = paragraphs(content.decode("utf8", "replace"))
            else:
                add(of_catalogue(content), name)
        if number % 200 == 0:
            tell(f"{number} of {len(packages)} packages, {len(found)} sentences")
    for page in pages.values():
        english, foreign = page.get("en-US", {}), page.get(language, {})
        both = (pair(foreign[key], english[key]) for key in english if key in foreign)
        add((texts for texts in both if texts), "libreoffice-help-" + language)
    return found, counts


def is_held_out(key):
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "little") % HELD_OUT_OF == 0


def row(foreign, english, language):
    return {"prompt": f"{NAMES[language]} to English\n{foreign}\nEnglish:", "completion": " " + english}


def make(args, tell):
    found, counts = collect(args.packages, args.language, tell)
    if not found:
        raise DataError(f"{args.packages}: no sentences of the language {args.language}")
    held_out = {key: texts for key, texts in found.items() if is_held_out(key)}
    foreign = {letters(texts[0]) for texts in held_out.values()}
    train = [texts for key, texts in found.items() if key not in held_out and letters(texts[0]) not in foreign]
    os.makedirs(args.out, exist_ok=True)
    for name, texts in (("train.jsonl", train), ("dev.jsonl", held_out.values())):
        path = os.path.join(args.out, name)
        # By hash: neighbours of a catalogue are not neighbours here.
        ordered = sorted(texts, key=lambda both: hashlib.sha256(both[1].encode()).digest())
        with open(path + ".partial", "w", encoding="utf8") as file:
            file.writelines(json.dumps(row(*both, args.language), ensure_ascii=False) + "\n" for both in ordered)
        os.replace(path + ".partial", path)
        tell(f"{path}: {len(ordered)} rows")
    with open(os.path.join(args.out, "SOURCES"), "w", encoding="utf8") as file:
        file.writelines(f"{name} {count}\n" for name, count in counts.most_common())
