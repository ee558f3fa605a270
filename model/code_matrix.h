// A matrix of integer codes in groups, as GPTQ, AWQ and compressed-tensors store it, and the same
// values in a block format of GGUF. Called by quantised_checkpoint.cc. Pure.
//
// A value is scale * (code - zero). 8 bits, whose zeros are 128, are values of Q8_0. So are 4 bits
// of Q4_0 where all zeros are 8. Else they are of Q5_0: zeros are 0 to 15, so code - zero is one of
// its -16 to 15. All are exact, because scales are f16 in the folder too, or are refused.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "model/quantisation.h"

namespace coppice::model {

inline constexpr int64_t kValuesOfBlock = 32;  // of Q4_0, Q5_0 and Q8_0

// Views of the tensors. Words are 32 bits, little-endian, of n = 32 / bits codes; the first is
// lowest.
//   codes   kGptq [columns / n][rows], kPacked [rows][columns / n]: of neighbouring inputs;
//           kAwq [columns][rows / n]: of neighbouring outputs, in the order 0 2 4 6 1 3 5 7
//   zeros   kGptq, kAwq [groups][rows / n], kPacked [rows / n, rounded up][groups]: of neighbouring
//           outputs, in the same order
//   scales  kGptq, kAwq [groups][rows]; kPacked [rows][groups]
struct CodeMatrix {
  QuantLayout layout = QuantLayout::kGptq;
  int bits = 4;  // 4, or 8 without kAwq
  int64_t rows = 0;
  int64_t columns = 0;  // a multiple of 32; of n rows too, but in kPacked
  int64_t group = 0;    // columns that share a scale, a multiple of 32
  const char* codes = nullptr;
  const char* zeros = nullptr;        // nullptr: all are those of the middle
  int added_to_zeros = 0;             // the largest code and 1 are 0
  absl::Span<const uint16_t> scales;  // f16

  int64_t codes_of_word() const { return 32 / bits; }
  int64_t groups() const { return (columns + group - 1) / group; }
};

// Q8_0; of 4 bits Q4_0, or Q5_0 if there are zeros.
kernels::DType BlockTypeOf(const Quantisation& quantisation);

// The zero of a group of a row. There must be zeros.
int ZeroOf(const CodeMatrix& matrix, int64_t group, int64_t row);

// The matrix in that type, [rows] of whole blocks.
std::vector<char> MakeBlocks(const CodeMatrix& matrix, kernels::DType dtype);

}  // namespace coppice::model
