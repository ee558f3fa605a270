#include "kernels/block_format.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/element.h"

namespace coppice::kernels {
namespace {

constexpr BlockFormat kFormats[] = {
    {DType::kQ4_0, "Q4_0", 32, 18},   {DType::kQ4_1, "Q4_1", 32, 20},
    {DType::kQ5_0, "Q5_0", 32, 22},   {DType::kQ5_1, "Q5_1", 32, 24},
    {DType::kQ8_0, "Q8_0", 32, 34},   {DType::kIQ4_NL, "IQ4_NL", 32, 18},
    {DType::kQ4_K, "Q4_K", 256, 144}, {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210},
};

uint16_t Half(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Whether the format has m behind d.
bool HasMinimum(DType dtype) {
  return dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
         dtype == DType::kQ5_K;
}

// Where d lies in a block; m is behind it.
int64_t PlaceOfScale(DType dtype) { return dtype == DType::kQ6_K ? 208 : 0; }

// Of `count` bytes the low halves, then the high halves.
void ReadHalves(const uint8_t* bytes, int count, uint8_t* codes) {
  for (int k = 0; k < count; ++k) codes[k] = bytes[k] & 15;
  for (int k = 0; k < count; ++k) codes[count + k] = bytes[k] >> 4;
}

// Bit k of 32 is the fifth bit of code k. Eight at a time: byte i of a word is left with bit i of a
// byte of the block, and then has bit 7 set if that bit is.
void AddFifthBits(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t bits = bytes[i] * 0x0101010101010101u & 0x8040201008040201u;
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, sizeof eight);
    eight |= ((bits + 0x7f7f7f7f7f7f7f7fu) & 0x8080808080808080u) >> 3;
    std::memcpy(codes + 8 * i, &eight, sizeof eight);
  }
}

// Eight scales and eight minima of 6 bits, in 12 bytes. The last four of each have their low bits
// in the last four bytes and their high bits above those of the first four.
void ReadScalesAndMinima(const uint8_t* bytes, BlockFields* fields) {
  for (int k = 0; k < 4; ++k) {
    fields->scales[k] = bytes[k] & 63;
    fields->minima[k] = bytes[4 + k] & 63;
    fields->scales[4 + k] = static_cast<uint8_t>((bytes[8 + k] & 15) | bytes[k] >> 6 << 4);
    fields->minima[4 + k] = static_cast<uint8_t>(bytes[8 + k] >> 4 | bytes[4 + k] >> 6 << 4);
  }
}

void ReadQ4K(const uint8_t* block, BlockFields* fields) {
  ReadScalesAndMinima(block + 4, fields);
  for (int pair = 0; pair < 4; ++pair)
    ReadHalves(block + 16 + pair * 32, 32, fields->codes + pair * 64);
}

// Bit g of byte k is the fifth bit of code k of group g.
void ReadQ5K(const uint8_t* block, BlockFields* fields) {
  ReadScalesAndMinima(block + 4, fields);
  for (int pair = 0; pair < 4; ++pair)
    ReadHalves(block + 48 + pair * 32, 32, fields->codes + pair * 64);
  for (int g = 0; g < 8; ++g) {
    for (int k = 0; k < 32; ++k)
      fields->codes[g * 32 + k] |= static_cast<uint8_t>((block[16 + k] >> g & 1) << 4);
  }
}

// Two halves of 128 values: 64 bytes have the low four bits, 32 bytes the high two, each two bits
// for the same place of four groups of 32.
void ReadQ6K(const uint8_t* block, BlockFields* fields) {
  std::copy_n(block + 192, 16, fields->scales);
  for (int half = 0; half < 2; ++half) {
    uint8_t* codes = fields->codes + half * 128;
    ReadHalves(block + half * 64, 64, codes);
    const uint8_t* high = block + 128 + half * 32;
    for (int g = 0; g < 4; ++g) {
      for (int k = 0; k < 32; ++k)
        codes[g * 32 + k] |= static_cast<uint8_t>((high[k] >> (g * 2) & 3) << 4);
    }
  }
}

constexpr float kNoMinimum = -0.0f;  // leaves the sign of a zero

// Values of a group that has one scale.
void Scale(const uint8_t* codes, int count, int offset, float scale, float minimum, float* values) {
  for (int k = 0; k < count; ++k)
    values[k] = scale * static_cast<float>(codes[k] - offset) + minimum;
}

void DecodeFields(DType dtype, const BlockFields& fields, float* values) {
  const float d = F16ToFloat(fields.scale), m = F16ToFloat(fields.minimum);
  switch (dtype) {
    case DType::kQ4_0:
      return Scale(fields.codes, 32, 8, d, kNoMinimum, values);
    case DType::kQ5_0:
      return Scale(fields.codes, 32, 16, d, kNoMinimum, values);
    case DType::kQ4_1:
    case DType::kQ5_1:
      return Scale(fields.codes, 32, 0, d, m, values);
    case DType::kQ8_0:
      for (int k = 0; k < 32; ++k) values[k] = d * static_cast<int8_t>(fields.codes[k]);
      return;
    case DType::kIQ4_NL:
      for (int k = 0; k < 32; ++k) values[k] = d * kIq4NlValues[fields.codes[k]];
      return;
    case DType::kQ4_K:
    case DType::kQ5_K:
      for (int g = 0; g < 8; ++g) {
        Scale(fields.codes + g * 32, 32, 0, d * fields.scales[g], -(m * fields.minima[g]),
              values + g * 32);
      }
      return;
    default:
      for (int g = 0; g < 16; ++g) {
        Scale(fields.codes + g * 16, 16, 32, d * static_cast<int8_t>(fields.scales[g]), kNoMinimum,
              values + g * 16);
      }
  }
}

}  // namespace

absl::Span<const BlockFormat> BlockFormats() { return kFormats; }

bool IsBlockFormat(DType dtype) { return dtype >= DType::kQ4_0; }

bool IsQuantisedTo(DType dtype) { return dtype == DType::kQ4_0 || dtype == DType::kQ8_0; }

const BlockFormat& FormatOf(DType dtype) {
  COPPICE_CHECK(IsBlockFormat(dtype));
  return kFormats[static_cast<int>(dtype) - static_cast<int>(DType::kQ4_0)];
}

int64_t RowBytes(DType dtype, int64_t columns) {
  if (!IsBlockFormat(dtype)) return columns * static_cast<int64_t>(DTypeSize(dtype));
  const BlockFormat& format = FormatOf(dtype);
  return columns / format.values * format.bytes;
}

void ReadFields(DType dtype, const void* block, BlockFields* fields) {
  const auto* bytes = static_cast<const uint8_t*>(block);
  fields->scale = Half(bytes + PlaceOfScale(dtype));
  fields->minimum = HasMinimum(dtype) ? Half(bytes + PlaceOfScale(dtype) + 2) : uint16_t{0};
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return ReadHalves(bytes + 2, 16, fields->codes);
    case DType::kQ4_1:
      return ReadHalves(bytes + 4, 16, fields->codes);
    case DType::kQ5_0:
      ReadHalves(bytes + 6, 16, fields->codes);
      return AddFifthBits(bytes + 2, fields->codes);
    case DType::kQ5_1:
      ReadHalves(bytes + 8, 16, fields->codes);
      return AddFifthBits(bytes + 4, fields->codes);
    case DType::kQ8_0:
      std::copy_n(bytes + 2, 32, fields->codes);
      return;
    case DType::kQ4_K:
      return ReadQ4K(bytes, fields);
    case DType::kQ5_K:
      return ReadQ5K(bytes, fields);
    default:
      return ReadQ6K(bytes, fields);
  }
}

void DecodeBlocks(DType dtype, const void* blocks, int64_t count, float* values) {
  const BlockFormat& format = FormatOf(dtype);
  const auto* block = static_cast<const uint8_t*>(blocks);
  BlockFields fields;
  for (int64_t b = 0; b < count; ++b) {
    ReadFields(dtype, block + b * format.bytes, &fields);
    DecodeFields(dtype, fields, values + b * format.values);
  }
}

int64_t FirstNotFinite(DType dtype, const void* blocks, int64_t count) {
  const BlockFormat& format = FormatOf(dtype);
  const auto* place = static_cast<const uint8_t*>(blocks) + PlaceOfScale(dtype);
  const auto finite = [](uint16_t half) { return (half & 0x7c00) != 0x7c00; };
  for (int64_t b = 0; b < count; ++b, place += format.bytes) {
    if (!finite(Half(place)) || (HasMinimum(dtype) && !finite(Half(place + 2)))) return b;
  }
  return -1;
}

}  // namespace coppice::kernels
