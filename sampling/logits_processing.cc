#include "sampling/logits_processing.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "sampling/deterministic_math.h"
#include "sampling/row_kernels.h"

namespace coppice::sampling {
namespace {

constexpr size_t kWorthGathering = 4;  // gather if fewer than 1 in 4 logits may be kept

bool HasTopP(const SamplingParams& sampling) { return sampling.top_p > 0 && sampling.top_p < 1; }

Distribution OneHot(TokenId token) { return {{token}, {0.0}}; }

// Sets the other tokens to -inf. x [vocab].
template <typename Real>
void Restrict(const AllowedTokens& allowed, absl::Span<Real> x) {
  constexpr auto kNone = -std::numeric_limits<Real>::infinity();
  if (allowed.bits.empty()) {
    size_t begin = 0;  // of the tokens between two that are listed
    for (const TokenId token : allowed.listed) {
      const size_t end = std::min(x.size(), static_cast<size_t>(token));
      std::fill(x.begin() + begin, x.begin() + end, kNone);
      begin = std::min(x.size(), end + 1);
    }
    std::fill(x.begin() + begin, x.end(), kNone);
    return;
  }
  for (size_t word = 0; word * 64 < x.size(); ++word) {
    const uint64_t bits = word < allowed.bits.size() ? allowed.bits[word] : 0;
    if (bits == ~uint64_t{0}) continue;
    const size_t end = std::min(x.size(), word * 64 + 64);
    for (size_t v = word * 64; v < end; ++v) {
      if ((bits >> (v % 64) & 1) == 0) x[v] = kNone;
    }
  }
}

// Length of the prefix of `order` that top-p keeps, or order.size() if `order` ends before the cut.
// A token is kept iff the mass before it is at most top_p. `total` is the mass of the tokens that
// top-p chooses from, relative to exp(max).
size_t TopPPrefix(absl::Span<const double> x, absl::Span<const TokenId> order, double max,
                  double total, double top_p) {
  double before = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && before / total > top_p) return i;
    before += Exp(x[order[i]] - max);
  }
  return order.size();
}

double MassOf(absl::Span<const double> x, absl::Span<const TokenId> tokens, double max) {
  std::vector<double> gathered;
  gathered.reserve(tokens.size());
  for (TokenId token : tokens) gathered.push_back(x[token]);
  return SumOfExp(gathered, max);
}

// Orders by x descending, then id ascending.
struct Before {
  absl::Span<const double> x;
  bool operator()(TokenId a, TokenId b) const { return x[a] > x[b] || (x[a] == x[b] && a < b); }
};

// The tokens of TopTokens, in any order.
std::vector<TokenId> TopSet(absl::Span<const double> x, absl::Span<const double> maxima,
                            size_t count) {
  // The count-th largest block maximum is a lower bound for the count-th largest entry.
  double threshold = std::numeric_limits<double>::lowest();
  if (count <= maxima.size()) {
    std::vector<double> sorted(maxima.begin(), maxima.end());
    std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
    threshold = std::max(threshold, sorted[count - 1]);
  }
  std::vector<TokenId> tokens;
  CollectAtLeast(x, maxima, threshold, &tokens);
  if (tokens.size() > count) {
    std::nth_element(tokens.begin(), tokens.begin() + count, tokens.end(), Before{x});
    tokens.resize(count);
  }
  return tokens;
}

std::vector<TokenId> TopSet(absl::Span<const double> x, size_t count) {
  std::vector<double> maxima;
  BlockMaxima(x, &maxima);
  return TopSet(x, maxima, count);
}

// Steps 2 and 3: the tokens that top-k and top-p keep. With top-p, they are in order.
std::vector<TokenId> KeptByRank(absl::Span<const double> x, const SamplingParams& sampling,
                                const LogSum* whole) {
  std::vector<TokenId> order;
  if (sampling.top_k > 0 && !HasTopP(sampling)) return TopSet(x, sampling.top_k);
  if (sampling.top_k > 0) {
    order = TopTokens(x, sampling.top_k);
    if (!order.empty()) {
      const double max = x[order[0]];
      order.resize(TopPPrefix(x, order, max, MassOf(x, order, max), sampling.top_p));
    }
    return order;
  }
  const LogSum sum = whole != nullptr ? *whole : ChunkedLogSumExp(x, nullptr);
  const double total = Exp(sum.log - sum.max);
  for (size_t count = 64;; count *= 4) {  // usually a few dozen tokens have enough mass
    order = TopTokens(x, count);
    const size_t kept = TopPPrefix(x, order, sum.max, total, sampling.top_p);
    if (kept < order.size() || order.size() < count) {
      order.resize(kept);
      return order;
    }
  }
}

std::vector<TokenId> KeptByMinP(absl::Span<const double> x, double min_p) {
  std::vector<double> maxima;
  BlockMaxima(x, &maxima);
  const double max = *std::max_element(maxima.begin(), maxima.end());
  std::vector<TokenId> tokens;
  if (max == kLogZero) return tokens;
  CollectAtLeast(x, maxima, max + Log(std::min(min_p, 1.0)) - 1e-6,
                 &tokens);  // the exact test follows
  return tokens;
}

Distribution Renormalise(absl::Span<const double> x, std::vector<TokenId> tokens) {
  // The tokens of a row that was already cut are sorted.
  if (!std::is_sorted(tokens.begin(), tokens.end())) std::sort(tokens.begin(), tokens.end());
  double max = kLogZero;
  Distribution row;
  row.log_probs.reserve(tokens.size());
  for (TokenId token : tokens) {
    max = std::max(max, x[token]);
    row.log_probs.push_back(x[token]);
  }
  const double log_mass = Log(SumOfExp(row.log_probs, max));
  for (double& value : row.log_probs) value = std::min(0.0, (value - max) - log_mass);
  row.tokens = std::move(tokens);
  return row;
}

Distribution WholeRow(absl::Span<const double> x) {
  const double log_sum = ChunkedLogSumExp(x, nullptr).log;
  Distribution row;
  row.tokens.reserve(x.size());
  row.log_probs.reserve(x.size());
  for (size_t v = 0; v < x.size(); ++v) {
    if (x[v] == kLogZero) continue;
    row.tokens.push_back(static_cast<TokenId>(v));
    row.log_probs.push_back(std::min(0.0, x[v] - log_sum));
  }
  return row;
}

Distribution ProcessInPlace(absl::Span<double> x, const SamplingParams& sampling) {
  TemperRow(sampling, x);
  return CutRow(x, sampling);
}

// The tokens that may be among the first `count` after bias and penalties; ascending.
std::vector<TokenId> Contenders(absl::Span<const float> logits, const SamplingParams& sampling,
                                size_t count) {
  const size_t changed = sampling.logit_bias.size() + sampling.repeated.size();
  std::vector<TokenId> tokens = LargestLogits(logits, count + changed);
  if (changed == 0) return tokens;
  const auto add = [&](TokenId token) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size()) tokens.push_back(token);
  };
  for (const auto& [token, bias] : sampling.logit_bias) add(token);
  for (const RepeatedToken& repeated : sampling.repeated) add(repeated.token);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

// CutRow, if only the listed tokens can survive.
Distribution CutList(const TokenList& list, const SamplingParams& sampling, const LogSum* sum) {
  const std::vector<double> x = TemperList(list, sampling);
  if (x.empty() || *std::max_element(x.begin(), x.end()) == kLogZero) return OneHot(0);
  Distribution row = CutRow(x, sampling, sum);
  for (TokenId& token : row.tokens) token = list.tokens[token];
  return row;
}

}  // namespace

double LogSumExp(absl::Span<const double> x) { return ChunkedLogSumExp(x, nullptr).log; }

void KeepAllowed(const AllowedTokens& allowed, absl::Span<double> x) { Restrict(allowed, x); }

bool FewAllowed(const SamplingParams& sampling) {
  return sampling.allowed != nullptr && !sampling.allowed->listed.empty();
}

void TemperRow(const SamplingParams& sampling, absl::Span<double> x) {
  if (sampling.allowed != nullptr) Restrict(*sampling.allowed, x);
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token >= 0 && static_cast<size_t>(token) < x.size()) x[token] += bias;
  }
  for (const RepeatedToken& repeated : sampling.repeated) {
    if (repeated.token < 0 || static_cast<size_t>(repeated.token) >= x.size()) continue;
    double& value = x[repeated.token];
    value = value > 0 ? value / sampling.repetition_penalty : value * sampling.repetition_penalty;
    value += repeated.nats;
  }
  if (sampling.temperature > 0 && sampling.temperature != 1) DivideRow(sampling.temperature, x);
}

bool KeepsWholeRow(const SamplingParams& sampling) {
  return sampling.temperature > 0 && sampling.top_k <= 0 && !HasTopP(sampling) &&
         sampling.min_p <= 0;
}

bool KeepsLogits(const SamplingParams& sampling) {
  return sampling.temperature == 1 && sampling.logit_bias.empty() && sampling.repeated.empty() &&
         sampling.allowed == nullptr;
}

SamplingParams WithoutCuts(SamplingParams sampling) {
  const SamplingParams neutral;
  sampling.top_k = neutral.top_k;
  sampling.top_p = neutral.top_p;
  sampling.min_p = neutral.min_p;
  return sampling;
}

bool CutsJointly(const SamplingParams& sampling) {
  return sampling.mode == SamplingScope::kJoint
             ? !KeepsWholeRow(sampling)
             : sampling.mode == SamplingScope::kRowCut && sampling.temperature <= 0;
}

std::vector<TokenId> TopTokens(absl::Span<const double> x, size_t count) {
  std::vector<double> maxima;
  BlockMaxima(x, &maxima);
  return TopTokens(x, maxima, count);
}

std::vector<TokenId> TopTokens(absl::Span<const double> x, absl::Span<const double> maxima,
                               size_t count) {
  std::vector<TokenId> tokens = TopSet(x, maxima, count);
  std::sort(tokens.begin(), tokens.end(), Before{x});
  return tokens;
}

Distribution CutRow(absl::Span<const double> x, const SamplingParams& sampling, const LogSum* sum) {
  if (KeepsWholeRow(sampling)) {
    Distribution row = WholeRow(x);
    return row.tokens.empty() ? OneHot(0) : row;
  }
  if (sampling.temperature <= 0) {
    const std::vector<TokenId> top = TopTokens(x, 1);
    return OneHot(top.empty() ? 0 : top[0]);
  }
  std::vector<TokenId> kept;
  if (sampling.top_k > 0 || HasTopP(sampling)) {
    kept = KeptByRank(x, sampling, sum);
  } else {
    kept = KeptByMinP(x, sampling.min_p);
  }
  if (kept.empty()) return OneHot(0);
  if (sampling.min_p > 0) {
    double max = kLogZero;
    for (TokenId token : kept) max = std::max(max, x[token]);
    kept.erase(std::remove_if(kept.begin(), kept.end(),
                              [&](TokenId token) {
                                return x[token] < max && Exp(x[token] - max) < sampling.min_p;
                              }),
               kept.end());
  }
  return Renormalise(x, std::move(kept));
}

Distribution ProcessRow(absl::Span<const double> logits, const SamplingParams& sampling) {
  std::vector<double> x(logits.begin(), logits.end());
  for (double& value : x) value = value == value ? value : kLogZero;
  return ProcessInPlace(absl::MakeSpan(x), sampling);
}

Distribution ProcessRow(absl::Span<const float> logits, const SamplingParams& sampling) {
  if (FewAllowed(sampling)) {
    TokenList list;
    for (const TokenId token : sampling.allowed->listed) {
      if (static_cast<size_t>(token) >= logits.size()) break;
      list.tokens.push_back(token);
      list.logits.push_back(logits[token]);
    }
    return ProcessAllowed(list, sampling);
  }
  if (sampling.allowed != nullptr) {
    std::vector<float> left(logits.begin(), logits.end());
    Restrict(*sampling.allowed, absl::MakeSpan(left));
    SamplingParams others = sampling;
    others.allowed = nullptr;
    return ProcessRow(left, others);
  }
  const size_t count = sampling.temperature <= 0 ? 1 : std::max(0, sampling.top_k);
  if (count > 0 && logits.size() / kWorthGathering > count) {
    TokenList list{Contenders(logits, sampling, count), {}};
    for (TokenId token : list.tokens) list.logits.push_back(logits[token]);
    if (!list.tokens.empty()) return CutList(list, sampling, nullptr);
  }
  std::vector<double> x(logits.size());
  WidenRow(logits, x.data());
  return ProcessInPlace(absl::MakeSpan(x), sampling);
}

Distribution ProcessAllowed(const TokenList& list, const SamplingParams& sampling) {
  return CutList(list, sampling, nullptr);
}

std::vector<double> TemperList(const TokenList& list, const SamplingParams& sampling) {
  std::vector<double> x(list.tokens.size());
  WidenRow(list.logits, x.data());
  SamplingParams listed;
  listed.temperature = sampling.temperature;
  listed.repetition_penalty = sampling.repetition_penalty;
  const auto place_of = [&list](TokenId token) {  // -1: not listed
    const auto at = std::lower_bound(list.tokens.begin(), list.tokens.end(), token);
    const bool found = at != list.tokens.end() && *at == token;
    return found ? static_cast<TokenId>(at - list.tokens.begin()) : -1;
  };
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (const TokenId place = place_of(token); place >= 0)
      listed.logit_bias.emplace_back(place, bias);
  }
  for (const RepeatedToken& repeated : sampling.repeated) {
    if (const TokenId place = place_of(repeated.token); place >= 0)
      listed.repeated.push_back({place, repeated.nats});
  }
  TemperRow(listed, absl::MakeSpan(x));
  if (sampling.allowed != nullptr) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (!sampling.allowed->Has(list.tokens[i])) x[i] = kLogZero;
    }
  }
  return x;
}

Distribution ProcessList(const TokenList& list, const ChunkSums& sums,
                         const SamplingParams& sampling) {
  if (!HasTopP(sampling) || sampling.top_k > 0 || sampling.temperature <= 0) {
    return CutList(list, sampling, nullptr);
  }
  const LogSum sum = JoinChunks(sums);
  return CutList(list, sampling, &sum);
}

}  // namespace coppice::sampling
