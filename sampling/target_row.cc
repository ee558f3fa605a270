#include "sampling/target_row.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/processed_row.h"

namespace coppice::sampling {

namespace {

using Bias = std::vector<std::pair<TokenId, double>>;

// One entry for a token, the sum of its entries.
void AddUp(Bias* bias) {
  std::stable_sort(bias->begin(), bias->end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  size_t kept = 0;
  for (size_t i = 0; i < bias->size(); ++i) {
    if (kept > 0 && (*bias)[kept - 1].first == (*bias)[i].first) {
      (*bias)[kept - 1].second += (*bias)[i].second;
    } else {
      (*bias)[kept++] = (*bias)[i];
    }
  }
  bias->resize(kept);
}

}  // namespace

SamplingParams WithoutStops(const RowParams& params) {
  SamplingParams sampling = params.sampling;
  for (TokenId stop : params.stop_ids) {
    sampling.logit_bias.emplace_back(stop, kLogZero);
  }
  return sampling;
}

SamplingParams SamplingAt(const RowParams& params, const RowPath& path) {
  SamplingParams sampling =
      path.length < params.min_tokens ? WithoutStops(params) : params.sampling;
  Penalise(params.prompt_ids.get(), params.prompt_ngrams.get(), path, &sampling);
  if (params.format != nullptr) sampling.allowed = params.format->Allowed(path.format_state);
  return sampling;
}

void Penalise(const std::vector<TokenId>* prompt_ids, const RepeatedNgrams* prompt_ngrams,
              const RowPath& path, SamplingParams* sampling) {
  if (!sampling->penalises()) return;
  COPPICE_CHECK_MSG(static_cast<int>(path.tokens.size()) == path.length,
                    "penalties need the tokens of the path");
  if (sampling->no_repeat_ngram_size > 0) {
    const std::vector<TokenId> banned =
        prompt_ngrams != nullptr
            ? prompt_ngrams->After(path.tokens)
            : RepeatedNgrams({}, sampling->no_repeat_ngram_size).After(path.tokens);
    for (TokenId token : banned) sampling->logit_bias.emplace_back(token, kLogZero);
    AddUp(&sampling->logit_bias);
  }
  if (!sampling->counts_tokens()) return;
  std::vector<TokenId> tokens = path.tokens;
  std::sort(tokens.begin(), tokens.end());
  std::vector<RepeatedToken> repeated;
  for (size_t i = 0; i < tokens.size();) {
    const size_t begin = i;
    while (i < tokens.size() && tokens[i] == tokens[begin]) ++i;
    const double times = static_cast<double>(i - begin);
    repeated.push_back(
        {tokens[begin], -(sampling->frequency_penalty * times + sampling->presence_penalty)});
  }
  if (sampling->repetition_penalty == 1) {
    for (const RepeatedToken& token : repeated) {
      sampling->logit_bias.emplace_back(token.token, token.nats);
    }
    return AddUp(&sampling->logit_bias);
  }
  const size_t generated = repeated.size();
  for (TokenId token : prompt_ids == nullptr ? std::vector<TokenId>() : *prompt_ids) {
    if (!std::binary_search(tokens.begin(), tokens.end(), token)) repeated.push_back({token, 0});
  }
  std::inplace_merge(
      repeated.begin(), repeated.begin() + generated, repeated.end(),
      [](const RepeatedToken& a, const RepeatedToken& b) { return a.token < b.token; });
  sampling->repeated = std::move(repeated);
}

SamplingParams Uncut(SamplingParams sampling) {
  sampling = WithoutCuts(std::move(sampling));
  sampling.temperature = 1;
  return sampling;
}

TargetRow ReadTargetRow(RowSource* rows, int row, const RowParams& params, const RowPath& path) {
  ProcessedRow processed(params);
  processed.Read(rows, row, path);
  return processed.Materialise();
}

}  // namespace coppice::sampling
