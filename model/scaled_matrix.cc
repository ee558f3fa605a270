#include "model/scaled_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/block_format.h"
#include "kernels/element.h"

namespace coppice::model {
namespace {

constexpr int64_t kQ8Values = 32;  // of a block

float ScaleAt(const ScaledMatrix& m, int64_t row, int64_t column) {
  const int64_t across = (m.columns + m.block_columns - 1) / m.block_columns;
  return m.scales[row / m.block_rows * across + column / m.block_columns];
}

template <class Value>
std::vector<char> MakeF32(const ScaledMatrix& m, Value&& value) {
  std::vector<char> bytes(m.rows * m.columns * sizeof(float));
  auto* out = reinterpret_cast<float*>(bytes.data());
  for (int64_t row = 0; row < m.rows; ++row) {
    const char* codes = m.codes + row * m.columns;
    for (int64_t begin = 0; begin < m.columns; begin += m.block_columns) {
      const float scale = ScaleAt(m, row, begin);
      const int64_t end = std::min(m.columns, begin + m.block_columns);
      for (int64_t i = begin; i < end; ++i) *out++ = scale * value(codes[i]);
    }
  }
  return bytes;
}

}  // namespace

bool HasHalf(float value, uint16_t* half) {
  *half = kernels::FloatToF16(value);
  return std::isfinite(value) && kernels::F16ToFloat(*half) == value;
}

bool FitsQ8(const ScaledMatrix& m) {
  uint16_t half;
  return m.columns % kQ8Values == 0 && m.block_columns >= m.columns &&
         std::all_of(m.scales.begin(), m.scales.end(),
                     [&](float scale) { return HasHalf(scale, &half); });
}

std::vector<char> MakeQ8(const ScaledMatrix& m) {
  std::vector<char> bytes(m.rows * kernels::RowBytes(kernels::DType::kQ8_0, m.columns));
  char* out = bytes.data();
  for (int64_t row = 0; row < m.rows; ++row) {
    uint16_t half;
    HasHalf(ScaleAt(m, row, 0), &half);
    for (int64_t begin = 0; begin < m.columns; begin += kQ8Values) {
      std::memcpy(out, &half, sizeof half);
      std::memcpy(out + sizeof half, m.codes + row * m.columns + begin, kQ8Values);
      out += sizeof half + kQ8Values;
    }
  }
  return bytes;
}

std::vector<char> MakeF32FromInt8(const ScaledMatrix& m) {
  return MakeF32(m, [](char code) { return static_cast<float>(static_cast<int8_t>(code)); });
}

std::vector<char> MakeF32FromFp8(const ScaledMatrix& m) {
  std::array<float, 256> values;
  for (int bits = 0; bits < 256; ++bits) values[bits] = Fp8ToFloat(static_cast<uint8_t>(bits));
  return MakeF32(m, [&](char code) { return values[static_cast<uint8_t>(code)]; });
}

float Fp8ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -9)
                              : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace coppice::model
