// The block formats of GGUF: a few bits for each of 32 or 256 neighbouring values of a row, with
// scales that they share. What is said here of a format holds for files and for all backends. Pure
// functions; memory need not be aligned.
//
// Values are formed from codes (unsigned, 4 to 6 bits), with d and m as f16:
//   Q4_0, Q5_0      d (code - 8), d (code - 16)
//   Q4_1, Q5_1      d code + m
//   Q8_0            d code, the code an int8
//   IQ4_NL          d kIq4NlValues[code]
//   Q4_K, Q5_K      d scale code - m minimum: each 32 values have a scale and a minimum of 6 bits
//   Q6_K            d scale (code - 32): each 16 values have a scale, an int8
// d times scale times code is exact in f32, so a value is rounded at most once.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace coppice::kernels {

struct BlockFormat {
  DType dtype;
  const char* name;  // as GGUF spells it
  int64_t values;    // of a block
  int64_t bytes;     // of a block
};

inline constexpr int64_t kMostBlockValues = 256;
inline constexpr int8_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

absl::Span<const BlockFormat> BlockFormats();
bool IsBlockFormat(DType dtype);
const BlockFormat& FormatOf(DType dtype);  // of a block format
// Whether Backend::Pack makes this format of values: Q4_0 and Q8_0. The others only come in files.
bool IsQuantisedTo(DType dtype);

// Bytes of `columns` values of a row, of whole blocks in a block format.
int64_t RowBytes(DType dtype, int64_t columns);

// A block taken apart. What a format does not have is not set.
struct BlockFields {
  uint16_t scale = 0, minimum = 0;  // d and m, bits of f16
  uint8_t scales[16];               // of each 32 values, in Q6_K of each 16 and signed
  uint8_t minima[8];                // of each 32 values
  uint8_t codes[kMostBlockValues];  // in the order of the values
};
void ReadFields(DType dtype, const void* block, BlockFields* fields);

// The values of `count` blocks that follow each other.
void DecodeBlocks(DType dtype, const void* blocks, int64_t count, float* values);

// Index of the first block whose d or m is infinite or NaN; -1 if there is none.
int64_t FirstNotFinite(DType dtype, const void* blocks, int64_t count);

}  // namespace coppice::kernels
