"""Reads a GGUF file: its metadata, and the places of its tensors. The file is mapped, not read into memory. Its bytes are untrusted:
every length is checked against the file before it is used. Errors are BadModel, one line with the file and what is wrong.

Format: magic, version, count of tensors, count of metadata pairs; the pairs (name, type, value); for each tensor its name, sizes
(the fastest dimension first), type and offset; then the data, aligned. All little-endian."""
import dataclasses
import mmap
import os
import stat
import struct

import numpy as np

import gguf_blocks

STRING, ARRAY = 8, 9
MOST_HEADER_BYTES = 256 << 20  # all up to the tensors' data; a vocabulary takes some ten megabytes
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
NUMPY = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8"}


class BadModel(Exception):
    """What is wrong with a model, on one line that names the file."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple  # rows first, as [out, in] of a weight
    type: int     # of gguf_blocks
    begin: int    # bytes from the start of the file
    end: int


class GgufFile:
    """with GgufFile(path) as file: file.metadata, file.tensors, file.rows(...)."""

    def __init__(self, path):
        self.path = str(path)
        self.metadata, self.tensors = {}, {}
        try:
            # The opening of a pipe does not wait for its writer.
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
                about = os.fstat(file.fileno())
                size = about.st_size
                if not stat.S_ISREG(about.st_mode):
                    raise self.error("not a regular file")
                if size < 24:
                    raise self.error(f"{size} bytes, expected a GGUF file")
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise BadModel(f"{self.path}: {error.strerror}") from error
        try:
            self._at = 0
            self._read_header()
        except BaseException:
            self._map.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._map.close()
        except BufferError:  # an error is on its way, and its traceback still holds a view
            pass

    def error(self, what):
        return BadModel(f"{self.path}: {what}")

    # ---- header ----
    def _take(self, count, what):
        """The next bytes of the file."""
        if count > len(self._map) - self._at:
            raise self.error(f"ends at byte {len(self._map)} inside of {what} (truncated?)")
        if self._at + count > MOST_HEADER_BYTES:
            raise self.error(f"{what}: the header has more than {MOST_HEADER_BYTES} bytes")
        self._at += count
        return self._map[self._at - count:self._at]

    def _scalar(self, form, what):
        return struct.unpack(form, self._take(struct.calcsize(form), what))[0]

    def _string(self, what):
        data = self._take(self._scalar("<Q", what), what)
        try:
            return data.decode("utf8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what}: not UTF-8 at byte {error.start}") from error

    def _array(self, what):
        kind, count = self._scalar("<I", what), self._scalar("<Q", what)
        if kind == STRING:
            if count > len(self._map) // 8:
                raise self.error(f"{what}: {count} strings do not fit into the file (truncated?)")
            return [self._string(f"{what}[{i}]") for i in range(count)]
        if kind not in NUMPY:
            raise self.error(f"{what}: an array of type {kind} is not read")
        return np.frombuffer(self._take(count * np.dtype(NUMPY[kind]).itemsize, what), NUMPY[kind]).tolist()

    def _value(self, what):
        kind = self._scalar("<I", what)
        if kind == STRING:
            return self._string(what)
        if kind == ARRAY:
            return self._array(what)
        if kind not in SCALARS:
            raise self.error(f"{what}: type {kind} is not a type of GGUF metadata")
        return self._scalar(SCALARS[kind], what)

    def _read_header(self):
        magic = self._take(4, "the header")
        if magic != b"GGUF":
            raise self.error(f"begins with {magic!r}, expected a GGUF file")
        version = self._scalar("<I", "the header")
        if version not in (2, 3):
            big_endian = struct.unpack("<I", struct.pack(">I", version))[0] in (2, 3)
            raise self.error("big-endian, expected a little-endian GGUF file" if big_endian else
                             f"GGUF version {version}, expected 2 or 3")
        tensors, pairs = self._scalar("<Q", "the header"), self._scalar("<Q", "the header")
        for i in range(pairs):
            key = self._string(f"the name of metadata pair {i}")
            self.metadata[key] = self._value(f"metadata {key}")
        alignment = self.number("general.alignment", default=32, least=1, most=1 << 20)
        found = [self._tensor_info(i) for i in range(tensors)]
        start = self._at + -self._at % alignment
        for name, shape, kind, offset in found:
            self._add_tensor(name, shape, kind, start + offset)

    def _tensor_info(self, i):
        name = self._string(f"the name of tensor {i}")
        dimensions = self._scalar("<I", f"tensor {name}")
        if not 1 <= dimensions <= 4:
            raise self.error(f"tensor {name}: {dimensions} dimensions, expected 1 to 4")
        sizes = [self._scalar("<Q", f"tensor {name}") for _ in range(dimensions)]
        return name, tuple(reversed(sizes)), self._scalar("<I", f"tensor {name}"), self._scalar("<Q", f"tensor {name}")

    def _add_tensor(self, name, shape, kind, begin):
        if name in self.tensors:
            raise self.error(f"tensor {name} appears twice")
        block = gguf_blocks.TYPES.get(kind)
        if block is None:
            known = ", ".join(t.name for t in gguf_blocks.TYPES.values())
            raise self.error(f"tensor {name}: type {gguf_blocks.type_name(kind)} is not read ({known} are)")
        if shape[-1] % block.values:
            raise self.error(f"tensor {name}: rows of {shape[-1]} values, expected a multiple of {block.values} ({block.name})")
        count = 1
        for size in shape:
            count *= size
        end = begin + count // block.values * block.bytes
        if end > len(self._map):
            raise self.error(f"tensor {name} ends at byte {end}, the file at {len(self._map)} (truncated?)")
        self.tensors[name] = Tensor(name, shape, kind, begin, end)

    # ---- what callers use ----
    def number(self, key, default=None, least=0, most=1 << 40, whole=True):
        """A number of the metadata. BadModel if it is missing and has no default, or is outside of the range."""
        value = self.metadata.get(key, default)
        if value is None:
            raise self.error(f"metadata {key} is missing")
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not least <= value <= most:
            raise self.error(f"metadata {key}: {str(value)[:60]}, expected a number from {least} to {most}")
        return value

    def boolean(self, key, default):
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"metadata {key}: {str(value)[:60]}, expected true or false")
        return value

    def text(self, key, default=None):
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise self.error(f"metadata {key} is missing" if value is None else f"metadata {key}: expected a text")
        return value

    def items(self, key, kind, default=None):
        """A list of the metadata, whose elements are of this type."""
        value = self.metadata.get(key, default)
        if value is None:
            raise self.error(f"metadata {key} is missing")
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.error(f"metadata {key}: expected a list of {kind.__name__}")
        return value

    def rows(self, tensor, begin, end):
        """Rows [begin, end) of a matrix, or elements of a vector (then they must be whole blocks), as float32."""
        block = gguf_blocks.TYPES[tensor.type]
        width = tensor.shape[1] if len(tensor.shape) == 2 else 1
        first = tensor.begin + begin * width // block.values * block.bytes
        data = np.frombuffer(self._map, np.uint8, (end - begin) * width // block.values * block.bytes, first)
        with np.errstate(all="ignore"):  # what is not finite is told below
            values = gguf_blocks.dequantize(tensor.type, data)
        if not np.isfinite(values).all():
            raise self.error(f"tensor {tensor.name}: has values that are not finite")
        return values.reshape(end - begin, width) if len(tensor.shape) == 2 else values
