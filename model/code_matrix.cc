#include "model/code_matrix.h"

#include <cstring>

#include "kernels/block_format.h"

namespace coppice::model {
namespace {

using kernels::DType;

constexpr int kPlacesOfAwq[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of neighbouring outputs

uint32_t Word(const char* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * static_cast<int64_t>(sizeof word), sizeof word);
  return word;
}

int CodeAt(const CodeMatrix& m, uint32_t word, int64_t place) {
  return static_cast<int>(word >> (place * m.bits)) & ((1 << m.bits) - 1);
}

// Where the code of an output is in its word.
int64_t PlaceOfRow(const CodeMatrix& m, int64_t row) {
  const int64_t place = row % m.codes_of_word();
  return m.layout == QuantLayout::kAwq ? kPlacesOfAwq[place] : place;
}

// The codes of columns [begin, begin + 32) of a row.
void ReadCodes(const CodeMatrix& m, int64_t row, int64_t begin, int* codes) {
  const int64_t n = m.codes_of_word();
  if (m.layout == QuantLayout::kAwq) {
    const int64_t place = PlaceOfRow(m, row);
    for (int64_t k = 0; k < kValuesOfBlock; ++k)
      codes[k] = CodeAt(m, Word(m.codes, (begin + k) * (m.rows / n) + row / n), place);
    return;
  }
  const bool packed = m.layout == QuantLayout::kPacked;
  for (int64_t w = 0; w < kValuesOfBlock / n; ++w) {
    const int64_t at = begin / n + w;
    const uint32_t word = Word(m.codes, packed ? row * (m.columns / n) + at : at * m.rows + row);
    for (int64_t place = 0; place < n; ++place) codes[w * n + place] = CodeAt(m, word, place);
  }
}

// Of d, then each value as a byte.
void WriteQ8(uint16_t scale, const int* codes, char* block) {
  std::memcpy(block, &scale, sizeof scale);
  for (int k = 0; k < kValuesOfBlock; ++k)
    block[sizeof scale + k] = static_cast<char>(codes[k] - 128);
}

// Of d, in Q5_0 the fifth bits, and the low bits: code k in the low half of byte k, code 16 + k in
// the high half.
void WriteBlock(uint16_t scale, const int* codes, bool five_bits, char* block) {
  std::memcpy(block, &scale, sizeof scale);
  block += sizeof scale;
  if (five_bits) {
    uint32_t high = 0;
    for (int k = 0; k < kValuesOfBlock; ++k) high |= static_cast<uint32_t>(codes[k] >> 4) << k;
    std::memcpy(block, &high, sizeof high);
    block += sizeof high;
  }
  for (int k = 0; k < kValuesOfBlock / 2; ++k)
    block[k] = static_cast<char>((codes[k] & 15) | (codes[kValuesOfBlock / 2 + k] & 15) << 4);
}

}  // namespace

DType BlockTypeOf(const Quantisation& quantisation) {
  if (quantisation.bits == 8) return DType::kQ8_0;
  return quantisation.has_zeros ? DType::kQ5_0 : DType::kQ4_0;
}

int ZeroOf(const CodeMatrix& m, int64_t group, int64_t row) {
  const int64_t n = m.codes_of_word();
  const bool packed = m.layout == QuantLayout::kPacked;
  const uint32_t word =
      Word(m.zeros, packed ? row / n * m.groups() + group : group * (m.rows / n) + row / n);
  return (CodeAt(m, word, PlaceOfRow(m, row)) + m.added_to_zeros) & ((1 << m.bits) - 1);
}

std::vector<char> MakeBlocks(const CodeMatrix& m, DType dtype) {
  const bool five_bits = dtype == DType::kQ5_0;
  const int64_t block_bytes = kernels::FormatOf(dtype).bytes;
  const int64_t row_bytes = kernels::RowBytes(dtype, m.columns);
  std::vector<char> bytes(m.rows * row_bytes);
  int codes[kValuesOfBlock];
  for (int64_t begin = 0; begin < m.columns; begin += kValuesOfBlock) {
    const int64_t group = begin / m.group;
    for (int64_t row = 0; row < m.rows; ++row) {
      ReadCodes(m, row, begin, codes);
      if (five_bits) {
        const int moved = 16 - ZeroOf(m, group, row);
        for (int& code : codes) code += moved;
      }
      const int64_t scale =
          m.layout == QuantLayout::kPacked ? row * m.groups() + group : group * m.rows + row;
      char* block = bytes.data() + row * row_bytes + begin / kValuesOfBlock * block_bytes;
      if (dtype == DType::kQ8_0) {
        WriteQ8(m.scales[scale], codes, block);
      } else {
        WriteBlock(m.scales[scale], codes, five_bits, block);
      }
    }
  }
  return bytes;
}

}  // namespace coppice::model
