// A model whose rows are those of another model with the penalties of docs/algorithms.md 1 applied,
// computed from their definition: with nothing of sampling. To a decoder without penalties it
// is what the first model is to a decoder with them. For small vocabularies and short paths.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "decoding/drafter.h"
#include "decoding/params.h"
#include "lab/exact/function_rows.h"
#include "sampling/rng.h"

namespace coppice::test {

// The tokens of every path of at most `longest` tokens, by its hash.
class PathBook {
 public:
  PathBook(int vocab, int longest) { Add(vocab, longest, {}, sampling::kRootHash); }
  const std::vector<TokenId>& Tokens(uint64_t hash) const { return tokens_.at(hash); }

 private:
  void Add(int vocab, int longest, std::vector<TokenId> path, uint64_t hash) {
    tokens_.emplace(hash, path);
    if (static_cast<int>(path.size()) == longest) return;
    for (TokenId token = 0; token < vocab; ++token) {
      path.push_back(token);
      Add(vocab, longest, path, sampling::ExtendHash(hash, token));
      path.pop_back();
    }
  }
  std::unordered_map<uint64_t, std::vector<TokenId>> tokens_;
};

// Whether the token would end an n-gram that prompt and path have already. n 0: never.
inline bool RepeatsAnNgram(absl::Span<const TokenId> prompt, absl::Span<const TokenId> path,
                           TokenId token, int n) {
  std::vector<TokenId> text(prompt.begin(), prompt.end());
  text.insert(text.end(), path.begin(), path.end());
  text.push_back(token);
  if (n == 0 || static_cast<int>(text.size()) <= n) return false;
  const auto ngram = text.end() - n;
  return std::search(text.begin(), text.end() - 1, ngram, text.end()) != text.end() - 1;
}

// The row after `path`: bias, then repetition, then frequency and presence.
inline std::vector<double> PenalisedRow(std::vector<double> row,
                                        const decoding::DecodingParams& params,
                                        absl::Span<const TokenId> prompt,
                                        absl::Span<const TokenId> path) {
  const sampling::SamplingParams& sampling = params.sampling;
  for (const auto& [token, bias] : sampling.logit_bias) row[token] += bias;
  for (TokenId token = 0; token < static_cast<TokenId>(row.size()); ++token) {
    const auto times = std::count(path.begin(), path.end(), token);
    if (times > 0 || std::count(prompt.begin(), prompt.end(), token) > 0) {
      row[token] = row[token] < 0 ? row[token] * sampling.repetition_penalty
                                  : row[token] / sampling.repetition_penalty;
    }
    row[token] -= sampling.frequency_penalty * static_cast<double>(times);
    if (times > 0) row[token] -= sampling.presence_penalty;
    if (RepeatsAnNgram(prompt, path, token, sampling.no_repeat_ngram_size))
      row[token] = -std::numeric_limits<double>::infinity();
  }
  return row;
}

inline LogProbsOf Penalised(LogProbsOf model, const decoding::DecodingParams& params,
                            std::vector<TokenId> prompt, std::shared_ptr<const PathBook> book) {
  return [=, model = std::move(model)](uint64_t hash) {
    return PenalisedRow(model(hash), params, prompt, book->Tokens(hash));
  };
}

// What a draft node makes of the model's rows: -inf where the row is cut.
inline LogProbsOf DraftRows(LogProbsOf model, const decoding::DecodingParams& params,
                            std::shared_ptr<const PathBook> book) {
  return [=, model = std::move(model)](uint64_t hash) {
    const std::vector<double> log_probs = model(hash);
    const std::vector<float> logits(log_probs.begin(), log_probs.end());
    const sampling::Distribution row = decoding::DraftRow(logits, params, book->Tokens(hash));
    std::vector<double> out(logits.size(), -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < row.size(); ++i) out[row.tokens[i]] = row.log_probs[i];
    return out;
  };
}

// The parameters without penalties and bias, for a model that has them in its rows.
inline decoding::DecodingParams WithoutPenalties(decoding::DecodingParams params) {
  params.sampling.logit_bias.clear();
  params.sampling.frequency_penalty = params.sampling.presence_penalty = 0;
  params.sampling.repetition_penalty = 1;
  params.sampling.no_repeat_ngram_size = 0;
  return params;
}

}  // namespace coppice::test
