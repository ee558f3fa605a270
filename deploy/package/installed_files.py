#!/usr/bin/env python3
"""Makes the files of an installation that are not in the tree: manual pages and completion from the help texts, units with the paths of
the prefix, links, and the notes that a Debian package has. Called by cmake --install (cmake/CoppiceInstall.cmake). Prints the paths of
the files. Uses only the Python standard library.
"""
import argparse
import email.utils
import gzip
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "deploy/tool"), str(ROOT / "deploy/launch")]
import commands  # noqa: E402
import completion  # noqa: E402
import installation  # noqa: E402
import man_page  # noqa: E402

PROGRAMS = ("coppice-coordinator", "coppice-worker", "coppice-draft", "coppice-loadgen", "coppice-catalogue")
CONFIGURED = PROGRAMS[:3]  # have the flags of a configuration file
ABOUT = "runs clusters that serve language models with speculative beam decoding"
LINKS = {
    "bin/coppice": "../lib/coppice/deploy/coppice",
    "lib/coppice/deploy/demo": "../../../share/coppice/demo",
    "lib/coppice/deploy/models/smollm2-draft": "../../../../share/coppice/models/smollm2-draft",
}
UNITS = ("coppice-coordinator.service", "coppice-worker@.service", "coppice-draft@.service")


class Files:
    """Writes files below a folder, and keeps their paths."""

    def __init__(self, destination):
        self.destination, self.written = destination, []

    def path(self, name):
        path = self.destination / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.written.append(path)
        return path

    def write(self, name, content):
        path = self.path(name)
        path.write_bytes(content.encode())
        path.chmod(0o644)

    def compress(self, name, content):
        path = self.path(name)
        with open(path, "wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed:
            compressed.write(content.encode())
        path.chmod(0o644)

    def link(self, name, target):
        os.symlink(target, self.path(name))


def text_of(path):
    return (ROOT / path).read_text(encoding="utf8")


def changed():
    """When CHANGELOG.md was changed, or SOURCE_DATE_EPOCH, in seconds since 1970."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or (ROOT / "CHANGELOG.md").stat().st_mtime)


def write_pages(files, programs, version, prefix):
    """The manual pages and the completion."""
    date = time.strftime("%Y-%m-%d", time.gmtime(changed()))
    places = [(f"{prefix}/share/doc/coppice/docs", "all pages: the API, the flags, how to operate a cluster."),
              (f"{prefix}/share/doc/coppice/examples", "configurations and cluster files to begin with.")]
    configured = [("/etc/coppice/cluster.toml", "the configuration of the services that systemd starts."), *places]
    kept = [("${XDG_STATE_HOME:-~/.local/state}/coppice/PORT", "logs and process ids of a cluster that coppice up has started."),
            ("${XDG_DATA_HOME:-~/.local/share}/coppice/models", "models that coppice models has made."), *places]
    for program in PROGRAMS:
        shown = subprocess.run([str(programs / program), "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
        also = [page for page in ("coppice", *PROGRAMS) if page != program]
        page = man_page.program_page(program, version, date, installation.with_commands(shown.stdout),
                                     configured if program in CONFIGURED else places, also)
        files.compress(f"share/man/man1/{program}.1.gz", page)
    helps = {command.name: commands.help_of(command, man_page.LINE) for command in commands.COMMANDS}
    rows = [(command.name, command.about, helps[command.name]) for command in commands.COMMANDS]
    files.compress("share/man/man1/coppice.1.gz", man_page.command_page("coppice", version, date, ABOUT, rows, kept, PROGRAMS))
    files.write("share/bash-completion/completions/coppice", completion.tables(helps) + text_of("deploy/package/completion.bash"))


def write_services(files, prefix):
    service = text_of("deploy/systemd/service.conf").rstrip("\n")
    for unit in UNITS:
        files.write(f"lib/systemd/system/{unit}", text_of(f"deploy/systemd/{unit}").replace("@SERVICE@", service).replace("@PREFIX@", prefix))
    files.write("share/doc/coppice/examples/cluster.toml", text_of("deploy/systemd/cluster.toml").replace("@PREFIX@", prefix))


def debian_changelog(version, maintainer):
    """The changelog of the package, with one entry."""
    return (f"coppice ({version}) unstable; urgency=medium\n\n  * What has changed: changelog.gz.\n\n"
            f" -- {maintainer}  {email.utils.formatdate(changed())}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destination", type=pathlib.Path, required=True, help="where files are written: the prefix, below DESTDIR")
    parser.add_argument("--programs", type=pathlib.Path, help="the folder of the programs that are installed")
    parser.add_argument("--prefix", help="where the files will be found")
    parser.add_argument("--version")
    parser.add_argument("--debian", metavar="VERSION", help="only the files that a Debian package of this version has")
    parser.add_argument("--maintainer")
    args = parser.parse_args()
    files = Files(args.destination)
    if args.debian:
        files.compress("share/doc/coppice/changelog.Debian.gz", debian_changelog(args.debian, args.maintainer))
    else:
        for name, target in LINKS.items():
            files.link(name, target)
        write_pages(files, args.programs, args.version, args.prefix.rstrip("/"))
        write_services(files, args.prefix.rstrip("/"))
        files.compress("share/doc/coppice/changelog.gz", text_of("CHANGELOG.md"))
    for path in files.written:
        print(path)


if __name__ == "__main__":
    main()
