#include <algorithm>
#include <numeric>

#include "decoding/parent_first_decoder.h"
#include "decoding/pf_gumbel.h"
#include "decoding/warped_row.h"

namespace coppice {
namespace {

class PfGumbelDecoder : public ParentFirstDecoder {
 public:
  explicit PfGumbelDecoder(const DecodingParams& params)
      : ParentFirstDecoder(params), row_(params) {}

 private:
  std::vector<Beam> DrawSlots(RowSource* rows, RoundLedger* ledger) override;

  WarpedRow row_;
};

// One layer's tokens: v_w = argmax log pt(v|b_w) + G(TOKEN, w, H(b_w), v).
std::vector<Beam> PfGumbelDecoder::DrawSlots(RowSource* rows, RoundLedger* ledger) {
  std::vector<Beam> slots(picks().size());
  std::vector<int> order(picks().size());  // slots by parent
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [this](int a, int b) { return picks()[a] < picks()[b]; });
  auto next = order.begin();
  for (size_t r = 0; r < parents().size(); ++r) {
    row_.Read(rows, parents()[r].row, state()->layers());
    const uint64_t hash = state()->paths().hash(parents()[r].path);
    for (; next != order.end() && picks()[*next] == static_cast<int32_t>(r); ++next) {
      const int w = *next;
      const WarpedRow::Draw draw =
          row_.DrawToken({state()->params().seed, Domain::kToken, hash, static_cast<uint32_t>(w)});
      ledger->AddMargin(draw.margin);
      slots[w] = ledger->Extend(&state()->paths(), parents()[r], draw.winner.token,
                                parents()[r].log_score + draw.winner.score_log_prob);
    }
  }
  return slots;
}

}  // namespace

std::unique_ptr<BeamDecoder> MakePfGumbelDecoder(const DecodingParams& params) {
  return std::make_unique<PfGumbelDecoder>(params);
}

}  // namespace coppice
