// A panel of 16 outputs in a block format of GGUF (kernels/block_format.h): the same bits as in the
// file, arranged for the tiles of matmul_blocks.cc. Inputs are in blocks of 64, as in int8.h. Along a
// panel:
//   1. Scales for kShared blocks, f16: [2][16] d of 32 inputs each, then [2][16] m if there is one;
//      for the K formats [16] d, [16] m (in Q6_K absent).
//   2. K formats, for each block: its scales as bytes, [2][16] of 32 inputs or [4][16] of 16; then
//      [2][16] minima.
//   3. For each group of inputs (32, in Q6_K 16): bits above the fourth as [16][4] bytes, then steps
//      of [16][4] bytes. In a format of 4 to 6 bits the low half of byte b of step j of a lane has
//      input 4 j + b, the high half that of the second half of the group; in Q8_0 the byte is the
//      input itself.
// Bits above the fourth: byte b of a lane has those of the codes of byte b of all steps, in the
// order step 0 low, step 0 high, step 1 low, ...: the first from bit 4 on, up to bit 7; the others
// from bit 0 on. So a shift by 0 or 4 and then by the same few bits each brings them to bit 4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block_format.h"
#include "kernels/cpu/panel.h"
#include "kernels/element.h"

namespace coppice::kernels::cpu {

// Codes of 4 bits, and kHigh more beside them, in groups of 4 * 2 * kSteps inputs.
template <int kHighBits, int kStepsOfGroup>
struct NibbleCodes {
  static constexpr int kHigh = kHighBits, kSteps = kStepsOfGroup, kVectors = 2;
  static constexpr int64_t kHighBytes = kHigh > 0 ? kStepBytes : 0;
  static constexpr int64_t kBytes = kHighBytes + kSteps * kStepBytes;
  // Code k of the group of a lane.
  static int Code(const uint8_t* group, int64_t lane, int k) {
    const int vector = k / (4 * kSteps), step = k / 4 % kSteps, byte = k % 4;
    int code = group[kHighBytes + (step * kPanelWidth + lane) * 4 + byte] >> (vector * 4) & 15;
    if constexpr (kHigh > 0) {
      const int shift = ((step * 2 + vector) * kHigh + 4) % 8;
      code |= (group[lane * 4 + byte] >> shift & ((1 << kHigh) - 1)) << 4;
    }
    return code;
  }
};
// Indices into kIq4NlValues. Their values are codes of 8 bits.
struct TableCodes : NibbleCodes<0, 4> {
  static int Code(const uint8_t* group, int64_t lane, int k) {
    return kIq4NlValues[NibbleCodes::Code(group, lane, k)] + 128;
  }
};
// Values of 8 bits, with their sign.
struct ByteCodes {
  static constexpr int kHigh = 0, kSteps = 8, kVectors = 1;
  static constexpr int64_t kBytes = kSteps * kStepBytes;
  static int Code(const uint8_t* group, int64_t lane, int k) {
    return static_cast<int8_t>(group[(k / 4 * kPanelWidth + lane) * 4 + k % 4]) + 128;
  }
};

// The value of an f16 of `lane` in [..][16] of them.
inline float LoadHalf(const uint8_t* halves, int64_t lane) {
  return F16ToFloat(LoadElement<DType::kF16>(halves, lane));
}

// Scales of f16. `shared` and `own`: the bytes 1 and 2 above. A value is Scale * (code - kOffset) +
// Minimum.
struct HalfScales {
  static constexpr int kShared = 1;
  static constexpr int64_t kSharedBytes = 64, kOwnBytes = 0;
  static constexpr bool kMinimum = false;
  static float Scale(const uint8_t* shared, const uint8_t* /*own*/, int group, int64_t lane) {
    return LoadHalf(shared, group * kPanelWidth + lane);
  }
  static float Minimum(const uint8_t*, const uint8_t*, int, int64_t) { return -0.0f; }
};
struct HalfScalesAndMinima : HalfScales {
  static constexpr int64_t kSharedBytes = 128;
  static constexpr bool kMinimum = true;
  static float Minimum(const uint8_t* shared, const uint8_t* /*own*/, int group, int64_t lane) {
    return LoadHalf(shared + 64, group * kPanelWidth + lane);
  }
};
// Two levels: d times a scale of 6 bits, less m times a minimum of 6 bits.
struct ScalesAndMinimaOf256 {
  static constexpr int kShared = 4;
  static constexpr int64_t kSharedBytes = 64, kOwnBytes = 64;
  static constexpr bool kMinimum = true;
  static float Scale(const uint8_t* shared, const uint8_t* own, int group, int64_t lane) {
    return LoadHalf(shared, lane) * own[group * kPanelWidth + lane];
  }
  static float Minimum(const uint8_t* shared, const uint8_t* own, int group, int64_t lane) {
    return -LoadHalf(shared + 32, lane) * own[32 + group * kPanelWidth + lane];
  }
};
// d times a scale of 8 bits with its sign.
struct SignedScalesOf256 {
  static constexpr int kShared = 4;
  static constexpr int64_t kSharedBytes = 64, kOwnBytes = 64;
  static constexpr bool kMinimum = false;
  static float Scale(const uint8_t* shared, const uint8_t* own, int group, int64_t lane) {
    return LoadHalf(shared, lane) * static_cast<int8_t>(own[group * kPanelWidth + lane]);
  }
  static float Minimum(const uint8_t*, const uint8_t*, int, int64_t) { return -0.0f; }
};

// How a format lies in a panel.
template <class CodesOfForm, class ScalesOfForm, int kOffsetOfCodes>
struct BlockForm {
  using Codes = CodesOfForm;
  using Scales = ScalesOfForm;
  static constexpr int kOffset = kOffsetOfCodes;
  static constexpr int kSteps = Codes::kSteps, kVectors = Codes::kVectors;
  static constexpr int kGroup = 4 * kSteps * kVectors;                     // inputs
  static constexpr int kGroups = static_cast<int>(kBlockInputs) / kGroup;  // of a block
  static constexpr int64_t kBlockBytes = Scales::kOwnBytes + kGroups * Codes::kBytes;
  // Bytes of the blocks that share scales.
  static constexpr int64_t kSharedBytes = Scales::kSharedBytes + Scales::kShared * kBlockBytes;
  static constexpr int64_t kSharedInputs = Scales::kShared * kBlockInputs;
};
using FourBits = NibbleCodes<0, 4>;
using FiveBits = NibbleCodes<1, 4>;
using SixBits = NibbleCodes<2, 2>;

// Calls f with the form of a block format.
template <class F>
decltype(auto) WithBlockForm(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kQ4_0:
      return f(BlockForm<FourBits, HalfScales, 8>());
    case DType::kQ4_1:
      return f(BlockForm<FourBits, HalfScalesAndMinima, 0>());
    case DType::kQ5_0:
      return f(BlockForm<FiveBits, HalfScales, 16>());
    case DType::kQ5_1:
      return f(BlockForm<FiveBits, HalfScalesAndMinima, 0>());
    case DType::kQ8_0:
      return f(BlockForm<ByteCodes, HalfScales, 128>());
    case DType::kIQ4_NL:
      return f(BlockForm<TableCodes, HalfScales, 128>());
    case DType::kQ4_K:
      return f(BlockForm<FourBits, ScalesAndMinimaOf256, 0>());
    case DType::kQ5_K:
      return f(BlockForm<FiveBits, ScalesAndMinimaOf256, 0>());
    default:
      return f(BlockForm<SixBits, SignedScalesOf256, 32>());
  }
}

// Bytes of a panel of that many columns.
size_t BlockPanelBytes(DType dtype, int64_t columns);

// Puts a block to its place in a zeroed panel. begin: its first input.
void PackBlock(DType dtype, const BlockFields& fields, int64_t begin, int64_t lane, uint8_t* panel);

// Fills a zeroed panel. rows: of each lane the blocks of its row, null = absent.
void PackBlockPanel(DType dtype, const uint8_t* const* rows, int64_t columns, uint8_t* panel);

// The values of a lane, as DecodeBlocks gives them.
void ReadBlockRow(DType dtype, const uint8_t* panel, int64_t lane, int64_t columns, float* values);

}  // namespace coppice::kernels::cpu
