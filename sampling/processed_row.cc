#include "sampling/processed_row.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sampling/deterministic_math.h"

namespace coppice::sampling {
namespace {

// The tokens of all lists, ascending, without repetitions.
TokenList Union(const std::vector<TokenList>& lists) {
  std::vector<std::pair<TokenId, float>> all;
  for (const TokenList& list : lists) {
    for (size_t i = 0; i < list.tokens.size(); ++i)
      all.emplace_back(list.tokens[i], list.logits[i]);
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  TokenList joined;
  for (const auto& [token, logit] : all) {
    joined.tokens.push_back(token);
    joined.logits.push_back(logit);
  }
  return joined;
}

}  // namespace

ProcessedRow::ProcessedRow(const RowParams& params, bool for_draws)
    : sampling_(params.sampling),
      sampling_without_stops_(WithoutStops(params)),
      format_(params.format),
      prompt_ids_(params.prompt_ids),
      min_tokens_(params.min_tokens),
      for_draws_(for_draws),
      ranks_(params.kind == DecodingKind::kBeamSearch) {}

const SamplingParams& ProcessedRow::SamplingOf(const RowPath& path) {
  const SamplingParams& sampling = path.length < min_tokens_ ? sampling_without_stops_ : sampling_;
  if (!sampling.penalises() && format_ == nullptr) return sampling;
  path_sampling_ = sampling;
  Penalise(prompt_ids_ == nullptr ? absl::Span<const TokenId>() : *prompt_ids_, path,
           &path_sampling_);
  if (format_ == nullptr) return path_sampling_;
  (ranks_ ? candidates_ : path_sampling_.allowed) = format_->Allowed(path.format_state);
  return path_sampling_;
}

bool ProcessedRow::Rank(absl::Span<const float> logits, const SamplingParams& sampling,
                        RankQuery query, RankedTokens* ranked) {
  if (!ranks_ || sampling.mode != SamplingScope::kRow || !KeepsWholeRow(sampling) ||
      !KeepsLogits(sampling) || (candidates_ != nullptr && candidates_->listed.empty()))
    return false;
  query.allowed = candidates_.get();
  return RankLogits(logits, query, &maxima_, ranked);
}

bool ProcessedRow::ReadOrRank(RowSource* rows, int row, const RowPath& path, const RankQuery* query,
                              RankedTokens* ranked) {
  const SamplingParams& sampling = SamplingOf(path);
  gathered_ = false;
  if (const absl::Span<const double> exact = rows->LogProbs(row); !exact.empty()) {
    x_.assign(exact.begin(), exact.end());
    for (double& value : x_) value = value == value ? value : kLogZero;
  } else if (const CandidateRow* listed = rows->Listed(row)) {
    ReadList(*listed, sampling);
    return false;
  } else {
    const absl::Span<const float> logits = rows->Logits(row);
    if (query != nullptr && Rank(logits, sampling, *query, ranked)) {
      rows->TellLogSum(row, ranked->log_sum);
      return true;
    }
    if (sampling.mode == SamplingScope::kRow &&
        (sampling.top_k > 0 || sampling.temperature <= 0 || FewAllowed(sampling))) {
      form_ = Form::kCut;
      sparse_ = ProcessRow(logits, sampling);
      return false;
    }
    x_.resize(logits.size());
    WidenRow(logits, x_.data());
  }
  if (sampling.mode != SamplingScope::kRow) {
    raw_ = x_;
    raw_log_sum_ = LogSumExp(raw_);
    rows->TellLogSum(row, raw_log_sum_);
  }
  if (IsJoint(sampling.mode) && raw_log_sum_ != kLogZero) {
    for (double& value : x_) value -= raw_log_sum_;
  }
  TemperRow(sampling, absl::MakeSpan(x_));
  const bool uncut = CutsJointly(sampling);
  form_ = uncut || KeepsWholeRow(sampling) ? Form::kWhole : Form::kCut;
  if (form_ == Form::kWhole) {
    const bool weigh = for_draws_ && !uncut;
    if (weigh) weights_.resize((x_.size() + kRowPadding - 1) / kRowPadding * kRowPadding);
    sum_ = ChunkedLogSumExp(x_, weigh ? weights_.data() : nullptr);
    if (sampling.mode == SamplingScope::kRow && KeepsLogits(sampling))
      rows->TellLogSum(row, sum_.log);
    if (candidates_ != nullptr) KeepAllowed(*candidates_, absl::MakeSpan(x_));
    const bool none = candidates_ != nullptr ? TopTokens(x_, 1).empty() : sum_.max == kLogZero;
    if (none) form_ = Form::kCut;  // no finite logit, so one-hot on token 0
  }
  if (form_ == Form::kCut) sparse_ = CutRow(x_, sampling);
  return false;
}

// Candidate lists are only for modes that process each row by itself: ROW and ROW_RAW.
void ProcessedRow::ReadList(const CandidateRow& row, const SamplingParams& sampling) {
  COPPICE_CHECK_MSG(!IsJoint(sampling.mode), "sampling over a layer needs whole rows");
  if (row.lists.empty()) return ReadAllowed(row, sampling);
  const TokenList list = row.lists.size() == 1 ? row.lists[0] : Union(row.lists);
  if (sampling.mode == SamplingScope::kRowRaw) {
    gathered_ = true;
    tokens_ = list.tokens;
    raw_.resize(list.logits.size());
    WidenRow(list.logits, raw_.data());
    raw_log_sum_ = JoinChunks(row.raw_sums).log;
  }
  if (!KeepsWholeRow(sampling) || list.tokens.empty()) {
    form_ = Form::kCut;
    sparse_ = ProcessList(list, row.sums, sampling);
    return;
  }
  form_ = Form::kListed;
  gathered_ = true;
  tokens_ = list.tokens;
  x_ = TemperList(list, sampling);
  sum_ = JoinChunks(row.sums);
}

// The row is a list of raw logits, with all tokens that the format allows among them.
void ProcessedRow::ReadAllowed(const CandidateRow& row, const SamplingParams& sampling) {
  const AllowedTokens* allowed = ranks_ ? candidates_.get() : sampling.allowed.get();
  TokenList list;
  for (size_t i = 0; i < row.raw.tokens.size(); ++i) {
    if (allowed != nullptr && !allowed->Has(row.raw.tokens[i])) continue;
    list.tokens.push_back(row.raw.tokens[i]);
    list.logits.push_back(row.raw.logits[i]);
  }
  form_ = Form::kCut;
  if (!ranks_) {
    sparse_ = ProcessAllowed(list, sampling);
    return;
  }
  x_.resize(list.logits.size());
  WidenRow(list.logits, x_.data());
  sum_ = JoinChunks(row.raw_sums);
  if (x_.empty() || *std::max_element(x_.begin(), x_.end()) == kLogZero) {
    sparse_ = {{0}, {0.0}};  // no finite logit
    return;
  }
  form_ = Form::kListed;
  gathered_ = true;
  tokens_ = std::move(list.tokens);
}

ProcessedRow::Candidate ProcessedRow::At(TokenId token, double log_prob) const {
  if (sampling_.mode == SamplingScope::kRow) return {token, log_prob, log_prob};
  size_t place = token;
  if (gathered_) {
    place = std::lower_bound(tokens_.begin(), tokens_.end(), token) - tokens_.begin();
    if (place == tokens_.size() || tokens_[place] != token) return {token, log_prob, 0.0};
  }
  const double raw = std::min(0.0, raw_[place] - raw_log_sum_);
  return {token, log_prob, raw == raw ? raw : 0.0};
}

ProcessedRow::Draw ProcessedRow::DrawToken(const NoiseKey& key) const {
  if (form_ == Form::kWhole) {
    const NoisyWinner winner = ArgmaxWithNoise(x_, weights_.data(), sum_, key);
    return {At(winner.token, UncutLogProb(winner.token)), winner.margin};
  }
  return DrawListed(key);
}

// Draws from the entries of a cut row or a candidate list.
ProcessedRow::Draw ProcessedRow::DrawListed(const NoiseKey& key) const {
  const bool cut = form_ == Form::kCut;
  const std::vector<TokenId>& tokens = cut ? sparse_.tokens : tokens_;
  const auto log_prob = [&](size_t i) { return cut ? sparse_.log_probs[i] : UncutLogProb(i); };
  thread_local std::vector<double> noise;
  noise.resize(tokens.size());
  GumbelMany(key, tokens, noise.data());
  size_t best = 0;
  double best_key = kLogZero, second_key = kLogZero;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double value = log_prob(i) + noise[i];
    if (value > best_key) {
      second_key = best_key;
      best_key = value;
      best = i;
    } else if (value > second_key) {
      second_key = value;
    }
  }
  const double margin = best_key - second_key;
  return {At(tokens[best], log_prob(best)), cut ? margin : std::min(margin, kMarginCap)};
}

bool ProcessedRow::TopCandidates(size_t count, double least, std::vector<Candidate>* out) const {
  constexpr double kLowest = std::numeric_limits<double>::lowest();
  out->clear();
  if (cut()) {
    for (size_t i = 0; i < sparse_.size(); ++i)
      out->push_back(At(sparse_.tokens[i], sparse_.log_probs[i]));
    return false;
  }
  std::vector<double> maxima;
  BlockMaxima(x_, &maxima);
  std::vector<TokenId> places;
  const double threshold = std::max(kLowest, least + sum_.log - kTieSlack);
  if (threshold > kLowest) CollectAtLeast(x_, maxima, threshold, &places);
  const bool few = threshold > kLowest && places.size() <= count;
  if (!few) {
    const std::vector<TokenId> top = TopTokens(x_, maxima, count);  // indices of x_
    const double last = top.size() < count ? kLowest : x_[top.back()] - kTieSlack;
    CollectAtLeast(x_, maxima, std::max(threshold, last), &places);
  }
  for (TokenId place : places) out->push_back(At(TokenAt(place), UncutLogProb(place)));
  return few && places.size() < x_.size();
}

int ProcessedRow::entries() const { return static_cast<int>(cut() ? sparse_.size() : x_.size()); }

TargetRow ProcessedRow::Materialise() const {
  TargetRow out;
  const auto add = [&out](const Candidate& candidate) {
    out.row.tokens.push_back(candidate.token);
    out.row.log_probs.push_back(candidate.log_prob);
    out.score_log_probs.push_back(candidate.score_log_prob);
  };
  const size_t most = entries();
  out.row.tokens.reserve(most);
  out.row.log_probs.reserve(most);
  out.score_log_probs.reserve(most);
  if (cut()) {
    for (size_t i = 0; i < sparse_.size(); ++i) add(At(sparse_.tokens[i], sparse_.log_probs[i]));
    return out;
  }
  for (size_t i = 0; i < x_.size(); ++i) {
    if (x_[i] != kLogZero) add(At(TokenAt(i), UncutLogProb(i)));
  }
  return out;
}

double ProcessedRow::log_kept_mass() const {
  if (whole()) return sum_.log;
  const double value = x_[sparse_.tokens[0]];
  return value == kLogZero ? 0.0 : value - sparse_.log_probs[0];
}

double ProcessedRow::LogProb(TokenId token) const {
  if (whole()) {
    return token >= 0 && static_cast<size_t>(token) < x_.size() ? UncutLogProb(token) : kLogZero;
  }
  const std::vector<TokenId>& tokens = cut() ? sparse_.tokens : tokens_;
  const auto found = std::lower_bound(tokens.begin(), tokens.end(), token);
  if (found == tokens.end() || *found != token) {
    COPPICE_CHECK_MSG(cut(), "a candidate list was asked for a token that it does not hold");
    return kLogZero;
  }
  const size_t place = found - tokens.begin();
  return cut() ? sparse_.log_probs[place] : UncutLogProb(place);
}

}  // namespace coppice::sampling
