// The exact distribution of whole decodes by a layer rule: all choices of the production drafter
// and decoder are enumerated. And the closed distribution of beam sampling, with or without
// replacement, for comparison. Used by tests/decoding and lab/golden.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decoding/layer/dsbd.h"
#include "decoding/layer/layered_decoder.h"
#include "decoding/layer/layered_drafter.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/flat_sampling.h"
#include "lab/exact/forwarded_choices.h"
#include "lab/exact/function_rows.h"
#include "lab/exact/hash_lm.h"

namespace coppice::test {

inline std::unique_ptr<decoding::LayerRule> DsbdRuleOf(const decoding::DecodingParams& params,
                                                       decoding::RemovedParents removed) {
  return std::make_unique<decoding::DsbdRule>(removed, decoding::DsbdWidthRule(params));
}

struct LayeredSetting {
  decoding::DecodingParams
      params;  // beam_width, max_tokens = total layers, width rule, stop ids, sampling parameters
  decoding::RemovedParents removed = decoding::RemovedParents::kReject;
  std::unique_ptr<decoding::LayerRule> (*rule)(const decoding::DecodingParams&,
                                               decoding::RemovedParents) = DsbdRuleOf;
  decoding::DrawKind drafts = decoding::DrawKind::kIndependent;
  decoding::KeptBeams kept = decoding::KeptBeams::kAll;
  std::vector<decoding::LayeredDecoder::StartSlot> start;  // empty: the prompt alone
  int draft_width = 2;                                     // W_S
  int draft_depth = 1;                                     // gamma
  LogProbsOf target;
  LogProbsOf draft;
  // Rows of the draft below the roots, where they are others than at a root: a head on the target's
  // hidden states has its own there. Empty: as at the roots.
  LogProbsOf draft_below = {};
  // The closed distribution: the path with this hash has ended. Empty: only stops end a path.
  std::function<bool(uint64_t hash)> ends = {};
};

inline decoding::LayeredDecoder MakeLayered(const LayeredSetting& setting,
                                            std::shared_ptr<decoding::ChoiceSource> choices) {
  return decoding::LayeredDecoder(setting.params, setting.rule(setting.params, setting.removed),
                                  setting.drafts, std::move(choices), setting.kept);
}

// Grows the forest of one round, as the draft node does.
inline decoding::DraftForest GrowForest(const LogProbsOf& at_roots,
                                        const decoding::DraftState& state, int depth,
                                        decoding::Drafter* drafter,
                                        const LogProbsOf& below = nullptr) {
  for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
    const LogProbsOf& draft = level > 0 && below ? below : at_roots;
    const std::vector<uint64_t> hashes = RowHashes(state.root_hash, drafter->forest());
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : drafter->frontier()) {
      rows.push_back(DenseDistribution(draft(hashes[drafter->forest().RowOf(place)])));
    }
    drafter->Grow(rows);
  }
  return drafter->Sent();
}

inline decoding::DraftForest DraftLayeredRound(const LayeredSetting& setting,
                                               const decoding::DraftState& state, int depth,
                                               std::shared_ptr<decoding::ChoiceSource> choices) {
  decoding::LayeredDrafter drafter(setting.params, state, setting.draft_width, setting.drafts,
                                   std::move(choices));
  return GrowForest(setting.draft, state, depth, &drafter, setting.draft_below);
}

// The outputs of every layer of one decode, as path hashes in slot order.
inline std::vector<std::vector<uint64_t>> RunLayered(const LayeredSetting& setting,
                                                     decoding::ChoiceSource* source) {
  const auto choices = std::make_shared<ForwardedChoices>(source);
  decoding::LayeredDecoder decoder = MakeLayered(setting, choices);
  if (!setting.start.empty()) decoder.StartFrom(setting.start);
  std::vector<std::vector<uint64_t>> layers;
  while (!decoder.finished()) {
    const decoding::DraftState state = decoder.draft_state();
    const int depth = std::min(setting.draft_depth, decoder.max_useful_depth());
    const decoding::DraftForest forest =
        depth == 0 ? decoding::DraftForest::Empty(static_cast<int>(state.root_hash.size()))
                   : DraftLayeredRound(setting, state, depth, choices);
    FunctionRows rows(setting.target, state.root_hash, forest);
    decoder.Advance(forest, &rows);
    for (const decoding::LayerRecord& record : decoder.last_round()) {
      layers.emplace_back();
      for (const decoding::LayerOutput& output : record.outputs)
        layers.back().push_back(decoder.paths().hash(output.path));
    }
  }
  return layers;
}

// Outcome: for every layer its width, then the hashes of its outputs in slot order.
using Wrong = std::function<std::unique_ptr<decoding::ChoiceSource>(decoding::ChoiceSource*)>;
inline ExactDistribution LayeredDistribution(const LayeredSetting& setting,
                                             const Wrong& wrong = nullptr) {
  ExactDistribution distribution;
  EnumerateChoices([&](ScriptedChoices* choices) {
    const std::unique_ptr<decoding::ChoiceSource> variant = wrong ? wrong(choices) : nullptr;
    std::vector<uint64_t> outcome;
    for (const std::vector<uint64_t>& layer :
         RunLayered(setting, variant ? variant.get() : choices)) {
      outcome.push_back(layer.size());
      outcome.insert(outcome.end(), layer.begin(), layer.end());
    }
    distribution[outcome] += choices->probability();
  });
  return distribution;
}

// The closed distribution of the same decode: every layer drawn from p_beam of the live beams, iid
// (3.3) or without replacement (3.4) with the walk of docs/algorithms.md 8. p_beam is computed here
// from its definition, with nothing of decoding/joint and sampling.
class BeamSamplingDistribution {
 public:
  explicit BeamSamplingDistribution(const LayeredSetting& setting, bool with_replacement = true)
      : setting_(setting), with_replacement_(with_replacement) {}

  struct Slot {
    uint64_t hash;
    double score;
    bool finished;
    StopText::State text = 0;  // state of the text, with stop strings
  };
  using Visit = std::function<void(const std::vector<Slot>&, double)>;
  // The distribution of the next layer's outputs, in order, given the slots of the previous layer.
  void NextLayer(const std::vector<Slot>& slots, int width, int length, const Visit& visit) const {
    const Layer layer = MakeLayer(slots, length);
    const auto visit_entries = [&](const std::vector<decoding::Entry>& entries,
                                   double probability) {
      std::vector<Slot> next;
      for (const decoding::Entry& entry : entries) {
        const PathBeam& beam = layer.beams[entry.beam];
        next.push_back({sampling::ExtendHash(beam.hash, entry.token),
                        beam.score + layer.score[entry.beam][entry.token], Ends(layer, entry),
                        TextAfter(layer, entry)});
      }
      visit(next, probability);
    };
    if (with_replacement_) {
      VisitLayerOutcomes(layer.distribution, width, /*with_replacement=*/true, visit_entries);
    } else {
      VisitWalk(layer, layer.distribution, width, {}, {}, 1.0, visit_entries);
    }
  }

  std::vector<Slot> Start() const {
    if (setting_.start.empty()) return {{sampling::kRootHash, 0.0, false, StartText()}};
    std::vector<Slot> slots;
    for (const auto& slot : setting_.start)
      slots.push_back({sampling::HashPath(slot.tokens), slot.log_score, false});
    return slots;
  }
  int StartLength() const {
    return setting_.start.empty() ? 0 : static_cast<int>(setting_.start[0].tokens.size());
  }

 private:
  struct PathBeam {
    uint64_t hash;
    double score;  // ls, nats
    int multiplicity;
    StopText::State text;
  };
  struct Layer {
    std::vector<PathBeam> beams;
    int length = 0;                                 // length of the beams
    std::vector<std::vector<double>> score;         // [beams][vocab] what ls accumulates
    std::vector<decoding::EntryMass> distribution;  // p_beam, entries of positive mass
  };

  StopText::State StartText() const {
    return setting_.params.stop_text == nullptr ? 0 : setting_.params.stop_text->Start();
  }
  StopText::State TextAfter(const Layer& layer, decoding::Entry entry) const {
    const decoding::DecodingParams& params = setting_.params;
    if (params.stop_text == nullptr) return 0;
    return params.stop_text->Next(layer.beams[entry.beam].text, entry.token,
                                  layer.length + 1 >= params.min_tokens);
  }
  bool Ends(const Layer& layer, decoding::Entry entry) const {
    const decoding::DecodingParams& params = setting_.params;
    if (decoding::IsStopId(params, entry.token)) return true;
    if (setting_.ends &&
        setting_.ends(sampling::ExtendHash(layer.beams[entry.beam].hash, entry.token)))
      return true;
    return params.stop_text != nullptr && params.stop_text->Matched(TextAfter(layer, entry));
  }

  // Distinct live paths with their multiplicities, then p_beam in the sampling scope of the
  // setting.
  Layer MakeLayer(const std::vector<Slot>& slots, int length) const {
    const decoding::DecodingParams& params = setting_.params;
    Layer layer;
    layer.length = length;
    for (const Slot& slot : slots) {
      if (slot.finished) continue;
      auto same = std::find_if(layer.beams.begin(), layer.beams.end(),
                               [&](const PathBeam& b) { return b.hash == slot.hash; });
      if (same == layer.beams.end()) {
        layer.beams.push_back({slot.hash, slot.score, 1, slot.text});
      } else if (!params.set_semantics) {
        ++same->multiplicity;
      }
    }
    const sampling::SamplingParams sampling = sampling::SamplingAt(params, length);
    FlatLayer flat;
    for (const PathBeam& beam : layer.beams) {
      flat.log_score.push_back(beam.score);
      flat.multiplicity.push_back(beam.multiplicity);
      flat.log_probs.push_back(setting_.target(beam.hash));
    }
    layer.score = flat.log_probs;
    std::vector<double> p_beam;
    if (sampling::IsJoint(sampling.mode)) {
      p_beam = FlatSampling(flat, sampling);
    } else {
      const std::vector<std::vector<double>> rows = ProcessedRows(flat, sampling);
      p_beam = WeighRows(flat, rows);
      for (size_t b = 0; b < rows.size(); ++b) {
        for (size_t v = 0; v < rows[b].size(); ++v) {
          if (sampling.mode == sampling::SamplingScope::kRow)
            layer.score[b][v] = std::log(rows[b][v]);
        }
      }
    }
    const size_t vocab = layer.score.empty() ? 1 : layer.score[0].size();
    for (size_t i = 0; i < p_beam.size(); ++i) {
      const decoding::Entry entry{static_cast<int>(i / vocab), static_cast<TokenId>(i % vocab)};
      if (p_beam[i] > 0) layer.distribution.push_back({entry, std::log(p_beam[i])});
    }
    return layer;
  }

  // docs/algorithms.md 8: candidates come in the order of a sample without replacement. An end of
  // sequence with a rank below W is an output; one with a later rank is ignored. The other
  // candidates fill the next beams.
  using VisitEntries = std::function<void(const std::vector<decoding::Entry>&, double)>;
  void VisitWalk(const Layer& layer, const std::vector<decoding::EntryMass>& left, int width,
                 std::vector<decoding::Entry> passed, std::vector<decoding::Entry> outputs,
                 double probability, const VisitEntries& visit) const {
    int live = 0;
    for (const decoding::Entry& output : outputs) live += !Ends(layer, output);
    if (live == width || left.empty()) return visit(outputs, probability);
    double total = 0;
    for (const decoding::EntryMass& entry : left) total += sampling::Exp(entry.log_mass);
    for (size_t i = 0; i < left.size(); ++i) {
      const int rank = static_cast<int>(passed.size());
      std::vector<decoding::EntryMass> rest = left;
      rest.erase(rest.begin() + i);
      std::vector<decoding::Entry> longer = passed, more = outputs;
      longer.push_back(left[i].entry);
      if (!Ends(layer, left[i].entry) || rank < width) more.push_back(left[i].entry);
      VisitWalk(layer, rest, width, longer, more,
                probability * sampling::Exp(left[i].log_mass) / total, visit);
    }
  }

  const LayeredSetting& setting_;
  const bool with_replacement_;
};

// For a fixed width: the distribution of whole decodes, with the same outcomes as
// LayeredDistribution.
inline ExactDistribution ClosedFixedWidthDistribution(const LayeredSetting& setting,
                                                      bool with_replacement = true) {
  ExactDistribution distribution;
  const BeamSamplingDistribution closed(setting, with_replacement);
  using Slot = BeamSamplingDistribution::Slot;
  const decoding::DecodingParams& params = setting.params;
  const bool slots_go = with_replacement && !params.refill;
  const std::function<void(const std::vector<Slot>&, int, int, int, std::vector<uint64_t>, double)>
      walk = [&](const std::vector<Slot>& slots, int length, int ended, int pooled,
                 std::vector<uint64_t> outcome, double probability) {
        const bool active =
            std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return !s.finished; });
        const bool stopped = params.stop_when_full && pooled >= params.beam_width;
        if (!active || stopped || length == params.max_tokens) {
          distribution[outcome] += probability;
          return;
        }
        const int width = params.beam_width - (slots_go ? ended : 0);
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
          // Equal paths enter the pool once. Paths of different layers always differ.
          walk(next, length + 1, ended + more, pooled + static_cast<int>(finished.size()), longer,
               probability * part);
        });
      };
  walk(closed.Start(), closed.StartLength(), 0, 0, {}, 1.0);
  return distribution;
}

}  // namespace coppice::test
