#include "kernels/cpu/matmul_blocks.h"

#include <algorithm>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/integer_tiles.h"

#if defined(__x86_64__)
#include "kernels/cpu/matmul_blocks_avx2.h"
#include "kernels/cpu/matmul_blocks_vnni.h"
#endif

namespace coppice::kernels::cpu {
namespace {

// The output of one row and lane.
template <class Form>
float PortableOutput(const IntegerProduct& product, const uint8_t* at, int64_t row, int64_t lane) {
  using Scales = typename Form::Scales;
  using Codes = typename Form::Codes;
  const Int8Rows& x = *product.x;
  const auto* all = reinterpret_cast<const int8_t*>(x.words.data());
  const int64_t blocks = InputBlocks(product.args->w->columns);
  float output = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* shared = at + b / Scales::kShared * Form::kSharedBytes;
    const uint8_t* own = shared + Scales::kSharedBytes + b % Scales::kShared * Form::kBlockBytes;
    const int64_t place = b * x.rows + row;
    for (int g = 0; g < Form::kGroups; ++g) {
      const uint8_t* group = own + Scales::kOwnBytes + g * Codes::kBytes;
      const int8_t* q = all + place * kBlockInputs + g * Form::kGroup;
      int32_t sum = Scales::kMinimum ? 0 : x.correction[place * Form::kGroups + g];
      for (int k = 0; k < Form::kGroup; ++k) sum += Codes::Code(group, lane, k) * q[k];
      const float factor =
          Scales::Scale(shared, own, g, lane) * x.scale[place * 2 + g * Form::kGroup / 32];
      output += static_cast<float>(sum) * factor;
      if constexpr (Scales::kMinimum) {
        output += Scales::Minimum(shared, own, g, lane) * x.scaled_sum[place * Form::kGroups + g];
      }
    }
  }
  return output;
}

template <class Form>
void PortableRange(const IntegerProduct& product, int64_t panel_begin, int64_t panel_end) {
  const MatMulArgs& args = *product.args;
  for (int64_t output = panel_begin * kPanelWidth;
       output < std::min(panel_end * kPanelWidth, args.w->rows); ++output) {
    const uint8_t* panel = args.w->panel(output / kPanelWidth);
    for (int64_t row = 0; row < args.rows; ++row)
      StoreOne(args, row, output, PortableOutput<Form>(product, panel, row, output % kPanelWidth));
  }
}

template <class Form>
void Range(const IntegerProduct& product, KernelTarget target, int64_t panel_begin,
           int64_t panel_end) {
#if defined(__x86_64__)
  if (target >= KernelTarget::kAvx512 && HasVnni())
    return Tiles<VnniBlocks<Form>>(product, panel_begin, panel_end);
  if (target >= KernelTarget::kAvx2)
    return Tiles<Avx2Blocks<Form>>(product, panel_begin, panel_end);
#endif
  PortableRange<Form>(product, panel_begin, panel_end);
}

}  // namespace

void MatMulBlocksRange(const MatMulArgs& args, const Int8Rows& x, KernelTarget target,
                       int64_t panel_begin, int64_t panel_end) {
  WithBlockForm(args.w->dtype, [&](auto form) {
    Range<decltype(form)>({&args, &x}, target, panel_begin, panel_end);
  });
}

}  // namespace coppice::kernels::cpu
