#!/usr/bin/env python3
"""Makes rows {"prompt": ..., "completion": ...} for training a translator into English, from the translations of programs and manuals
that Debian packages hold.

  translation_rows.py fetch --out PACKAGES     downloads the packages that have message catalogues of the language
  translation_rows.py rows --packages PACKAGES --out DIR      -> DIR/train.jsonl, DIR/dev.jsonl, DIR/SOURCES

Sentences come from message catalogues (.mo) and from the help of LibreOffice, whose pages have the same paragraphs in all languages.
Messages with placeholders, markup, paths or fewer than four words are left out. Of each sentence one translation is kept. A fiftieth
of the sentences, chosen by their letters, is held out as dev.jsonl; no text of it, in either language, is in train.jsonl in the same
letters. SOURCES names the packages and how many rows each gave.

fetch checks hashes, shows progress, and goes on after an interruption. German in Debian 12: 1,829 packages, 1.3 GB. The texts have the
licences of their packages. Needs only dpkg-deb. Exit status: 2 for wrong arguments or data, 130 after Ctrl-C, 143 after SIGTERM.
"""
import argparse
import signal
import sys

from tool_arguments import ArgumentFault, DataError, positive
from translation import archive, rows


def tell(text, file=sys.stdout):
    print(f"translation_rows: {text}", file=file, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch, make = commands.add_parser("fetch"), commands.add_parser("rows")
    fetch.add_argument("--mirror", default="http://deb.debian.org/debian", metavar="URL", help="(%(default)s)")
    fetch.add_argument("--release", default="bookworm", help="(%(default)s)")
    fetch.add_argument("--most-mb", type=positive(float), default=6, metavar="N", help="larger packages are left out (%(default)s)")
    fetch.add_argument("--out", required=True, metavar="DIR")
    make.add_argument("--packages", required=True, metavar="DIR", help="with files *.deb")
    make.add_argument("--out", required=True, metavar="DIR")
    for command in (fetch, make):
        command.add_argument("--language", default="de", choices=sorted(rows.NAMES), help="(%(default)s)")
    return parser.parse_args()


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if args.command == "fetch":
            archive.fetch(args, tell)
        else:
            rows.make(args, tell)
    except (DataError, ArgumentFault) as fault:
        tell(fault, sys.stderr)
        sys.exit(2)
    except OSError as fault:
        tell(f"{fault.filename or args.out}: {fault.strerror or fault}", sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
