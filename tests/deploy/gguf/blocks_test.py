#!/usr/bin/env python3
"""Every quantisation of deploy/models/gguf_blocks.py: blocks whose values were computed by hand, and random blocks against
scalar_blocks.py, bit for bit."""
import struct
import unittest

import gguf_writer  # noqa: F401  (puts deploy/models and training on the path)
from scalar_blocks import SCALAR, random_blocks, scalar_values

import gguf_blocks
import numpy as np

ONE, HALF, QUARTER, MINUS = (struct.pack("<e", value) for value in (1.0, 0.5, 0.25, -3.0))


def read(name, data):
    number = next(n for n, block in gguf_blocks.TYPES.items() if block.name == name)
    return gguf_blocks.dequantize(number, np.frombuffer(bytes(data), np.uint8)).tolist()


class ByHand(unittest.TestCase):
    def test_unquantised(self):
        self.assertEqual(read("F32", struct.pack("<2f", 1.5, -2.25)), [1.5, -2.25])
        self.assertEqual(read("F16", ONE + MINUS), [1.0, -3.0])
        self.assertEqual(read("BF16", struct.pack("<f", -2.5)[2:] + struct.pack("<f", 1.0)[2:]), [-2.5, 1.0])

    def test_q8_0(self):
        self.assertEqual(read("Q8_0", HALF + struct.pack("<32b", *range(-16, 16))), [i / 2 for i in range(-16, 16)])

    def test_q4_0_has_low_halves_first_and_8_is_zero(self):
        # Byte i is i in the low half and 15 - i in the high half.
        block = ONE + bytes(i | (15 - i) << 4 for i in range(16))
        self.assertEqual(read("Q4_0", block), [i - 8 for i in range(16)] + [7 - i for i in range(16)])

    def test_q4_1_adds_the_minimum(self):
        block = HALF + MINUS + bytes(i | (15 - i) << 4 for i in range(16))
        self.assertEqual(read("Q4_1", block), [i / 2 - 3 for i in range(16)] + [(15 - i) / 2 - 3 for i in range(16)])

    def test_q5_0_takes_bit_i_for_value_i(self):
        bits = 1 << 0 | 1 << 15 | 1 << 16 | 1 << 31
        want = [-16.0] * 32
        for i in (0, 15, 16, 31):
            want[i] = 0.0
        want[3], want[17] = -11.0, -7.0  # 5 - 16, 9 - 16
        quads = bytearray(16)
        quads[3], quads[1] = 5, 9 << 4
        self.assertEqual(read("Q5_0", ONE + struct.pack("<I", bits) + quads), want)

    def test_q5_1(self):
        want = [-3.0] * 32
        want[2], want[20] = (16 + 1) * 0.25 - 3, 15 * 0.25 - 3
        quads = bytearray(16)
        quads[2], quads[4] = 1, 15 << 4
        self.assertEqual(read("Q5_1", QUARTER + MINUS + struct.pack("<I", 1 << 2) + quads), want)

    def test_q4_k_scales_of_both_halves(self):
        # Group 1: scale 3, minimum 2. Group 5: scale 33 = 1 + 2 * 16, minimum 20 = 4 + 1 * 16. The others: 0.
        packed = bytearray(12)
        packed[1] = 3 | 2 << 6        # scale of group 1; high bits of the scale of group 5
        packed[5] = 2 | 1 << 6        # minimum of group 1; high bits of the minimum of group 5
        packed[9] = 1 | 4 << 4        # low bits of the scale and of the minimum of group 5
        quads = bytearray(128)
        quads[7] = 9 << 4             # group 1, value 7
        quads[64 + 31] = 2 << 4       # group 5, value 31
        values = read("Q4_K", HALF + QUARTER + packed + quads)
        self.assertEqual(values[32:64], [-0.5] * 7 + [9 * 1.5 - 0.5] + [-0.5] * 24)
        self.assertEqual(values[160:192], [-5.0] * 31 + [2 * 16.5 - 5])
        self.assertEqual(set(values[:32] + values[64:160] + values[192:]), {0.0})

    def test_q5_k_has_the_fifth_bits_by_group(self):
        packed = bytes([1] * 4 + [0] * 4 + [1] * 4)  # all scales 1, all minima 0
        fifth, quads = bytearray(32), bytearray(128)
        fifth[4] = 1 << 6 | 1 << 1    # value 4 of groups 6 and 1
        quads[96 + 4] = 3             # group 6, value 4
        values = read("Q5_K", ONE + ONE + packed + fifth + quads)
        self.assertEqual({i: v for i, v in enumerate(values) if v}, {36: 16.0, 196: 19.0})

    def test_q6_k(self):
        low, high, scales = bytearray(128), bytearray(64), bytearray([0] * 16)
        scales[15], scales[2] = 256 - 2, 3          # values 240 to 255 by -2, values 32 to 47 by 3
        low[64 + 32 + 31] = 5 << 4                  # value 255 (fourth quarter of the second half), low bits
        high[32 + 31] = 2 << 6                      # its high bits: 5 + 32 - 32
        low[32] = 1                                 # value 32
        high[0] = 3 << 2                            # its high bits: 1 + 48 - 32
        values = read("Q6_K", low + high + scales + HALF)
        self.assertEqual(values[255], 5 * -2 * 0.5)
        self.assertEqual(values[32], 17 * 3 * 0.5)
        self.assertEqual(values[33:48], [-32 * 3 * 0.5] * 15)
        self.assertEqual(values[240:255], [-32 * -2 * 0.5] * 15)
        self.assertEqual(set(map(abs, values[:32] + values[48:240])), {0.0})


class Random(unittest.TestCase):
    def test_random_blocks_equal_the_scalar_values(self):
        for number, (name, size, _, _, _) in SCALAR.items():
            with self.subTest(name):
                data = random_blocks(number, 40, scale=2.0)
                values = read(name, data)
                self.assertEqual(len(values), 40 * size)
                self.assertEqual(values, scalar_values(number, data))

    def test_every_type_is_tested(self):
        self.assertEqual({b.name for b in gguf_blocks.TYPES.values()}, {s[0] for s in SCALAR.values()} | {"F32", "F16", "BF16"})

    def test_bf16_rounds_to_the_nearest_with_ties_to_even(self):
        values = [1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -(1.0 + 2**-9), 3.1415927]
        got = gguf_blocks.bf16_bits(np.array(values, np.float32)).tolist()
        self.assertEqual(got, [0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbf80, 0x4049])


if __name__ == "__main__":
    unittest.main(verbosity=2)
