// Decodes with penalties of small hashed models, for the tests of their distributions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/named_decode.h"
#include "tests/testing/penalised_model.h"

namespace coppice::decoding::penalty_setting {

inline constexpr double kBias = 0.05;  // total variation that the G-tests see

inline const std::vector<TokenId> kPrompt = {1, 1};

// All three, so large that a token of the path counts, a bias on a token that can repeat, and no
// repeated trigrams.
inline void Penalise(DecodingParams* params) {
  params->sampling.frequency_penalty = 0.9;
  params->sampling.presence_penalty = -0.4;
  params->sampling.repetition_penalty = 1.3;
  params->sampling.logit_bias = {{0, 0.5}};
  params->sampling.no_repeat_ngram_size = 3;
  SetPrompt(kPrompt, params);
}

struct Models {
  test::LogProbsOf target, draft, closed;
};

// closed: the target with penalties in its rows.
inline Models PenalisedModels(int vocab, uint64_t salt, const DecodingParams& params) {
  const test::HashLm lm{vocab, salt, /*power=*/3, /*noise=*/salt + 31};
  const auto book = std::make_shared<const test::PathBook>(vocab, 4);
  const test::LogProbsOf target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  return {target,
          test::DraftRows([lm](uint64_t hash) { return lm.DraftLogProbs(hash); }, params, book),
          test::Penalised(target, params, kPrompt, book)};
}

inline test::NamedSetting Named(const MethodRow& row, sampling::DecodingKind kind, int vocab) {
  test::NamedSetting setting;
  setting.params.kind = kind;
  setting.params.method = &row;
  setting.params.max_tokens = 3;
  if (kind != sampling::DecodingKind::kMultinomial) setting.params.beam_width = 2;
  setting.params.num_hypotheses = setting.params.beam_width;
  if (row.form == DraftForm::kTree) setting.params.draft_tree = "2-2";
  setting.draft_width = row.form == DraftForm::kPath ? 1 : 3;
  Penalise(&setting.params);
  const Models models = PenalisedModels(vocab, 5, setting.params);
  setting.target = test::Remembered(models.target);
  setting.draft = test::Remembered(models.draft);
  return setting;
}

}  // namespace coppice::decoding::penalty_setting
