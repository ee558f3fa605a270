#include "decoding/warped_row.h"

#include <algorithm>
#include <limits>

namespace coppice {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kTieSlack = 1e-6;  // nats; far above what adding a score can round away

}  // namespace

WarpedRow::WarpedRow(const DecodingParams& params, bool for_draws)
    : warp_(WarpAt(params, params.min_tokens)),
      warp_without_stops_(WarpAt(params, -1)),
      min_tokens_(params.min_tokens),
      for_draws_(for_draws) {}

void WarpedRow::Read(RowSource* rows, int row, int length) {
  const WarpParams& warp = length < min_tokens_ ? warp_without_stops_ : warp_;
  if (const absl::Span<const double> exact = rows->LogProbs(row); !exact.empty()) {
    x_.assign(exact.begin(), exact.end());
    for (double& value : x_) value = value == value ? value : kNothing;
  } else {
    const absl::Span<const float> logits = rows->Logits(row);
    if (warp.mode == WarpMode::kRow && (warp.top_k > 0 || warp.temperature <= 0)) {
      whole_ = false;
      sparse_ = WarpRow(logits, warp);
      return;
    }
    x_.resize(logits.size());
    WidenRow(logits, x_.data());
  }
  if (warp.mode != WarpMode::kRow) {
    raw_ = x_;
    raw_log_sum_ = LogSumExp(raw_);
  }
  if (IsJoint(warp.mode) && raw_log_sum_ != kNothing) {
    for (double& value : x_) value -= raw_log_sum_;
  }
  TemperRow(warp, absl::MakeSpan(x_));
  const bool uncut = CutsJointly(warp);
  whole_ = uncut || KeepsWholeRow(warp);
  if (whole_) {
    const bool weigh = for_draws_ && !uncut;
    if (weigh) weights_.resize((x_.size() + kRowPadding - 1) / kRowPadding * kRowPadding);
    sum_ = ChunkedLogSumExp(x_, weigh ? weights_.data() : nullptr);
    whole_ = sum_.max != kNothing;  // a row of nothing is one-hot on token 0
  }
  if (!whole_) sparse_ = CutRow(x_, warp);
}

WarpedRow::Candidate WarpedRow::At(TokenId token, double log_prob) const {
  if (warp_.mode == WarpMode::kRow) return {token, log_prob, log_prob};
  const double raw = std::min(0.0, raw_[token] - raw_log_sum_);
  return {token, log_prob, raw == raw ? raw : 0.0};
}

WarpedRow::Draw WarpedRow::DrawToken(const NoiseKey& key) const {
  if (whole_) {
    const NoisyWinner winner = ArgmaxWithNoise(x_, weights_.data(), sum_, key);
    return {At(winner.token, WholeLogProb(winner.token)), winner.margin};
  }
  thread_local std::vector<double> noise;
  noise.resize(sparse_.size());
  GumbelMany(key, sparse_.tokens, noise.data());
  size_t best = 0;
  double best_key = kNothing, second_key = kNothing;
  for (size_t i = 0; i < sparse_.size(); ++i) {
    const double value = sparse_.log_probs[i] + noise[i];
    if (value > best_key) {
      second_key = best_key;
      best_key = value;
      best = i;
    } else if (value > second_key) {
      second_key = value;
    }
  }
  return {At(sparse_.tokens[best], sparse_.log_probs[best]), best_key - second_key};
}

void WarpedRow::TopCandidates(size_t count, std::vector<Candidate>* out) const {
  out->clear();
  if (!whole_) {
    for (size_t i = 0; i < sparse_.size(); ++i)
      out->push_back(At(sparse_.tokens[i], sparse_.log_probs[i]));
    return;
  }
  const std::vector<TokenId> top = TopTokens(x_, count);
  std::vector<double> maxima;
  BlockMaxima(x_, &maxima);
  std::vector<TokenId> tokens;
  CollectAtLeast(
      x_, maxima,
      top.size() < count ? std::numeric_limits<double>::lowest() : x_[top.back()] - kTieSlack,
      &tokens);
  for (TokenId token : tokens) out->push_back(At(token, WholeLogProb(token)));
}

TargetRow WarpedRow::Materialise() const {
  TargetRow out;
  const auto add = [&out](const Candidate& candidate) {
    out.row.tokens.push_back(candidate.token);
    out.row.log_probs.push_back(candidate.log_prob);
    out.score_log_probs.push_back(candidate.score_log_prob);
  };
  const size_t most = whole_ ? x_.size() : sparse_.size();
  out.row.tokens.reserve(most);
  out.row.log_probs.reserve(most);
  out.score_log_probs.reserve(most);
  if (!whole_) {
    for (size_t i = 0; i < sparse_.size(); ++i) add(At(sparse_.tokens[i], sparse_.log_probs[i]));
    return out;
  }
  for (size_t v = 0; v < x_.size(); ++v) {
    if (x_[v] != kNothing) add(At(static_cast<TokenId>(v), WholeLogProb(static_cast<TokenId>(v))));
  }
  return out;
}

double WarpedRow::log_kept_mass() const {
  if (whole_) return sum_.log;
  const double value = x_[sparse_.tokens[0]];
  return value == kNothing ? 0.0 : value - sparse_.log_probs[0];
}

double WarpedRow::LogProb(TokenId token) const {
  if (whole_) {
    return token >= 0 && static_cast<size_t>(token) < x_.size() ? WholeLogProb(token) : kNothing;
  }
  const auto found = std::lower_bound(sparse_.tokens.begin(), sparse_.tokens.end(), token);
  if (found == sparse_.tokens.end() || *found != token) return kNothing;
  return sparse_.log_probs[found - sparse_.tokens.begin()];
}

}  // namespace coppice
