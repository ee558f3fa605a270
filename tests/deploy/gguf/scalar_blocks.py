"""The values of quantised blocks, one at a time in plain Python with float32 rounding after every operation, as the layouts of ggml
describe them. Slow, and written apart from deploy/models/gguf_blocks.py, which is compared with it."""
import random
import struct


def single(value):
    """Rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def half(data):
    return struct.unpack("<e", data)[0]


def q8_0(b):
    return [single(q * half(b[:2])) for q in struct.unpack("<32b", b[2:])]


def q4_0(b):
    return [single(((b[2 + i % 16] >> (4 if i >= 16 else 0)) % 16 - 8) * half(b[:2])) for i in range(32)]


def q4_1(b):
    return [single(single((b[4 + i % 16] >> (4 if i >= 16 else 0)) % 16 * half(b[:2])) + half(b[2:4])) for i in range(32)]


def q5_0(b):
    fifth = int.from_bytes(b[2:6], "little")
    return [single(((b[6 + i % 16] >> (4 if i >= 16 else 0)) % 16 + (16 if fifth >> i & 1 else 0) - 16) * half(b[:2])) for i in range(32)]


def q5_1(b):
    fifth = int.from_bytes(b[4:8], "little")
    return [single(single(((b[8 + i % 16] >> (4 if i >= 16 else 0)) % 16 + (16 if fifth >> i & 1 else 0)) * half(b[:2])) + half(b[2:4]))
            for i in range(32)]


def _scale_and_minimum(group, packed):
    if group < 4:
        return packed[group] % 64, packed[group + 4] % 64
    return packed[group + 4] % 16 + packed[group - 4] // 64 * 16, packed[group + 4] // 16 + packed[group] // 64 * 16


def q4_k(b, values=16, fifth=lambda group, i: 0):
    out = []
    for group in range(8):
        scale, minimum = _scale_and_minimum(group, b[4:16])
        d, m = single(half(b[:2]) * scale), single(half(b[2:4]) * minimum)
        for i in range(32):
            q = (b[values + 32 * (group // 2) + i] >> 4 * (group % 2)) % 16 + fifth(group, i)
            out.append(single(single(d * q) - m))
    return out


def q5_k(b):
    return q4_k(b, values=48, fifth=lambda group, i: 16 * (b[16 + i] >> group & 1))


def q6_k(b):
    out = []
    scales = struct.unpack("<16b", b[192:208])
    for i in range(256):
        part, quarter, place = i // 128, i % 128 // 32, i % 32
        low = b[64 * part + 32 * (quarter % 2) + place] >> (4 if quarter >= 2 else 0)
        high = b[128 + 32 * part + place] >> 2 * quarter
        out.append(single((low % 16 + high % 4 * 16 - 32) * single(half(b[208:210]) * scales[i // 16])))
    return out


# number: (name, values, bytes, places of float16 scales, function)
SCALAR = {8: ("Q8_0", 32, 34, (0,), q8_0), 2: ("Q4_0", 32, 18, (0,), q4_0), 3: ("Q4_1", 32, 20, (0, 2), q4_1),
          6: ("Q5_0", 32, 22, (0,), q5_0), 7: ("Q5_1", 32, 24, (0, 2), q5_1), 12: ("Q4_K", 256, 144, (0, 2), q4_k),
          13: ("Q5_K", 256, 176, (0, 2), q5_k), 14: ("Q6_K", 256, 210, (208,), q6_k)}


def random_blocks(number, count, source=None, scale=1e-3):
    """The bytes of blocks with random values and small scales."""
    source = source or random.Random(number)
    _, _, size, scales, _ = SCALAR[number]
    out = b""
    for _ in range(count):
        block = bytearray(source.randbytes(size))
        for at in scales:
            block[at:at + 2] = struct.pack("<e", source.uniform(-scale, scale))
        out += bytes(block)
    return out


def scalar_values(number, data):
    _, _, size, _, read = SCALAR[number]
    return [value for at in range(0, len(data), size) for value in read(data[at:at + size])]
