#!/usr/bin/env python3
"""Makes a model folder of a draft that distill_draft.py has trained, which coppice-draft can load.

  draft_folder.py TRAINED TARGET OUT

TRAINED has config.json and trained.safetensors: the layers of the draft. Its embedding and head are those of the folder TARGET. If
TRAINED has "draft_vocab_size" in config.json and a tensor d2t (I64; row i of the head is id i + d2t[i]), the head has only those rows.
OUT appears only when it is whole, and must not exist. Needs NumPy for Python. Exit status 2 if a folder does not fit.
"""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy/models"))
from partial_folder import PartialFolder  # noqa: E402


def main():
    if len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return
    if len(sys.argv) != 4:
        sys.exit("draft_folder: expected TRAINED TARGET OUT (see --help)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    from draft_distillation import tensors
    from draft_distillation.pieces import DataError
    trained, target, out = sys.argv[1:]
    try:
        with PartialFolder(out) as folder:
            tensors.put_together(trained, target, folder.path)
            folder.finish()
    except (DataError, OSError) as fault:
        print(f"draft_folder: {fault}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
