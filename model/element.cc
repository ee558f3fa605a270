#include "model/element.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace coppice::model {
namespace {

template <typename T>
T Read(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// IEEE binary16: subnormals (exponent 0) are mantissa x 2^-24.
float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t mantissa = half & 1023u;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

}  // namespace

float ElementToFloat(const char* data, kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return Read<float>(data);
    case kernels::DType::kBF16:
      return std::bit_cast<float>(uint32_t{Read<uint16_t>(data)} << 16);
    case kernels::DType::kF16:
      return HalfToFloat(Read<uint16_t>(data));
  }
  return 0;
}

}  // namespace coppice::model
