#!/usr/bin/env python3
"""training/translation_rows.py: which texts become sentences, what is held out, packages of an archive on this machine, and faults."""
import functools
import gzip
import hashlib
import http.server
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "training"), str(ROOT / "tests/cluster")]
from stopwatch import at_most  # noqa: E402
from translation import archive, rows  # noqa: E402

TOOL = ROOT / "training/translation_rows.py"


def catalogue(pairs):
    """The content of a .mo file with (message, translation)."""
    pairs = sorted([("", "Content-Type: text/plain; charset=UTF-8\n"), *pairs])
    begin, tables, texts = 28 + 16 * len(pairs), [[], []], b""
    for side, table in enumerate(tables):
        for both in pairs:
            text = both[side].encode()
            table += [len(text), begin + len(texts)]
            texts += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, begin)
    return head + b"".join(struct.pack(f"<{len(table)}I", *table) for table in tables) + texts


def package(folder, name, files):
    """A .deb with these files: {path: bytes}."""
    tree = folder / f"{name}.tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: test\n")
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    made = folder / f"{name}_1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True)
    return made


class Packages(unittest.TestCase):
    def test_a_package_whose_archive_ends_early_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            pairs = [(f"The file number {i} is being opened.", f"Die Datei Nummer {i} wird jetzt geöffnet.") for i in range(2000)]
            whole = package(folder, "whole", {"usr/share/locale/de/LC_MESSAGES/a.mo": catalogue(pairs)})
            self.assertEqual(len(list(rows.files_of(whole, "de"))), 1)
            content = whole.read_bytes()
            for share in (0.5, 0.9, 0.99):
                broken = folder / "broken_1_all.deb"
                broken.write_bytes(content[:int(share * len(content))])
                with self.assertRaisesRegex(rows.DataError, "broken_1_all.deb: is no"):
                    list(rows.files_of(broken, "de"))


class Sentences(unittest.TestCase):
    def test_what_is_a_plain_sentence(self):
        self.assertEqual(rows.sentence(" Open  the\n&File now "), "Open the File now")
        self.assertEqual(rows.sentence("It costs 3 - 4 coins, isn't it?"), "It costs 3 - 4 coins, isn't it?")
        for odd in ("Copy %s to it", "a <b>bold</b> word", "see http://x.org now", "use --all here", "use -a here", "open a/b now", "set {n} to it",
                    "me@example.org is here", "_Open the _File now", "Working .... please wait"):
            self.assertIsNone(rows.sentence(odd), odd)

    def test_what_is_a_pair(self):
        german, english = "Die Datei wird geöffnet.", "The file is being opened."
        self.assertEqual(rows.pair(german, english), (german, english))
        for foreign, other in (("Drei kurze Wörter", "Three short words"), (english.upper(), english), ("Ja", english), (german * 3, english),
                               (german, " ".join(["word"] * 41))):
            self.assertIsNone(rows.pair(foreign, other), other)

    def test_messages_of_a_catalogue(self):
        content = catalogue([("menu\x04Save the file now", "Die Datei jetzt &sichern"), ("%d files were found", "%d Dateien wurden gefunden"),
                             ("one line of text\0lines of text", "eine Zeile Text\0Zeilen mit Text"), ("Not yet translated here", "")])
        self.assertEqual(rows.of_catalogue(content), [("Die Datei jetzt sichern", "Save the file now")])
        self.assertEqual(rows.of_catalogue(content[:40]), [])
        self.assertEqual(rows.of_catalogue(b"no catalogue"), [])

    def test_paragraphs_of_help(self):
        page = '<p id="par_a" class="x">Save <b>the</b> file &amp; go.</p>\n<p id="bm_b"></p><p id="par_c">two\nlines</p>'
        self.assertEqual(rows.paragraphs(page), {"par_a": "Save the file & go.", "par_c": "two\nlines"})


class Archive(unittest.TestCase):
    def test_packages_with_catalogues(self):
        contents = ("usr/share/locale/de/LC_MESSAGES/a.mo    utils/one,web/contrib/two\nusr/share/locale/de_AT/LC_MESSAGES/a.mo  three\n"
                    "usr/share/locale/nds/LC_MESSAGES/a.mo  four\nusr/share/locale/de/LC_MESSAGES/a.txt  five\n")
        self.assertEqual(archive.with_catalogues(contents, "de"), {"one", "two", "three"})


class WholeRuns(unittest.TestCase):
    def setUp(self):
        self.held = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.held.name)
        self.mirror = self.folder / "mirror"
        self.pool = self.mirror / "pool"
        self.pool.mkdir(parents=True)
        # English numbers are words, so that every sentence has other letters.
        self.texts = [(f"The sheep {'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]} eats green grass", f"Das Schaf {n} frisst grünes Gras") for n in range(100)]
        help_page = '<p id="par_1">{}</p><p id="par_2">{}</p>'
        place = "usr/share/libreoffice/help/{}/text/a.html"
        self.packages = [
            package(self.pool, "sheep", {"usr/share/locale/de/LC_MESSAGES/sheep.mo": catalogue(self.texts)}),
            # The same message again, and a German text of a held-out message under other English words.
            package(self.pool, "again", {"usr/share/locale/de/LC_MESSAGES/again.mo": catalogue(
                [self.texts[0]] + [(f"{english} and hay", german) for english, german in self.texts if rows.is_held_out(rows.letters(english))])}),
            package(self.pool, "libreoffice-help-de", {place.format("de"): help_page.format("Wählen Sie eine Zelle aus.", "Nur hier steht dieser Text").encode()}),
            package(self.pool, "libreoffice-help-en-us", {place.format("en-US"): help_page.replace("par_2", "par_3").format(
                "Choose a cell of it.", "Only here is this text").encode()})]
        index = self.mirror / "dists/bookworm/main"
        (index / "binary-amd64").mkdir(parents=True)
        (index / "Contents-all.gz").write_bytes(gzip.compress(b"".join(
            f"usr/share/locale/de/LC_MESSAGES/{name}.mo  misc/{name}\n".encode() for name in ("sheep", "again", "huge", "unknown"))))
        (index / "Contents-amd64.gz").write_bytes(gzip.compress(b"bin/sh  shells/dash\n"))
        self.stanzas = [f"Package: {p.name.partition('_')[0]}\nFilename: pool/{p.name}\nSize: {p.stat().st_size}\n"
                        f"SHA256: {hashlib.sha256(p.read_bytes()).hexdigest()}\n" for p in self.packages]
        self.stanzas.append(f"Package: huge\nFilename: pool/huge.deb\nSize: 7000000\nSHA256: {'0' * 64}\n")
        self.packages_file = index / "binary-amd64/Packages.gz"
        self.packages_file.write_bytes(gzip.compress("\n".join(self.stanzas).encode()))
        asked = self.asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                asked.append(self.path)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(self.mirror)))
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.held.cleanup()

    def run_tool(self, *arguments, status=0):
        result = subprocess.run([sys.executable, "-B", TOOL, *arguments], capture_output=True, text=True, timeout=at_most(120))
        self.assertEqual(result.returncode, status, result.stdout + result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result.stderr if status else result.stdout

    def fetch(self, status=0):
        return self.run_tool("fetch", f"--mirror={self.url}", f"--out={self.folder / 'packages'}", status=status)

    def test_from_an_archive_to_rows(self):
        self.assertIn("4 of 4 packages", self.fetch())
        self.asked.clear()
        whole = self.folder / "packages" / self.packages[0].name
        whole.write_bytes(whole.read_bytes()[:-1])  # it has been cut off
        self.fetch()
        self.assertEqual([path for path in self.asked if path.startswith("/pool/")], [f"/pool/{self.packages[0].name}"])
        out = self.folder / "rows"
        self.run_tool("rows", f"--packages={self.folder / 'packages'}", f"--out={out}")
        train, dev = ([json.loads(line) for line in (out / f"{name}.jsonl").read_text().splitlines()] for name in ("train", "dev"))
        held_out = [both for both in self.texts if rows.is_held_out(rows.letters(both[0]))]
        self.assertTrue(0 < len(held_out) < 10)
        self.assertIn({"prompt": "German to English\nWählen Sie eine Zelle aus.\nEnglish:", "completion": " Choose a cell of it."}, train + dev)
        sheep = [row for row in dev if "sheep" in row["completion"] and not row["completion"].endswith("hay")]
        self.assertEqual({row["completion"] for row in sheep}, {" " + english for english, _ in held_out})
        for row in train:  # nothing of what is held out, in either language
            self.assertFalse(any(german in row["prompt"] or row["completion"] == " " + english for english, german in held_out), row)
        self.assertEqual(len({row["completion"] for row in train + dev}), len(train + dev))
        self.assertEqual(len([row for row in train + dev if "sheep" in row["completion"] and "hay" not in row["completion"]]), 100)
        counts = dict(line.split() for line in (out / "SOURCES").read_text().splitlines())
        self.assertEqual((counts["libreoffice-help-de"], int(counts["sheep"]) + int(counts["again"])), ("1", 100 + len(held_out)))

    def test_faults_are_named(self):
        damaged = self.pool / self.packages[1].name
        damaged.write_bytes(damaged.read_bytes() + b"x")
        self.assertIn(f"{damaged.name}: its SHA-256 is not", self.fetch(status=2))
        damaged.unlink()
        self.assertRegex(self.fetch(status=2), rf"{damaged.name}: File not found")
        self.packages_file.write_bytes(b"no gzip")
        self.assertIn("Packages.gz: is no gzip file", self.fetch(status=2))
        self.assertIn("expected more than 0", subprocess.run([sys.executable, "-B", TOOL, "fetch", "--out=x", "--most-mb=0"], capture_output=True, text=True).stderr)
        empty = self.folder / "empty"
        empty.mkdir()
        rows_of = ("rows", f"--packages={empty}", f"--out={self.folder / 'rows'}")
        self.assertIn("has no files *.deb", self.run_tool(*rows_of, status=2))
        (empty / "a_1_all.deb").write_bytes(b"no package")
        self.assertIn("a_1_all.deb: is no Debian package", self.run_tool(*rows_of, status=2))
        (empty / "a_1_all.deb").unlink()
        package(empty, "b", {"usr/share/doc/b": b"text"})
        self.assertIn("no sentences of the language de", self.run_tool(*rows_of, status=2))


if __name__ == "__main__":
    unittest.main()
