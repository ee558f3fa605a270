// A format that allows the same tokens after every path, and a row of logits. Used by the tests of
// rows with a format.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/output_format.h"
#include "plan/candidate_row.h"
#include "sampling/rng.h"
#include "sampling/row_source.h"

namespace coppice::decoding {

inline constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Listed and as bits.
inline AllowedTokens Tokens(int vocab, const std::vector<TokenId>& tokens) {
  AllowedTokens allowed;
  allowed.bits.resize((vocab + 63) / 64);
  for (const TokenId token : tokens) allowed.bits[token / 64] |= uint64_t{1} << (token % 64);
  allowed.count = static_cast<int>(tokens.size());
  allowed.listed = tokens;
  return allowed;
}

// Allows the same after every path.
class FixedFormat : public OutputFormat {
 public:
  explicit FixedFormat(AllowedTokens allowed)
      : allowed_(std::make_shared<const AllowedTokens>(std::move(allowed))) {}
  State Start() const override { return 0; }
  State Next(State state, TokenId token) const override {
    return allowed_->Has(token) ? state : kBroken;
  }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    return state < 0 ? nullptr : allowed_;
  }
  bool CutShort(State) const override { return false; }

 private:
  std::shared_ptr<const AllowedTokens> allowed_;
};

// Gives the row as logits, as log-probabilities or as a candidate list.
struct OneRow : sampling::RowSource {
  absl::Span<const float> Logits(int) override { return logits; }
  absl::Span<const double> LogProbs(int) override { return exact; }
  const CandidateRow* Listed(int) override { return listed; }
  std::vector<float> logits;
  std::vector<double> exact;
  const CandidateRow* listed = nullptr;
};

inline std::vector<float> RandomLogits(int vocab, uint64_t seed) {
  std::vector<float> logits(vocab);
  for (int v = 0; v < vocab; ++v)
    logits[v] =
        static_cast<float>(3 * sampling::Gumbel(seed, sampling::Domain::kDirect, 0, 0, v) - 2);
  return logits;
}

}  // namespace coppice::decoding
