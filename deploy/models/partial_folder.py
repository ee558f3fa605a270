"""A folder that appears under its name only when it is whole. Python standard library only."""
import fcntl
import os
import shutil


class PartialFolder:
    """with PartialFolder(path) as folder: files are written below folder.path, which is PATH.partial; folder.finish() renames it
    to PATH. If the block ends otherwise, it is removed. What a killed process has left is removed by the next one. FileExistsError:
    PATH exists, or another process is writing it."""

    def __init__(self, path):
        self.final = os.path.abspath(path)
        self.path = self.final + ".partial"

    def __enter__(self):
        self._refuse_existing()
        os.makedirs(os.path.dirname(self.final), exist_ok=True)
        self._lock = self._locked()
        try:
            self._refuse_existing()  # it may have been finished in the meantime
            for entry in os.scandir(self.path):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        except BaseException:
            self._remove()
            raise
        return self

    def _refuse_existing(self):
        if os.path.lexists(self.final):
            raise FileExistsError(f"{self.final}: exists already")

    def _locked(self):
        """A descriptor of PATH.partial that holds its lock. The lock ends with the process, however it ends."""
        while True:
            os.makedirs(self.path, exist_ok=True)
            try:
                lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # the other process has just finished
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(self.path)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise FileExistsError(f"{self.path}: another process is writing it") from None
            except FileNotFoundError:
                pass
            os.close(lock)

    def finish(self):
        for directory, _, files in os.walk(self.path):
            for name in files + ["."]:
                file = os.open(os.path.join(directory, name), os.O_RDONLY)
                os.fsync(file)
                os.close(file)
        os.rename(self.path, self.final)

    def _remove(self):
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def __exit__(self, *_):
        if os.path.lexists(self.path) and os.path.samestat(os.fstat(self._lock), os.stat(self.path)):
            self._remove()
        else:
            os.close(self._lock)
