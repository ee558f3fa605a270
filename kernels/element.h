// Values as a checkpoint and the backends store them: f32, bf16 and f16 bit patterns, read from
// memory that need not be aligned, and turned into each other. Pure functions; exact where the new
// type holds the value, else rounded to nearest, ties to even. NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/backend.h"

namespace coppice::kernels {

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// IEEE binary16, subnormals included.
inline float F16ToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u)
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // After the shift the exponent is too small by 112. The multiplication corrects it and normalises
  // subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

// Infinite from 65520 on.
inline uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {  // subnormal: a value of [0.5, 1) has the same last place
    const float moved = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(moved) - 0x3f000000u);
  }
  magnitude += 0xfffu + (magnitude >> 13 & 1u);
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u) >> 13);
}

inline constexpr float kLargestF16 = 65504.0f;

// How a type is stored, and what its bits mean.
template <DType kType>
struct Element;
template <>
struct Element<DType::kF32> {
  using Bits = float;
  static float ToFloat(Bits bits) { return bits; }
  static Bits FromFloat(float value) { return value; }
};
template <>
struct Element<DType::kBF16> {
  using Bits = uint16_t;
  static float ToFloat(Bits bits) { return Bf16ToFloat(bits); }
  static Bits FromFloat(float value) { return FloatToBf16(value); }
};
template <>
struct Element<DType::kF16> {
  using Bits = uint16_t;
  static float ToFloat(Bits bits) { return F16ToFloat(bits); }
  static Bits FromFloat(float value) { return FloatToF16(value); }
};

// Element `index` of an array of kType that need not be aligned.
template <DType kType>
typename Element<kType>::Bits LoadElement(const void* data, int64_t index = 0) {
  typename Element<kType>::Bits bits;
  std::memcpy(&bits, static_cast<const char*>(data) + index * sizeof bits, sizeof bits);
  return bits;
}

// The same as a value of kTo. Bit for bit when the types are the same.
template <DType kTo, DType kFrom>
typename Element<kTo>::Bits LoadElementAs(const void* data, int64_t index = 0) {
  const auto bits = LoadElement<kFrom>(data, index);
  if constexpr (kTo == kFrom) {
    return bits;
  } else {
    return Element<kTo>::FromFloat(Element<kFrom>::ToFloat(bits));
  }
}

// Calls f with the type as a constant.
template <class F>
decltype(auto) WithElement(DType dtype, F&& f) {
  if (dtype == DType::kF32) return f(std::integral_constant<DType, DType::kF32>());
  if (dtype == DType::kBF16) return f(std::integral_constant<DType, DType::kBF16>());
  return f(std::integral_constant<DType, DType::kF16>());
}

inline float ElementToFloat(const void* data, DType dtype, int64_t index = 0) {
  return WithElement(dtype, [&](auto type) {
    return static_cast<float>(LoadElementAs<DType::kF32, type()>(data, index));
  });
}

}  // namespace coppice::kernels
