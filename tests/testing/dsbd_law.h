// The exact law of whole DSBD decodes: drafter and decoder of production, every choice enumerated,
// against the closed two-layer law of beam sampling. Used by tests/decoding and tools/golden.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decoding/dsbd.h"
#include "decoding/dsbd_drafter.h"
#include "tests/testing/beam_law.h"
#include "tests/testing/enumerate_choices.h"
#include "tests/testing/forwarded_choices.h"
#include "tests/testing/hash_lm.h"

namespace coppice {

// A model as a function of the path hash: unwarped log-probabilities [V].
using LogProbsOf = std::function<std::vector<double>(uint64_t hash)>;

class FunctionRows : public RowSource {
 public:
  FunctionRows(LogProbsOf model, absl::Span<const uint64_t> root_hash, const DraftForest& forest)
      : model_(std::move(model)), hashes_(RowHashes(root_hash, forest)) {}
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override {
    row_ = model_(hashes_[row]);
    return row_;
  }

 private:
  LogProbsOf model_;
  std::vector<uint64_t> hashes_;
  std::vector<double> row_;
};

struct DsbdSetting {
  DecodingParams params;  // beam_width, max_tokens = layers in all, width rule, stop ids, warp
  RemovedParents rule = RemovedParents::kReject;
  std::vector<DsbdDecoder::StartSlot> start;  // empty: the prompt alone
  int draft_width = 2;                        // W_S
  int draft_depth = 1;                        // gamma
  LogProbsOf target;
  LogProbsOf draft;
};

// Drafts one round as the draft node does.
inline DraftForest DraftDsbdRound(const DsbdSetting& setting, const DraftState& state, int depth,
                                  std::shared_ptr<ChoiceSource> choices) {
  DsbdDrafter drafter(setting.params, state, setting.draft_width, std::move(choices));
  for (int level = 0; level < depth && !drafter.frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = RowHashes(state.root_hash, drafter.forest());
    std::vector<Distribution> rows;
    for (int32_t node : drafter.frontier()) {
      const int row = node < 0 ? -1 - node : static_cast<int>(state.root_hash.size()) + node;
      rows.push_back(DenseDistribution(setting.draft(hashes[row])));
    }
    drafter.Grow(rows);
  }
  return drafter.forest();
}

// The outputs of every layer of one decode, as path hashes in slot order.
inline std::vector<std::vector<uint64_t>> RunDsbd(const DsbdSetting& setting,
                                                  ChoiceSource* source) {
  const auto choices = std::make_shared<ForwardedChoices>(source);
  DsbdDecoder decoder(setting.params, setting.rule, choices);
  if (!setting.start.empty()) decoder.StartFrom(setting.start);
  std::vector<std::vector<uint64_t>> layers;
  while (!decoder.finished()) {
    const DraftState state = decoder.draft_state();
    const int depth = std::min(setting.draft_depth, decoder.max_useful_depth());
    const DraftForest forest = depth == 0
                                   ? DraftForest::Empty(static_cast<int>(state.root_hash.size()))
                                   : DraftDsbdRound(setting, state, depth, choices);
    FunctionRows rows(setting.target, state.root_hash, forest);
    decoder.Advance(forest, &rows);
    for (const DsbdLayerRecord& record : decoder.last_round()) {
      layers.emplace_back();
      for (const LayerOutput& output : record.outputs)
        layers.back().push_back(decoder.paths().hash(output.path));
    }
  }
  return layers;
}

// Outcome: for every layer its width, then the hashes of its outputs in slot order.
using Wrong = std::function<std::unique_ptr<ChoiceSource>(ChoiceSource*)>;
inline ExactLaw DsbdLaw(const DsbdSetting& setting, const Wrong& wrong = nullptr,
                        int64_t* runs = nullptr) {
  ExactLaw law;
  const int64_t count = EnumerateChoices([&](ScriptedChoices* choices) {
    const std::unique_ptr<ChoiceSource> variant = wrong ? wrong(choices) : nullptr;
    std::vector<uint64_t> outcome;
    for (const std::vector<uint64_t>& layer : RunDsbd(setting, variant ? variant.get() : choices)) {
      outcome.push_back(layer.size());
      outcome.insert(outcome.end(), layer.begin(), layer.end());
    }
    law[outcome] += choices->probability();
  });
  if (runs != nullptr) *runs = count;
  return law;
}

// The closed law of the same decode (3.3, multiset): every layer iid from p_beam of the live beams,
// given the widths that `widths(layer, outcome so far)` says.
class BeamSamplingLaw {
 public:
  explicit BeamSamplingLaw(const DsbdSetting& setting, bool with_replacement = true)
      : setting_(setting), with_replacement_(with_replacement) {}

  // Law of the next layer's outputs (hashes, ordered) after the slots of the layer before.
  struct Slot {
    uint64_t hash;
    double score;
    bool finished;
  };
  using Visit = std::function<void(const std::vector<Slot>&, double)>;
  void NextLayer(const std::vector<Slot>& slots, int width, int length, const Visit& visit) const {
    std::vector<LawBeam> beams;
    std::vector<TargetRow> rows;
    rows.reserve(slots.size());
    for (const Slot& slot : slots) {
      if (slot.finished) continue;
      auto same = std::find_if(beams.begin(), beams.end(),
                               [&](const LawBeam& b) { return b.hash == slot.hash; });
      if (same != beams.end()) {
        ++same->multiplicity;
        continue;
      }
      FunctionRows source(setting_.target, {slot.hash}, DraftForest::Empty(1));
      rows.push_back(ReadTargetRow(&source, 0, setting_.params, length));
      beams.push_back({slot.hash, slot.score, 1, &rows.back().row});
    }
    VisitLayerOutcomes(MakeLayerLaw(beams), width, with_replacement_,
                       [&](const std::vector<Entry>& entries, double probability) {
                         std::vector<Slot> next;
                         for (const Entry& entry : entries) {
                           const TargetRow& row = rows[entry.beam];
                           const int position = FindToken(row.row, entry.token);
                           next.push_back({ExtendHash(beams[entry.beam].hash, entry.token),
                                           beams[entry.beam].score + row.score_log_probs[position],
                                           IsStopId(setting_.params, entry.token)});
                         }
                         visit(next, probability);
                       });
  }

  std::vector<Slot> Start() const {
    if (setting_.start.empty()) return {{kRootHash, 0.0, false}};
    std::vector<Slot> slots;
    for (const auto& slot : setting_.start)
      slots.push_back({HashPath(slot.tokens), slot.log_score, false});
    return slots;
  }
  int StartLength() const {
    return setting_.start.empty() ? 0 : static_cast<int>(setting_.start[0].tokens.size());
  }

 private:
  const DsbdSetting& setting_;
  const bool with_replacement_;
};

// Fixed width: the law of whole decodes in the same outcomes as DsbdLaw.
inline ExactLaw ClosedFixedWidthLaw(const DsbdSetting& setting, bool with_replacement = true) {
  ExactLaw law;
  const BeamSamplingLaw closed(setting, with_replacement);
  using Slot = BeamSamplingLaw::Slot;
  const DecodingParams& params = setting.params;
  const std::function<void(const std::vector<Slot>&, int, int, int, std::vector<uint64_t>, double)>
      walk = [&](const std::vector<Slot>& slots, int length, int ended, int pooled,
                 std::vector<uint64_t> outcome, double probability) {
        const bool active =
            std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return !s.finished; });
        const bool stopped = params.stop_when_full && pooled >= params.beam_width;
        if (!active || stopped || length == params.max_tokens) {
          law[outcome] += probability;
          return;
        }
        const int width = params.refill ? params.beam_width : params.beam_width - ended;
        closed.NextLayer(slots, width, length, [&](const std::vector<Slot>& next, double part) {
          std::vector<uint64_t> longer = outcome;
          longer.push_back(next.size());
          std::vector<uint64_t> finished;
          int more = 0;
          for (const Slot& slot : next) {
            longer.push_back(slot.hash);
            if (!slot.finished) continue;
            ++more;
            if (std::find(finished.begin(), finished.end(), slot.hash) == finished.end())
              finished.push_back(slot.hash);
          }
          // Equal paths are pooled once; paths of different layers differ.
          walk(next, length + 1, ended + more, pooled + static_cast<int>(finished.size()), longer,
               probability * part);
        });
      };
  walk(closed.Start(), closed.StartLength(), 0, 0, {}, 1.0);
  return law;
}

}  // namespace coppice
