#include "kernels/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coppice::kernels {
namespace {

// The values of bit patterns from their fields.
double HalfValue(int bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}
double Bf16Value(int bits) {
  const int exponent = bits >> 7 & 255, fraction = bits & 127;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  return bits & 0x8000 ? -magnitude : magnitude;
}
bool IsFiniteHalf(int bits) { return (bits & 0x7c00) != 0x7c00; }
bool IsFiniteBf16(int bits) { return (bits & 0x7f80) != 0x7f80; }

TEST(ElementTest, EveryFiniteBitPatternIsExact) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    if (IsFiniteHalf(bits)) {
      ASSERT_EQ(ElementToFloat(&stored, DType::kF16), HalfValue(bits)) << bits;
      ASSERT_EQ(FloatToF16(F16ToFloat(stored)), stored);
    }
    if (IsFiniteBf16(bits)) {
      ASSERT_EQ(ElementToFloat(&stored, DType::kBF16), Bf16Value(bits)) << bits;
      ASSERT_EQ(FloatToBf16(Bf16ToFloat(stored)), stored);
    }
  }
}

// Between each two neighbours: the middle goes to the even one, all else to the nearer one.
template <class Value, class Round>
void CheckRounding(int largest, Value value, Round round) {
  for (int bits = 0; bits < largest; ++bits) {
    const auto middle = static_cast<float>((value(bits) + value(bits + 1)) / 2);
    const float below = std::nextafter(middle, 0.0f), above = std::nextafter(middle, INFINITY);
    ASSERT_EQ(round(middle), bits + bits % 2) << bits;
    ASSERT_EQ(round(-middle), (bits + bits % 2) | 0x8000) << bits;
    ASSERT_EQ(round(below), bits) << bits;
    ASSERT_EQ(round(above), bits + 1) << bits;
  }
}

TEST(ElementTest, RoundsToNearestTiesToEven) {
  CheckRounding(0x7bff, HalfValue, FloatToF16);
  // Half of the smallest bf16 is not a normal f32: from the first normal one on.
  CheckRounding(
      0x7f7f - 0x100, [](int bits) { return Bf16Value(bits + 0x100); },
      [](float value) {
        const int bits = FloatToBf16(value);
        return (bits & 0x8000) | ((bits & 0x7fff) - 0x100);
      });
}

TEST(ElementTest, WhatIsTooLargeForF16IsInfiniteAndNanStays) {
  EXPECT_EQ(FloatToF16(kLargestF16), 0x7bff);
  EXPECT_EQ(FloatToF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  for (const float large : {65520.0f, 1e9f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(FloatToF16(large), 0x7c00);
    EXPECT_EQ(FloatToF16(-large), 0xfc00);
  }
  EXPECT_EQ(F16ToFloat(0x7c00), INFINITY);
  EXPECT_EQ(FloatToF16(1e-9f), 0);
  EXPECT_EQ(FloatToF16(-1e-9f), 0x8000);
  EXPECT_TRUE(std::signbit(F16ToFloat(0x8000)));
  EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(NAN))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(NAN))));
}

TEST(ElementTest, ReadsWhatIsNotAligned) {
  char bytes[13] = {};
  const float values[3] = {1.5f, -2.25f, 3e-4f};
  std::memcpy(bytes + 1, values, sizeof values);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ElementToFloat(bytes + 1, DType::kF32, i), values[i]);
    const auto half = LoadElementAs<DType::kF16, DType::kF32>(bytes + 1, i);
    EXPECT_NEAR(F16ToFloat(half), values[i], std::abs(values[i]) * 0x1p-11);
  }
}

}  // namespace
}  // namespace coppice::kernels
