// Whole decodes by a method, which is given by name. The models are functions of the path hash.
// Decoder and drafter are made as the worker and the draft node make them. Used by tests/decoding.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "lab/exact/function_rows.h"
#include "lab/exact/layered_distribution.h"

namespace coppice::test {

struct NamedSetting {
  decoding::DecodingParams params;  // method by name
  int draft_width = 2;              // W_S
  int draft_depth = 2;              // gamma; 0: no drafts
  LogProbsOf target;
  LogProbsOf draft;
  bool logits_in_f32 = false;  // target rows are f32 logits instead of f64 log-probabilities
};

struct NamedRun {
  std::vector<int> layers;           // of every round
  int tied_rounds = 0;               // rounds with a decision of margin 0
  std::vector<uint64_t> last_layer;  // path hashes of the last layer's outputs, slot order
  std::vector<decoding::Hypothesis> result;
};

inline NamedRun RunNamed(const NamedSetting& setting) {
  const auto decoder = decoding::MakeBeamDecoder(setting.params).value();
  NamedRun run;
  while (!decoder->finished()) {
    const decoding::DraftState state = decoder->draft_state();
    const int depth = std::min(setting.draft_depth, decoder->max_useful_depth());
    decoding::DraftForest forest =
        decoding::DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    if (depth > 0) {
      const auto drafter =
          decoding::MakeDrafter(setting.params, state, setting.draft_width).value();
      forest = GrowForest(setting.draft, state, depth, drafter.get());
    }
    FunctionRows rows(setting.target, state.root_hash, forest, setting.logits_in_f32);
    const decoding::Verdict verdict = decoder->Advance(forest, &rows);
    run.layers.push_back(static_cast<int>(verdict.stats.layers));
    run.tied_rounds += verdict.min_margin == 0 ? 1 : 0;
  }
  for (const decoding::LayerOutput& output : decoder->last_layer())
    run.last_layer.push_back(decoder->paths().hash(output.path));
  run.result = decoder->Result();
  return run;
}

// Caches the rows of a model, for many decodes with one small model.
inline LogProbsOf Remembered(LogProbsOf model) {
  const auto known = std::make_shared<std::unordered_map<uint64_t, std::vector<double>>>();
  return [model = std::move(model), known](uint64_t hash) {
    const auto found = known->find(hash);
    return found != known->end() ? found->second : known->emplace(hash, model(hash)).first->second;
  };
}

// The methods with drafts that serve a kind at temperature 1.
inline std::vector<const decoding::MethodRow*> MethodsThatServe(sampling::DecodingKind kind) {
  std::vector<const decoding::MethodRow*> rows;
  decoding::DecodingParams params;
  params.kind = kind;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    params.method = &row;
    if (row.form != decoding::DraftForm::kNone && decoding::ResolveMethod(params).ok())
      rows.push_back(&row);
  }
  return rows;
}

}  // namespace coppice::test
