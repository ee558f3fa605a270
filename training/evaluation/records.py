"""The file of a run: JSON lines. A line of kind "run" says what was asked when the run began or went on. A line of kind "answer" is
one question with one variant; "left_out" is a question that does not fit the model. An interrupted run goes on where it was."""
import json
import os


class RecordError(Exception):
    """Names the file, and the line or the difference."""


# What must be the same when a run goes on.
FIXED = ("format_version", "task", "data_sha256", "sample_seed", "seed", "max_tokens", "parallel", "chat", "model", "draft_models",
         "commit", "cluster")


def read_records(path):
    """(lines that are complete, bytes they take). A last line that was cut off is left out."""
    with open(path, "rb") as file:
        data = file.read()
    size = data.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(data[:size].splitlines(), 1):
        try:
            row = json.loads(line)
            if row["kind"] not in ("run", "answer", "left_out"):
                raise ValueError(f"unknown kind {row['kind']!r}")
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path}:{number}: is no record of a run: {error}") from error
        rows.append(row)
    if rows and rows[0]["kind"] != "run":
        raise RecordError(f"{path}:1: does not say what was run")
    return rows, size


def check_same(path, old, new):
    """RecordError if the run that the file has and the one that is asked for cannot be in one table."""
    for key in FIXED:
        if old.get(key) != new.get(key):
            raise RecordError(f"{path}: was made with {key} {old.get(key)!r}, now it is {new.get(key)!r}; give another file")
    for name, body in new["variants"].items():
        if old["variants"].get(name, body) != body:
            raise RecordError(f"{path}: was made with another request for {name}; give another file")


def opened(path):
    """The file, to append to it."""
    try:
        return open(path, "ab")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error


def check_writable(path):
    """RecordError if records cannot be appended to the file. Leaves none that was not there."""
    there = os.path.exists(path)
    opened(path).close()
    if not there:
        os.remove(path)


class RecordFile:
    """Appends records, each written at once. With no path, keeps them in memory only. One thread writes."""

    def __init__(self, path, run):
        self.rows, self.file = [], None
        size = 0
        if path and os.path.exists(path):
            self.rows, size = read_records(path)
            for row in self.rows:
                if row["kind"] == "run":
                    check_same(path, row, run)
        self.path = path
        if path:
            self.file = opened(path)
            self.file.truncate(size)
        self.add(run)

    def add(self, row):
        self.rows.append(row)
        if self.file:
            try:
                self.file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                self.file.flush()
            except OSError as error:
                raise RecordError(f"{self.path}: {error.strerror}") from error

    def done(self):
        """{(line, variant)} that have an answer, and the lines that were left out."""
        return ({(row["line"], row["variant"]) for row in self.rows if row["kind"] == "answer"},
                {row["line"] for row in self.rows if row["kind"] == "left_out"})

    def close(self):
        if self.file:
            self.file.close()
