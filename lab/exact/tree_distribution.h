// The exact distribution of whole decodes of one sequence: all choices of the production drafter
// and decoder are enumerated. And the product of the target's rows, for comparison. Used by
// tests/decoding and lab/golden.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "decoding/tree/block_verification.h"
#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "decoding/tree/luce_ot.h"
#include "decoding/tree/topology_drafter.h"
#include "decoding/tree/tree_decoder.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/flat_sampling.h"
#include "lab/exact/forwarded_choices.h"
#include "lab/exact/function_rows.h"
#include "lab/exact/hash_lm.h"
#include "sampling/deterministic_math.h"
#include "sampling/target_row.h"

namespace coppice::test {

// The methods of the table that verify trees, and the distribution of children that each relies on.
struct TreeMethod {
  std::string name;
  decoding::NodeRule rule;
  decoding::ChildSampling distribution;
};
inline void PrintTo(const TreeMethod& method, std::ostream* out) { *out << method.name; }
inline std::vector<TreeMethod> TreeMethods() {
  std::vector<TreeMethod> methods;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    if (row.form == decoding::DraftForm::kTree && row.node_rule != nullptr)
      methods.push_back({std::string(row.name), row.node_rule, row.child_sampling});
  }
  return methods;
}

struct TreeSetting {
  // max_tokens = total tokens, stop ids, sampling parameters, draft_tree
  decoding::DecodingParams params;
  decoding::NodeRule rule = nullptr;  // rule of the tree decoder; nullptr: block verification
  // how children are drawn
  decoding::ChildSampling distribution = decoding::ChildSampling::kIid;
  decoding::ChildSampling relied_on = decoding::ChildSampling::kIid;  // what the decoder assumes
  int draft_depth = 2;
  LogProbsOf target;
  LogProbsOf draft;
  LogProbsOf draft_below = {};                         // as in LayeredSetting
  std::function<void(decoding::DraftForest*)> tamper;  // changes the draft before decoding
};

inline std::unique_ptr<decoding::SingleSequenceDecoder> MakeTreeOrBlockDecoder(
    const TreeSetting& setting, std::shared_ptr<decoding::ChoiceSource> choices) {
  if (setting.rule == nullptr)
    return std::make_unique<decoding::BlockDecoder>(setting.params, std::move(choices));
  return std::make_unique<decoding::TreeDecoder>(setting.params, setting.rule, setting.relied_on,
                                                 std::move(choices));
}

// Grows the draft of one round, as the draft node does.
inline decoding::DraftForest DraftTreeRound(const TreeSetting& setting,
                                            const decoding::DraftState& state, int depth,
                                            std::shared_ptr<decoding::ChoiceSource> choices) {
  decoding::TopologyDrafter drafter(setting.params, state,
                                    decoding::ParseTopology(setting.params.draft_tree).value(),
                                    setting.distribution, std::move(choices));
  for (int level = 0; level < depth && !drafter.frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = RowHashes(state.root_hash, drafter.forest());
    const LogProbsOf& draft =
        level > 0 && setting.draft_below ? setting.draft_below : setting.draft;
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : drafter.frontier())
      rows.push_back(DenseDistribution(draft(hashes[drafter.forest().RowOf(place)])));
    drafter.Grow(rows);
  }
  decoding::DraftForest forest = drafter.Sent();
  if (setting.tamper) setting.tamper(&forest);
  return forest;
}

struct TreeRun {
  std::vector<TokenId> tokens;
  std::vector<int> layers;  // layers of every round
};

// Runs one decode to its end, or `rounds` rounds of it.
inline TreeRun RunTree(const TreeSetting& setting, decoding::ChoiceSource* source,
                       int rounds = 1 << 20) {
  const auto choices = std::make_shared<ForwardedChoices>(source);
  const auto decoder = MakeTreeOrBlockDecoder(setting, choices);
  TreeRun run;
  while (!decoder->finished() && run.layers.size() < rounds) {
    const decoding::DraftState state = decoder->draft_state();
    const int depth = std::min(setting.draft_depth, decoder->max_useful_depth());
    const decoding::DraftForest forest = depth == 0
                                             ? decoding::DraftForest::Empty(1)
                                             : DraftTreeRound(setting, state, depth, choices);
    FunctionRows rows(setting.target, state.root_hash, forest);
    run.layers.push_back(decoder->Advance(forest, &rows).stats.layers);
  }
  run.tokens = decoder->paths().Tokens(decoder->last_layer()[0].path);
  return run;
}

using WrongChoices =
    std::function<std::unique_ptr<decoding::ChoiceSource>(decoding::ChoiceSource*)>;

// Outcome: the tokens of the whole decode.
inline ExactDistribution TreeDistribution(const TreeSetting& setting,
                                          const WrongChoices& wrong = nullptr,
                                          int64_t* runs = nullptr) {
  ExactDistribution distribution;
  const int64_t count = EnumerateChoices([&](ScriptedChoices* choices) {
    const std::unique_ptr<decoding::ChoiceSource> variant = wrong ? wrong(choices) : nullptr;
    const TreeRun run = RunTree(setting, variant ? variant.get() : choices);
    distribution[{run.tokens.begin(), run.tokens.end()}] += choices->probability();
  });
  if (runs != nullptr) *runs = count;
  return distribution;
}

// Outcome: the number of tokens of the first round.
inline ExactDistribution RoundLengthDistribution(const TreeSetting& setting) {
  ExactDistribution distribution;
  EnumerateChoices([&](ScriptedChoices* choices) {
    const TreeRun run = RunTree(setting, choices, /*rounds=*/1);
    distribution[{static_cast<uint64_t>(run.layers[0])}] += choices->probability();
  });
  return distribution;
}

// Whether a path ends with a stop id or completes a stop string.
inline bool PathEnds(const decoding::DecodingParams& params, const std::vector<uint64_t>& path) {
  if (path.empty()) return false;
  if (decoding::IsStopId(params, static_cast<TokenId>(path.back()))) return true;
  if (params.stop_text == nullptr) return false;
  StopText::State text = params.stop_text->Start();
  int length = 0;
  for (uint64_t token : path) {
    text = params.stop_text->Next(text, static_cast<TokenId>(token), ++length >= params.min_tokens);
  }
  return params.stop_text->Matched(text);
}

// docs/algorithms.md 3.1 up to the end of sequence: the product of the processed rows.
inline ExactDistribution MultinomialDistribution(const TreeSetting& setting) {
  ExactDistribution distribution;
  std::vector<uint64_t> path;
  const std::function<void(uint64_t, double)> extend = [&](uint64_t hash, double probability) {
    if (PathEnds(setting.params, path) || path.size() == setting.params.max_tokens) {
      distribution[path] += probability;
      return;
    }
    const sampling::SamplingParams sampling =
        sampling::SamplingAt(setting.params, static_cast<int>(path.size()));
    std::vector<double> row = setting.target(hash);
    AddBias(sampling, &row);
    row = ProcessedByDefinition(row, sampling);
    for (TokenId token = 0; token < static_cast<TokenId>(row.size()); ++token) {
      if (row[token] == 0) continue;
      path.push_back(token);
      extend(sampling::ExtendHash(hash, token), probability * row[token]);
      path.pop_back();
    }
  };
  extend(sampling::kRootHash, 1.0);
  return distribution;
}

}  // namespace coppice::test
