"""Makes model folders for tests: with random weights, or copies of the demo target with one mistake each."""
import json
import pathlib
import random
import shutil
import struct
import sys

from cluster import ROOT, TARGET

sys.path.insert(0, str(ROOT / "training"))
import llama_folder  # noqa: E402


def random_llama(out, vocab=512, seed=5, hidden=32, layers=1, heads=2, ffn=48, context=512):
    """A Llama with random weights. Its logits are so far apart that its drafts are confident and wrong."""
    source = random.Random(seed)
    tensors = {}
    for name, shape in llama_folder.tensor_shapes(hidden, layers, heads, heads, ffn, vocab).items():
        count = 1
        for size in shape:
            count *= size
        values = [1.0] * count if len(shape) == 1 else [source.gauss(0, 0.4) for _ in range(count)]
        tensors[name] = (shape, struct.pack(f"<{count}f", *values))
    llama_folder.write_folder(str(out), llama_folder.config(hidden, layers, heads, heads, ffn, vocab, context), tensors)
    shutil.copy(TARGET / "tokenizer.model", out)
    return pathlib.Path(out)


def large_llama(out, vocab=512, hidden=1024, layers=8, heads=8, ffn=4096, context=512):
    """A Llama of 0.4 GB, so that it takes a while to load. All its weights are 0."""
    tensors = {}
    for name, shape in llama_folder.tensor_shapes(hidden, layers, heads, heads, ffn, vocab).items():
        count = 1
        for size in shape:
            count *= size
        tensors[name] = (shape, bytes(4 * count))
    llama_folder.write_folder(str(out), llama_folder.config(hidden, layers, heads, heads, ffn, vocab, context), tensors)
    shutil.copy(TARGET / "tokenizer.model", out)
    return pathlib.Path(out)


def copy_of_target(out):
    return pathlib.Path(shutil.copytree(TARGET, out))


def ended_by_eos_alone(out):
    """The target without its other end token, the full stop, whose text would follow that of a format."""
    folder = copy_of_target(out)
    (folder / "generation_config.json").unlink()
    return folder


def with_chat_template(out, text):
    folder = copy_of_target(out)
    (folder / "chat_template.jinja").write_text(text)
    return folder


def without_checkpoint(out):
    folder = copy_of_target(out)
    (folder / "model.safetensors").unlink()
    return folder


def truncated(out, keep=0.5):
    folder = copy_of_target(out)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:int(len(data) * keep)])
    return folder


def with_wrong_shape(out, tensor="model.layers.1.mlp.up_proj.weight"):
    """Transposes the shape of the tensor, but keeps its bytes."""
    folder = copy_of_target(out)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header[tensor]["shape"].reverse()
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length:])
    return folder


def with_nan(out, token=7, tensor="model.embed_tokens.weight"):
    """Makes the token's row of the embedding NaN, in any type. It is also the output matrix, so this token's logit is always NaN."""
    folder = copy_of_target(out)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8:8 + length])[tensor]
    begin, end = entry["data_offsets"]
    row = (end - begin) // entry["shape"][0]
    begin += 8 + length + token * row
    data[begin:begin + row] = b"\xff" * row
    file.write_bytes(data)
    return folder


def with_weights(out, of, values):
    """A copy of the folder `of` whose matrices have the values of values(count, seed), f32, in their own types. Those of a bias by the
    token before stay: they are refused if they are not finite."""
    folder = pathlib.Path(shutil.copytree(of, out))
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    for seed, (name, entry) in enumerate(sorted(json.loads(data[8:8 + length]).items())):
        if name == "__metadata__" or "markov" in name or len(entry["shape"]) < 2:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        size = {"F32": 4, "BF16": 2}[entry["dtype"]]
        count = (end - begin) // size
        packed = struct.pack(f"<{count}f", *values(count, seed))
        data[begin:end] = packed if size == 4 else b"".join(packed[i + 2:i + 4] for i in range(0, len(packed), 4))
    file.write_bytes(data)
    return folder


def with_random_weights(out, of):
    def values(count, seed):
        source = random.Random(seed)
        return [source.gauss(0, 0.4) for _ in range(count)]
    return with_weights(out, of, values)


def with_nan_weights(out, of):
    return with_weights(out, of, lambda count, _: [float("nan")] * count)


def without_tensor(out, tensor="model.layers.2.self_attn.k_proj.weight"):
    folder = copy_of_target(out)
    file = folder / "model.safetensors"
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header[tensor.replace("k_proj", "other")] = header.pop(tensor)
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length:])
    return folder


def with_larger_tokenizer(out, extra=40):
    """Appends pieces beyond the model's vocabulary to the SentencePiece file (a repeated Protobuf field)."""
    folder = copy_of_target(out)
    with open(folder / "tokenizer.model", "ab") as file:
        for i in range(extra):
            piece = f"\u2581extra{i}".encode()
            message = b"\x0a" + bytes([len(piece)]) + piece + b"\x15" + struct.pack("<f", -1e4 - i)
            file.write(b"\x0a" + bytes([len(message)]) + message)
    return folder


def without_tokenizer(out):
    folder = copy_of_target(out)
    (folder / "tokenizer.model").unlink()
    return folder


def with_config(out, **changes):
    """Changes fields of config.json. The value None removes a field."""
    folder = copy_of_target(out)
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        if value is None:
            config.pop(key)
        else:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder
