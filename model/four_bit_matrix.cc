#include "model/four_bit_matrix.h"

#include <cstring>

#include "kernels/block_format.h"

namespace coppice::model {
namespace {

using kernels::DType;

constexpr int kPlacesOfAwq[kCodesOfWord] = {0, 4, 1, 5, 2, 6, 3, 7};  // of neighbouring outputs

uint32_t Word(const char* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + index * static_cast<int64_t>(sizeof word), sizeof word);
  return word;
}

int CodeAt(uint32_t word, int place) { return static_cast<int>(word >> (place * 4) & 15); }

// Where the code of an output is in its word.
int PlaceOfRow(QuantLayout layout, int64_t row) {
  const auto place = static_cast<int>(row % kCodesOfWord);
  return layout == QuantLayout::kAwq ? kPlacesOfAwq[place] : place;
}

// The codes of columns [begin, begin + 32) of a row.
void ReadCodes(const FourBitMatrix& m, int64_t row, int64_t begin, int* codes) {
  if (m.layout == QuantLayout::kAwq) {
    const int place = PlaceOfRow(m.layout, row);
    for (int k = 0; k < kValuesOfBlock; ++k)
      codes[k] =
          CodeAt(Word(m.codes, (begin + k) * (m.rows / kCodesOfWord) + row / kCodesOfWord), place);
    return;
  }
  const bool packed = m.layout == QuantLayout::kPacked;
  for (int w = 0; w < kValuesOfBlock / kCodesOfWord; ++w) {
    const int64_t at = begin / kCodesOfWord + w;
    const uint32_t word =
        Word(m.codes, packed ? row * (m.columns / kCodesOfWord) + at : at * m.rows + row);
    for (int place = 0; place < kCodesOfWord; ++place)
      codes[w * kCodesOfWord + place] = CodeAt(word, place);
  }
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
  return quantisation.has_zeros ? DType::kQ5_0 : DType::kQ4_0;
}

int ZeroOf(const FourBitMatrix& m, int64_t group, int64_t row) {
  const uint32_t word = Word(m.zeros, group * (m.rows / kCodesOfWord) + row / kCodesOfWord);
  return (CodeAt(word, PlaceOfRow(m.layout, row)) + m.added_to_zeros) & 15;
}

std::vector<char> MakeBlocks(const FourBitMatrix& m, DType dtype) {
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
      WriteBlock(m.scales[scale], codes, five_bits,
                 bytes.data() + row * row_bytes + begin / kValuesOfBlock * block_bytes);
    }
  }
  return bytes;
}

}  // namespace coppice::model
