// A model whose rows are those of another model with the tokens at -inf that the format of the
// output does not allow, computed from the texts of the format: with nothing of sampling and
// grammar/automaton.h. To a decoder without a format it is what the first model is to a decoder
// with it. Tokens are those of toy_text.h.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decoding/drafter.h"
#include "decoding/params.h"
#include "grammar/automaton.h"
#include "grammar/token_grammar.h"
#include "lab/exact/function_rows.h"
#include "sampling/rng.h"
#include "tests/testing/language.h"
#include "tests/testing/toy_text.h"

namespace coppice::test {

inline std::shared_ptr<const grammar::TokenTrie> ToyTrie(int vocab) {
  return std::make_shared<const grammar::TokenTrie>(
      std::make_shared<const tokenizer::Vocabulary>(ToyTokenizer(vocab)));
}

inline std::string ToyTextOf(absl::Span<const TokenId> path) {
  std::string text;
  for (const TokenId token : path) text += ToyToken(token);
  return text;
}

// A format of toy tokens by its definition.
class ToyFormat {
 public:
  ToyFormat(grammar::Part whole, int vocab, std::vector<TokenId> stop_ids)
      : whole_(whole), language_(std::move(whole)), vocab_(vocab), stop_ids_(std::move(stop_ids)) {}

  // For the decoder.
  std::shared_ptr<const OutputFormat> Make() const {
    auto automaton = grammar::Automaton::Make({{whole_}, {"root"}});
    COPPICE_CHECK(automaton.ok());
    return std::make_shared<const grammar::TokenGrammar>(ToyTrie(vocab_), *std::move(automaton),
                                                         stop_ids_);
  }
  bool Stops(TokenId token) const { return decoding::IsStopId(stop_ids_, token); }
  bool Allows(absl::Span<const TokenId> path, TokenId token) const {
    const std::string text = ToyTextOf(path);
    if (Stops(token)) return language_.Has(text);
    return !ToyToken(token).empty() && language_.Begins(text + ToyToken(token));
  }
  // Every token was allowed after those before it.
  bool AllowsAll(absl::Span<const TokenId> path) const {
    for (size_t i = 0; i < path.size(); ++i) {
      if (i > 0 && Stops(path[i - 1])) return false;
      if (!Allows(path.subspan(0, i), path[i])) return false;
    }
    return true;
  }
  // After a path that the format does not allow nothing is banned.
  std::vector<double> Masked(std::vector<double> row, absl::Span<const TokenId> path) const {
    if (!AllowsAll(path) || (!path.empty() && Stops(path.back()))) return row;
    for (size_t v = 0; v < row.size(); ++v) {
      if (!Allows(path, static_cast<TokenId>(v))) row[v] = -std::numeric_limits<double>::infinity();
    }
    return row;
  }

 private:
  grammar::Part whole_;
  Language language_;
  int vocab_;
  std::vector<TokenId> stop_ids_;
};

// The tokens of paths by their hash. Knows the children of every path that it was asked for.
class GrowingBook {
 public:
  explicit GrowingBook(int vocab) : vocab_(vocab) { Add({}, sampling::kRootHash); }
  std::vector<TokenId> Tokens(uint64_t hash) {
    std::vector<TokenId> tokens = known_.at(hash);
    if (grown_[hash]) return tokens;
    grown_[hash] = true;
    for (TokenId token = 0; token < vocab_; ++token) {
      tokens.push_back(token);
      Add(tokens, sampling::ExtendHash(hash, token));
      tokens.pop_back();
    }
    return tokens;
  }

 private:
  void Add(std::vector<TokenId> tokens, uint64_t hash) { known_.emplace(hash, std::move(tokens)); }
  int vocab_;
  std::unordered_map<uint64_t, std::vector<TokenId>> known_;
  std::unordered_map<uint64_t, bool> grown_;
};

inline LogProbsOf Formatted(LogProbsOf model, std::shared_ptr<const ToyFormat> format,
                            std::shared_ptr<GrowingBook> book) {
  return [=, model = std::move(model)](uint64_t hash) {
    return format->Masked(model(hash), book->Tokens(hash));
  };
}

// The model's own rows. The book learns the paths.
inline LogProbsOf Unformatted(LogProbsOf model, std::shared_ptr<GrowingBook> book) {
  return [=, model = std::move(model)](uint64_t hash) {
    book->Tokens(hash);
    return model(hash);
  };
}

inline sampling::RowPath FormattedPath(const decoding::DecodingParams& params,
                                       const std::vector<TokenId>& tokens) {
  sampling::RowPath path = tokens;
  if (params.format == nullptr) return path;
  path.format_state = params.format->Start();
  for (const TokenId token : tokens)
    path.format_state = params.format->Next(path.format_state, token);
  return path;
}

// What a draft node makes of the model's rows: -inf where the row is cut. It knows the format of
// the parameters.
inline LogProbsOf DraftedRows(LogProbsOf model, const decoding::DecodingParams& params,
                              std::shared_ptr<GrowingBook> book) {
  return [=, model = std::move(model)](uint64_t hash) {
    const std::vector<double> log_probs = model(hash);
    const std::vector<float> logits(log_probs.begin(), log_probs.end());
    const sampling::Distribution row =
        decoding::DraftRow(logits, params, FormattedPath(params, book->Tokens(hash)));
    std::vector<double> out(logits.size(), -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < row.size(); ++i) out[row.tokens[i]] = row.log_probs[i];
    return out;
  };
}

inline decoding::DecodingParams WithoutFormat(decoding::DecodingParams params) {
  params.format = nullptr;
  return params;
}

}  // namespace coppice::test
