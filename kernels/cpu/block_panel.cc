#include "kernels/cpu/block_panel.h"

#include <algorithm>
#include <cstring>

namespace coppice::kernels::cpu {
namespace {

uint32_t FourCodes(const uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, codes, sizeof word);
  return word;
}

void StoreWord(uint8_t* words, int64_t lane, uint32_t word) {
  std::memcpy(words + lane * 4, &word, sizeof word);
}

// Puts the codes of a group of a lane to their places.
template <class Codes>
void PackCodes(const uint8_t* codes, int64_t lane, uint8_t* group) {
  if constexpr (Codes::kVectors == 1) {
    for (int j = 0; j < Codes::kSteps; ++j)
      StoreWord(group + j * kStepBytes, lane, FourCodes(codes + 4 * j));
  } else {
    uint32_t high = 0;
    for (int j = 0; j < Codes::kSteps; ++j) {
      const uint32_t words[2] = {FourCodes(codes + 4 * j),
                                 FourCodes(codes + 4 * (Codes::kSteps + j))};
      StoreWord(group + Codes::kHighBytes + j * kStepBytes, lane,
                (words[0] & 0x0f0f0f0fu) | (words[1] & 0x0f0f0f0fu) << 4);
      if constexpr (Codes::kHigh > 0) {
        constexpr uint32_t kOne = Codes::kHigh == 1 ? 0x01010101u : 0x03030303u;
        for (int v = 0; v < 2; ++v)
          high |= (words[v] >> 4 & kOne) << ((j * 2 + v) * Codes::kHigh + 4) % 8;
      }
    }
    if constexpr (Codes::kHigh > 0) StoreWord(group, lane, high);
  }
}

void StoreHalf(uint8_t* halves, int64_t lane, uint16_t bits) {
  std::memcpy(halves + lane * 2, &bits, sizeof bits);
}

// Puts the scales of a file's block to their places. part: which 32 inputs of a panel's block it
// is, if it has as many.
template <class Form>
void PackScales(const BlockFields& fields, int part, int64_t lane, uint8_t* shared) {
  using Scales = typename Form::Scales;
  if constexpr (Scales::kShared == 1) {
    StoreHalf(shared, part * kPanelWidth + lane, fields.scale);
    if (Scales::kMinimum) StoreHalf(shared + 64, part * kPanelWidth + lane, fields.minimum);
  } else {
    StoreHalf(shared, lane, fields.scale);
    if (Scales::kMinimum) StoreHalf(shared + 32, lane, fields.minimum);
    for (int b = 0; b < Scales::kShared; ++b) {
      uint8_t* own = shared + Scales::kSharedBytes + b * Form::kBlockBytes;
      for (int g = 0; g < Form::kGroups; ++g) {
        own[g * kPanelWidth + lane] = fields.scales[b * Form::kGroups + g];
        if (Scales::kMinimum)
          own[32 + g * kPanelWidth + lane] = fields.minima[b * Form::kGroups + g];
      }
    }
  }
}

// The bytes that blocks share of the 64 inputs from `begin` on.
template <class Form>
uint8_t* SharedOf(uint8_t* panel, int64_t begin) {
  return panel + begin / Form::kSharedInputs * Form::kSharedBytes;
}

// Those of the block itself.
template <class Form>
uint8_t* OwnOf(uint8_t* panel, int64_t begin) {
  return SharedOf<Form>(panel, begin) + Form::Scales::kSharedBytes +
         begin % Form::kSharedInputs / kBlockInputs * Form::kBlockBytes;
}

// values: of the block.
template <class Form>
void PackFields(const BlockFields& fields, int64_t values, int64_t begin, int64_t lane,
                uint8_t* panel) {
  PackScales<Form>(fields, static_cast<int>(begin % kBlockInputs / 32), lane,
                   SharedOf<Form>(panel, begin));
  for (int64_t k = 0; k < values; k += Form::kGroup) {
    uint8_t* groups = OwnOf<Form>(panel, begin + k) + Form::Scales::kOwnBytes;
    PackCodes<typename Form::Codes>(
        fields.codes + k, lane,
        groups + (begin + k) % kBlockInputs / Form::kGroup * Form::Codes::kBytes);
  }
}

template <class Form>
void PackPanel(DType dtype, const uint8_t* const* rows, int64_t columns, uint8_t* panel) {
  const BlockFormat& format = FormatOf(dtype);
  BlockFields fields;
  for (int64_t begin = 0; begin < columns; begin += format.values) {
    for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
      if (rows[lane] == nullptr) continue;
      ReadFields(dtype, rows[lane] + begin / format.values * format.bytes, &fields);
      PackFields<Form>(fields, format.values, begin, lane, panel);
    }
  }
}

template <class Form>
void ReadRow(const uint8_t* panel, int64_t lane, int64_t columns, float* values) {
  auto* const bytes = const_cast<uint8_t*>(panel);  // for addresses alone
  for (int64_t begin = 0; begin < columns; begin += Form::kGroup) {
    const uint8_t* shared = SharedOf<Form>(bytes, begin);
    const uint8_t* own = OwnOf<Form>(bytes, begin);
    const auto g = static_cast<int>(begin % kBlockInputs / Form::kGroup);
    const float scale = Form::Scales::Scale(shared, own, g, lane);
    const float minimum = Form::Scales::Minimum(shared, own, g, lane);
    const uint8_t* group = own + Form::Scales::kOwnBytes + g * Form::Codes::kBytes;
    const auto count = static_cast<int>(std::min<int64_t>(Form::kGroup, columns - begin));
    for (int k = 0; k < count; ++k) {
      const int code = Form::Codes::Code(group, lane, k) - Form::kOffset;
      values[begin + k] = scale * static_cast<float>(code) + minimum;
    }
  }
}

}  // namespace

size_t BlockPanelBytes(DType dtype, int64_t columns) {
  return WithBlockForm(dtype, [&](auto form) {
    using Form = decltype(form);
    return static_cast<size_t>((columns + Form::kSharedInputs - 1) / Form::kSharedInputs *
                               Form::kSharedBytes);
  });
}

void PackBlock(DType dtype, const BlockFields& fields, int64_t begin, int64_t lane,
               uint8_t* panel) {
  WithBlockForm(dtype, [&](auto form) {
    PackFields<decltype(form)>(fields, FormatOf(dtype).values, begin, lane, panel);
  });
}

void PackBlockPanel(DType dtype, const uint8_t* const* rows, int64_t columns, uint8_t* panel) {
  WithBlockForm(dtype, [&](auto form) { PackPanel<decltype(form)>(dtype, rows, columns, panel); });
}

void ReadBlockRow(DType dtype, const uint8_t* panel, int64_t lane, int64_t columns, float* values) {
  WithBlockForm(dtype, [&](auto form) { ReadRow<decltype(form)>(panel, lane, columns, values); });
}

}  // namespace coppice::kernels::cpu
