// Matrices of 8-bit integers or FP8 E4M3 with scales of rows, of blocks or of the whole matrix, and
// the same values in Q8_0 or f32. Called by quantised_checkpoint.cc. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace coppice::model {

// The scale of element (r, c) is scales[r / block_rows * blocks of a row + c / block_columns].
struct ScaledMatrix {
  const char* codes = nullptr;  // [rows][columns]
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 0, block_columns = 0;
  absl::Span<const float> scales;  // finite
};

// The bits of f16 with exactly this value, if it is finite and has them.
bool HasHalf(float value, uint16_t* half);

// Of int8: whether its rows can be blocks of Q8_0. Each scale must be that of whole rows.
bool FitsQ8(const ScaledMatrix& matrix);
// Of int8 that fits: [rows] of blocks of Q8_0, with the same values.
std::vector<char> MakeQ8(const ScaledMatrix& matrix);

// The values in f32, [rows * columns], each rounded once. They may be NaN where FP8 is.
std::vector<char> MakeF32FromInt8(const ScaledMatrix& matrix);
std::vector<char> MakeF32FromFp8(const ScaledMatrix& matrix);

// The value of FP8 E4M3: a sign, 4 bits of exponent, 3 of fraction; no infinities.
float Fp8ToFloat(uint8_t bits);

}  // namespace coppice::model
