#include "tests/kernels/block_samples.h"

#include <cmath>
#include <cstring>
#include <random>

namespace coppice::kernels {
namespace {

// A number in f16, from its fields.
double HalfAt(const uint8_t* bytes) {
  const int bits = bytes[0] | bytes[1] << 8;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// `count` bits from bit `first` on, the lowest bit of the first byte first.
int Bits(const uint8_t* bytes, int first, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i) value |= (bytes[(first + i) / 8] >> ((first + i) % 8) & 1) << i;
  return value;
}

// Value k of a block of 32 with codes of four bits: byte k of 16 holds values k and k + 16.
int Nibble(const uint8_t* bytes, int k) { return Bits(bytes + k % 16, k / 16 * 4, 4); }

// Scale g of a K format, or its minimum. Bits 0 to 3 and 4, 5 of the last four lie apart.
int SixBits(const uint8_t* bytes, int g, bool minimum) {
  if (g < 4) return Bits(bytes + (minimum ? 4 : 0) + g, 0, 6);
  return Bits(bytes + 4 + g, minimum ? 4 : 0, 4) | Bits(bytes + (minimum ? 0 : -4) + g, 6, 2) << 4;
}

double KValue(const uint8_t* block, int k, int code) {
  const int g = k / 32;
  return HalfAt(block) * SixBits(block + 4, g, false) * code -
         HalfAt(block + 2) * SixBits(block + 4, g, true);
}

double ValueOf(DType dtype, const uint8_t* block, int k) {
  // Of 64 values the first 32 are in the low halves of 32 bytes.
  const int byte = k / 64 * 32 + k % 32, shift = k / 32 % 2 * 4;
  switch (dtype) {
    case DType::kQ4_0:
      return HalfAt(block) * (Nibble(block + 2, k) - 8);
    case DType::kQ4_1:
      return HalfAt(block) * Nibble(block + 4, k) + HalfAt(block + 2);
    case DType::kQ5_0:
      return HalfAt(block) * (Nibble(block + 6, k) + 16 * Bits(block + 2, k, 1) - 16);
    case DType::kQ5_1:
      return HalfAt(block) * (Nibble(block + 8, k) + 16 * Bits(block + 4, k, 1)) +
             HalfAt(block + 2);
    case DType::kQ8_0:
      return HalfAt(block) * (block[2 + k] < 128 ? block[2 + k] : block[2 + k] - 256);
    case DType::kIQ4_NL: {
      constexpr int kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
      return HalfAt(block) * kLevels[Nibble(block + 2, k)];
    }
    case DType::kQ4_K:
      return KValue(block, k, Bits(block + 16 + byte, shift, 4));
    case DType::kQ5_K:
      return KValue(block, k,
                    Bits(block + 48 + byte, shift, 4) + 16 * Bits(block + 16 + k % 32, k / 32, 1));
    default: {  // Q6_K
      const int half = k / 128, quarter = k % 128 / 32;
      const int low = Bits(block + half * 64 + k % 64, quarter / 2 * 4, 4);
      const int high = Bits(block + 128 + half * 32 + k % 32, quarter * 2, 2);
      const int scale = block[192 + k / 16];
      return HalfAt(block + 208) * (scale < 128 ? scale : scale - 256) * (low + 16 * high - 32);
    }
  }
}

}  // namespace

bool HasMinimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
         dtype == DType::kQ5_K;
}

BlockMatrix::BlockMatrix(DType dtype, int64_t rows, int64_t columns, uint64_t seed)
    : dtype_(dtype), rows_(rows), columns_(columns), bytes_(rows * RowBytes(dtype, columns)) {
  std::mt19937_64 random(seed);
  for (uint8_t& byte : bytes_) byte = static_cast<uint8_t>(random());
  const auto scale = [&] {
    const auto bits = static_cast<uint16_t>(random());
    if (random() % 50 == 0) return static_cast<uint16_t>(bits & 0x83ff);  // subnormal
    if (random() % 50 == 0) return uint16_t{0};
    return static_cast<uint16_t>((bits & 0x8fff) | 0x2000);  // 2^-7 to 2^-4
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t block = 0; block < columns / FormatOf(dtype).values; ++block) {
      SetScale(row, block, scale());
      if (HasMinimum(dtype)) SetMinimum(row, block, scale());
    }
  }
}

MatrixSource BlockMatrix::source() const {
  return {bytes_.data(), dtype_, rows_, columns_, columns_};
}

uint8_t* BlockMatrix::Block(int64_t row, int64_t block) {
  return bytes_.data() + row * RowBytes(dtype_, columns_) + block * FormatOf(dtype_).bytes;
}

void BlockMatrix::SetScale(int64_t row, int64_t block, uint16_t bits) {
  std::memcpy(Block(row, block) + (dtype_ == DType::kQ6_K ? 208 : 0), &bits, sizeof bits);
}

void BlockMatrix::SetMinimum(int64_t row, int64_t block, uint16_t bits) {
  std::memcpy(Block(row, block) + 2, &bits, sizeof bits);
}

std::vector<float> BlockMatrix::Values() const {
  const BlockFormat& format = FormatOf(dtype_);
  std::vector<float> values;
  for (size_t at = 0; at < bytes_.size(); at += format.bytes) {
    for (int k = 0; k < format.values; ++k)
      values.push_back(static_cast<float>(ValueOf(dtype_, bytes_.data() + at, k)));
  }
  return values;
}

std::vector<DType> AllBlockTypes() {
  std::vector<DType> types;
  for (const BlockFormat& format : BlockFormats()) types.push_back(format.dtype);
  return types;
}

}  // namespace coppice::kernels
