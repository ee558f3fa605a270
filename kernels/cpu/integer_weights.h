// The two forms of integer weights, int8 and int4, as the tiles of matmul_int8.cc read them.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "kernels/element.h"

namespace coppice::kernels::cpu {

inline constexpr int64_t kGroupWords = kInt8Group / 4;  // words of a row's group, four inputs each

// The two forms of weights: how a block of 64 inputs of a panel is read (packed_matrix.h). It has
// kParts groups with a scale each. A group is kSteps steps of kStepBytes behind the scales, and a
// step has kVectors sets of 16 outputs, 4 inputs: set v of step k is for word v * kSteps + k of the
// group.
struct Int8Weights {
  static constexpr int kParts = 1, kSteps = 16, kVectors = 1;
  static constexpr int64_t kBlockBytes = kInt8GroupBytes;
  static constexpr int kOffset = 128;
  static int Code(uint8_t byte, int /*vector*/) { return byte; }
  static float Scale(const uint8_t* block, int /*part*/, int64_t lane) {
    return reinterpret_cast<const float*>(block)[lane];
  }
};
struct Int4Weights {
  static constexpr int kParts = 2, kSteps = 4, kVectors = 2;
  static constexpr int64_t kBlockBytes = kInt4BlockBytes;
  static constexpr int kOffset = 8;
  static int Code(uint8_t byte, int vector) { return byte >> (vector * 4) & 15; }
  static float Scale(const uint8_t* block, int part, int64_t lane) {
    return Bf16ToFloat(reinterpret_cast<const uint16_t*>(block)[lane * 2 + part]);
  }
};
inline constexpr int64_t kScaleBytes = kPanelWidth * 4;  // bytes of the scales of a block

// A product, and its input as integers.
struct IntegerProduct {
  const MatMulArgs* args;
  const Int8Rows* x;
};

// A finished output.
inline void StoreOne(const MatMulArgs& args, int64_t row, int64_t output, float sum) {
  float* y = args.y + row * args.y_stride + output;
  if (args.bias != nullptr) sum += args.bias[output];
  *y = args.accumulate ? *y + sum : sum;
}

inline constexpr int64_t kIntegerPrefetchBytes = 4096;  // bytes ahead of those that a tile reads

}  // namespace coppice::kernels::cpu
