"""Where a draft starts: its embedding has the directions in which the target's embedding differs most."""
import glob
import json
import os

import numpy

from draft_distillation.pieces import DataError

EMBEDDING = "model.embed_tokens.weight"
SPREAD = 0.05  # standard deviation of the draft's embedding


def tensor(folder, name):
    """A tensor of a Hugging Face folder as f32."""
    paths = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
    for path in paths:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            try:
                header = json.loads(file.read(size))
            except ValueError as error:
                raise DataError(f"{path}: is no safetensors file") from error
            if name not in header:
                continue
            begin, end = header[name]["data_offsets"]
            file.seek(8 + size + begin)
            data, kind, shape = file.read(end - begin), header[name]["dtype"], header[name]["shape"]
            if kind == "BF16":
                values = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
            elif kind in ("F16", "F32"):
                values = numpy.frombuffer(data, "<f2" if kind == "F16" else "<f4").astype("<f4")
            else:
                raise DataError(f"{path}: {name} is of type {kind}, expected BF16, F16 or F32")
            return values.reshape(shape)
    raise DataError(f"{folder}: no {name} in its {len(paths)} safetensors files")


def embedding(target, hidden, counts):
    """[vocabulary, hidden]: the principal components of the target's embedding. counts [vocabulary]: how often each id was seen, which
    is its weight. If hidden is more than the target has, the rest is small noise."""
    full = tensor(target, EMBEDDING)
    if len(full) != len(counts):
        raise DataError(f"{target}: {EMBEDDING} has {len(full)} rows, its vocabulary {len(counts)}")
    weights = numpy.sqrt(counts + 1.0)
    weights /= weights.sum()
    full = full - weights @ full
    _, directions = numpy.linalg.eigh(full.T @ (full * weights[:, None]))
    start = full @ directions[:, ::-1][:, :hidden]
    # Rotated, so that each column has a part of every component: the draft's heads and norms begin with equal ones.
    source = numpy.random.default_rng(0)
    rotation, _ = numpy.linalg.qr(source.standard_normal((start.shape[1], start.shape[1])))
    start = start @ rotation
    start *= SPREAD / start.std()
    if hidden > start.shape[1]:
        start = numpy.concatenate([start, source.standard_normal((len(start), hidden - start.shape[1])) * SPREAD / 10], 1)
    return start.astype("<f4")
