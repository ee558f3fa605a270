#include "decoding/layer/dsbd_wor_layer.h"

#include <algorithm>

#include "decoding/joint/residual.h"
#include "decoding/layer/dsbd_layer.h"
#include "decoding/params.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

// b of 5.5: the proposal's entries not yet taken by a draft, over its first `rows` rows.
class ProposalLeft {
 public:
  ProposalLeft(const LayerDistribution& q, int rows) : q_(q), mass_(rows), row_mass_(rows, 0.0) {
    for (int row = 0; row < rows; ++row) {
      if (q.rows[row].sparse == nullptr) continue;
      for (double log_prob : q.rows[row].sparse->log_probs)
        mass_[row].push_back(sampling::Exp(q.rows[row].log_weight + log_prob));
      Sum(row);
    }
  }
  double Mass() const {
    double sum = 0;
    for (double mass : row_mass_) sum += mass;
    return sum;
  }
  void Remove(Entry draft) {
    mass_[draft.beam][FindToken(*q_.rows[draft.beam].sparse, draft.token)] = 0;
    Sum(draft.beam);
  }

 private:
  // Sums the rest again. It is never computed by subtraction.
  void Sum(int row) {
    row_mass_[row] = 0;
    for (double mass : mass_[row]) row_mass_[row] += mass;
  }
  const LayerDistribution& q_;
  std::vector<std::vector<double>> mass_;  // [rows][entries]
  std::vector<double> row_mass_;           // [rows]
};

class Reuse {
 public:
  Reuse(const LayerInput& input, RemovedParents rule, ChoiceSource* choices)
      : input_(input),
        choices_(choices),
        beams_(static_cast<int>(input.p->rows.size())),
        drops_removed_(rule == RemovedParents::kRenormalise),
        layer_hash_(LayerHash(*input.p)),
        a_(*input.p, *input.q),
        b_(*input.q, drops_removed_ ? beams_ : static_cast<int>(input.q->rows.size())) {
    result_.min_margin = sampling::kInfinity;
    result_.overlap = a_.Overlap();
  }

  Residual& a() { return a_; }
  const std::vector<RuleOutput>& outputs() const { return result_.outputs; }

  // The next output: the first remaining draft that passes, or a draw from the residual.
  Entry DrawOutput() {
    a_.Reset();
    while (next_ < input_.drafts.size() && b_.Mass() > sampling::kLeastMass) {
      const int j = next_++;
      if (Test(j)) {
        result_.outputs.push_back({input_.drafts[j], j});
        return input_.drafts[j];
      }
    }
    const Draw draw =
        choices_->Choose(sampling::Domain::kResidual, static_cast<uint32_t>(result_.outputs.size()),
                         a_.Normalised());
    result_.min_margin = std::min(result_.min_margin, draw.margin);
    ++result_.residual_draws;
    result_.outputs.push_back({draw.entry, -1});
    return draw.entry;
  }

  LayerResult Finish() && {
    result_.full =
        std::all_of(result_.outputs.begin(), result_.outputs.end(), [&](const RuleOutput& output) {
          return std::find(input_.drafts.begin(), input_.drafts.end(), output.entry) !=
                 input_.drafts.end();
        });
    return std::move(result_);
  }

 private:
  bool Test(int j) {
    const Entry d = input_.drafts[j];
    const bool removed = d.beam >= beams_;
    if (removed && drops_removed_) return false;
    ++result_.tested;
    a_.NormaliseProposal(b_.Mass());
    bool accepted = false;
    if (!removed) {
      const Coin coin = choices_->Accept(layer_hash_, j, a_.Target(d), a_.Proposal(d));
      result_.min_margin = std::min(result_.min_margin, coin.margin);
      accepted = coin.accepted;
    }
    if (!accepted) a_.Reject();
    a_.RemoveProposal(d);
    b_.Remove(d);
    return accepted;
  }

  const LayerInput& input_;
  ChoiceSource* choices_;
  const int beams_;
  const bool drops_removed_;
  const uint64_t layer_hash_;
  Residual a_;
  ProposalLeft b_;
  size_t next_ = 0;  // drafts before this index have been read
  LayerResult result_;
};

int CountEnds(const std::vector<RuleOutput>& outputs, const LayerEnds& ends) {
  return std::count_if(outputs.begin(), outputs.end(),
                       [&](const RuleOutput& output) { return ends.Has(output.entry); });
}

// Direct draws without replacement from `left` until there are `count` outputs.
void DrawDistinct(int count, LayerDistribution* left, ChoiceSource* choices, LayerResult* result) {
  while (result->outputs.size() < count && HasMass(*left)) {
    const Draw draw = choices->Choose(sampling::Domain::kDirect,
                                      static_cast<uint32_t>(result->outputs.size()), *left);
    result->outputs.push_back({draw.entry, -1});
    result->min_margin = std::min(result->min_margin, draw.margin);
    RemoveEntry(draw.entry, left);
  }
}

// Draws the outputs that the walk still needs.
void CompleteWalk(const LayerDistribution& p, int width, const LayerEnds& layer_ends,
                  ChoiceSource* choices, LayerResult* result) {
  LayerDistribution left = p;
  for (const RuleOutput& output : result->outputs) RemoveEntry(output.entry, &left);
  DrawDistinct(width, &left, choices, result);
  const int ends = CountEnds(result->outputs, layer_ends);
  if (ends == 0) return;
  layer_ends.RemoveFrom(&left);
  DrawDistinct(width + ends, &left, choices, result);
}

}  // namespace

LayerResult VerifyWithReuse(const LayerInput& input, RemovedParents rule, ChoiceSource* choices) {
  Reuse reuse(input, rule, choices);
  while (reuse.outputs().size() < input.width) reuse.DrawOutput();
  return std::move(reuse).Finish();
}

LayerResult VerifyDistinctWithReuse(const LayerInput& input, RemovedParents rule,
                                    const LayerEnds& layer_ends, ChoiceSource* choices) {
  Reuse reuse(input, rule, choices);
  const auto draw_until = [&](size_t count) {
    while (reuse.outputs().size() < count && reuse.a().HasTarget()) {
      reuse.a().RemoveTarget({reuse.DrawOutput()});
    }
  };
  const size_t width = input.width;
  draw_until(width);
  const int ends = CountEnds(reuse.outputs(), layer_ends);
  if (ends > 0) {
    std::vector<Entry> stops;
    for (int beam = 0; beam < input.p->rows.size(); ++beam) {
      for (TokenId stop : layer_ends.Tokens(beam)) stops.push_back({beam, stop});
    }
    reuse.a().RemoveTarget(stops);
    draw_until(width + ends);
  }
  LayerResult result = std::move(reuse).Finish();
  if (result.outputs.size() == width + ends) return result;
  // No entries are left, or only entries whose masses underflow in f64.
  const size_t verified = result.outputs.size();
  CompleteWalk(*input.p, input.width, layer_ends, choices, &result);
  result.full = result.full && result.outputs.size() == verified;
  return result;
}

LayerResult DrawDistinctLayer(const LayerDistribution& p, int width, const LayerEnds& ends,
                              ChoiceSource* choices) {
  LayerResult result;
  result.min_margin = sampling::kInfinity;
  CompleteWalk(p, width, ends, choices, &result);
  return result;
}

LayerResult DsbdWorRule::Verify(const LayerInput& input, ChoiceSource* choices) const {
  return VerifyWithReuse(input, rule_, choices);
}

LayerResult DsbdWorRule::Draw(const LayerDistribution& p, int width, const LayerEnds&,
                              ChoiceSource* choices) const {
  return DrawLayer(p, width, choices);
}

LayerResult DistinctDsbdWorRule::Verify(const LayerInput& input, ChoiceSource* choices) const {
  return VerifyDistinctWithReuse(input, rule_, input.ends, choices);
}

LayerResult DistinctDsbdWorRule::Draw(const LayerDistribution& p, int width, const LayerEnds& ends,
                                      ChoiceSource* choices) const {
  return DrawDistinctLayer(p, width, ends, choices);
}

}  // namespace coppice::decoding
