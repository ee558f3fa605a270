"""The tensor types of GGUF: how large a block of values is, and its values as float32. Pure; needs numpy.

A block type stores 32 or 256 values together: one or two scales in float16 and a few bits for each value. Every function takes
the bytes of whole blocks, one row for each block, and returns float32 of shape [blocks, values of a block]. The products and sums
are formed in float32, as the programs do that compute with these types. Layout: the structs block_* of ggml, little-endian."""
import dataclasses
from typing import Callable

import numpy as np

F32 = np.float32


def _half(blocks, at):
    """The float16 at this byte of each block, as float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at:at + 2]).view("<f2").astype(F32)


def _nibbles(packed):
    """The low halves of all bytes, then the high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(packed):
    """Bit i of a 32-bit number, at the place of the fifth bit of value i."""
    bits = np.ascontiguousarray(packed).view("<u4") >> np.arange(32, dtype=np.uint32) & 1
    return (bits << 4).astype(np.uint8)


def _f32(blocks):
    return blocks.view("<f4").astype(F32)


def _f16(blocks):
    return blocks.view("<f2").astype(F32)


def _bf16(blocks):
    return (blocks.view("<u2").astype("<u4") << 16).view(F32)


def _q8_0(blocks):
    return blocks[:, 2:].view(np.int8).astype(F32) * _half(blocks, 0)


def _q4_0(blocks):
    return (_nibbles(blocks[:, 2:]).astype(F32) - 8) * _half(blocks, 0)


def _q4_1(blocks):
    return _nibbles(blocks[:, 4:]).astype(F32) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks):
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (values.astype(F32) - 16) * _half(blocks, 0)


def _q5_1(blocks):
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return values.astype(F32) * _half(blocks, 0) + _half(blocks, 2)


def _scales_and_minima(packed):
    """The eight 6-bit scales and eight 6-bit minima of a Q4_K or Q5_K block, from its 12 bytes: each float32 [blocks, 8]."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales.astype(F32), minima.astype(F32)


def _scaled_groups(blocks, values):
    """Eight groups of 32 values with a scale and a minimum each. values: [blocks, 8, 32]."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scales, minima = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return (scales[:, :, None] * values.astype(F32) - minima[:, :, None]).reshape(len(blocks), 256)


def _groups_of_nibbles(packed):
    """32 bytes hold two groups of 32 values: the low halves are one group, the high halves the next. -> [blocks, 8, 32]."""
    return _nibbles(packed.reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _q4_k(blocks):
    return _scaled_groups(blocks, _groups_of_nibbles(blocks[:, 16:]))


def _q5_k(blocks):
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # byte i, bit g: value i of group g
    return _scaled_groups(blocks, _groups_of_nibbles(blocks[:, 48:]) | fifth << 4)


def _q6_k(blocks):
    """Two halves of 128 values. A half: 64 bytes with the low four bits, 32 bytes with the high two, 8 signed scales."""
    low = blocks[:, :128].reshape(-1, 2, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    values = (low | high << 4).astype(F32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(F32) * _half(blocks, 208)
    return (values.reshape(-1, 16, 16) * scales[:, :, None]).reshape(-1, 256)


@dataclasses.dataclass(frozen=True)
class BlockType:
    name: str
    values: int                                  # of a block
    bytes: int                                   # of a block
    read: Callable[[np.ndarray], np.ndarray]     # uint8 [blocks, bytes] -> float32 [blocks, values]


# The number that a file gives -> what is read.
TYPES = {
    0: BlockType("F32", 1, 4, _f32), 1: BlockType("F16", 1, 2, _f16), 30: BlockType("BF16", 1, 2, _bf16),
    2: BlockType("Q4_0", 32, 18, _q4_0), 3: BlockType("Q4_1", 32, 20, _q4_1), 6: BlockType("Q5_0", 32, 22, _q5_0),
    7: BlockType("Q5_1", 32, 24, _q5_1), 8: BlockType("Q8_0", 32, 34, _q8_0), 12: BlockType("Q4_K", 256, 144, _q4_k),
    13: BlockType("Q5_K", 256, 176, _q5_k), 14: BlockType("Q6_K", 256, 210, _q6_k),
}
# Types that files have and that are not read, for messages.
OTHER_TYPES = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
               21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
               34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}


def type_name(number):
    return TYPES[number].name if number in TYPES else OTHER_TYPES.get(number, f"number {number}")


def dequantize(number, data):
    """The values of whole blocks. data: uint8, a multiple of the block's bytes. Returns float32, flat."""
    block = TYPES[number]
    return block.read(data.reshape(-1, block.bytes)).reshape(-1)


def bf16_bits(values):
    """float32 -> the 16 bits of the nearest bfloat16, ties to even. The values are finite."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    return ((bits + ((bits >> 16 & 1) + 0x7fff)) >> 16).astype("<u2")
