#include "sampling/candidate_list.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/check.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logit_check.h"
#include "sampling/logits_processing.h"
#include "sampling/row_kernels.h"

namespace coppice::sampling {
namespace {

constexpr int kSpare = 16;          // room for tokens within the slack of the last one asked for
constexpr int kWorthListing = 4;    // a list longer than vocabulary / kWorthListing is sent whole
constexpr double kRounding = 1e-9;  // relative change of a sum by the order of its terms, at most

// Lists by x.
int Lists(const RowNeed& need) {
  if (need.form == RowNeed::Form::kGumbel) return __builtin_popcount(need.slots);
  return need.form == RowNeed::Form::kTop ? 1 : 0;
}

// Writes a record word by word. Values are copied bit for bit.
class Writer {
 public:
  explicit Writer(float* out) : out_(out) {}
  template <typename T>
  void Put(const T& value) {
    static_assert(sizeof(T) % sizeof(float) == 0);
    std::memcpy(out_, &value, sizeof value);
    out_ += sizeof value / sizeof(float);
  }
  void Skip(size_t words) { out_ = std::fill_n(out_, words, 0.0f); }

 private:
  float* out_;
};

class Reader {
 public:
  explicit Reader(const float* in) : in_(in) {}
  template <typename T>
  T Get() {
    T value;
    std::memcpy(&value, in_, sizeof value);
    in_ += sizeof value / sizeof(float);
    return value;
  }
  void Skip(size_t words) { in_ += words; }

 private:
  const float* in_;
};

int64_t ChunkBegin(int64_t vocab, int chunk) { return chunk * vocab / kLseChunks; }

// Sums of the chunks in this shard; the others are empty.
ChunkSums SumShard(absl::Span<const double> x, const ShardRow& row) {
  ChunkSums sums;
  for (int c = 0; c < kLseChunks; ++c) {
    const int64_t begin = ChunkBegin(row.vocab, c), end = ChunkBegin(row.vocab, c + 1);
    sums.max[c] = kLogZero;
    sums.sum[c] = 0;
    if (begin < row.tokens.begin || end > row.tokens.end) continue;
    SumChunk(x.subspan(begin - row.tokens.begin, end - begin), &sums.max[c], &sums.sum[c]);
  }
  return sums;
}

// The least key of a list: that of the count-th largest entry less the slack.
double LeastKey(absl::Span<const double> keys, int count, double slack) {
  const std::vector<TokenId> top = TopTokens(keys, count);
  if (static_cast<int>(top.size()) < count) return std::numeric_limits<double>::lowest();
  return keys[top.back()] - slack;
}

// Indices of the entries from `least` on, ascending.
std::vector<TokenId> PlacesFrom(double least, absl::Span<const double> keys) {
  std::vector<double> maxima;
  BlockMaxima(keys, &maxima);
  std::vector<TokenId> places;
  CollectAtLeast(keys, maxima, least, &places);
  return places;
}

std::vector<TokenId> Largest(absl::Span<const double> keys, const RowNeed& need) {
  return PlacesFrom(LeastKey(keys, need.count, need.slack), keys);
}

// Adds the places of the tokens that a kRaw need asks for, as far as place_of knows them (>= 0).
template <class PlaceOf>
void AddAskedFor(const RowNeed& need, absl::Span<const std::pair<TokenId, double>> bias,
                 PlaceOf place_of, std::vector<TokenId>* places) {
  if (need.form != RowNeed::Form::kRaw) return;
  for (const auto& [token, nats] : bias) {
    const int64_t place = place_of(token);
    if (place >= 0) places->push_back(static_cast<TokenId>(place));
  }
  std::sort(places->begin(), places->end());
  places->erase(std::unique(places->begin(), places->end()), places->end());
}

// Writes the tokens at `places`, each by write(place), or an overflow when they are not complete.
template <class Write>
void WritePlaces(absl::Span<const TokenId> places, bool complete, int room, Writer* out,
                 Write write) {
  const bool fits = complete && static_cast<int>(places.size()) <= room;
  out->Put<int32_t>(fits ? static_cast<int32_t>(places.size()) : -1);
  if (!fits) places = {};
  for (TokenId place : places) write(place);
  out->Skip(2 * (room - places.size()));
}

void WriteList(int capacity, const ShardRow& row, absl::Span<const TokenId> places, Writer* out) {
  WritePlaces(places, /*complete=*/true, capacity, out, [&](TokenId place) {
    out->Put<int32_t>(static_cast<int32_t>(row.tokens.begin) + place);
    out->Put<float>(row.logits[place]);
  });
}

// logits: of the shard.
std::vector<TokenId> RawPlaces(const RowNeed& need, const ShardRow& row,
                               absl::Span<const double> logits) {
  std::vector<TokenId> places = PlacesFrom(LeastKey(logits, need.raw_top, /*slack=*/0), logits);
  const auto place_of = [&row](TokenId token) {
    // -1: the token belongs to another rank.
    return token < row.tokens.end ? token - row.tokens.begin : -1;
  };
  AddAskedFor(need, row.bias, place_of, &places);
  return places;
}

// The shard's noisy argmax for one slot at a time.
class NoisyShard {
 public:
  // x: the shard's keys without noise.
  NoisyShard(const RowNeed& need, const ShardRow& row, absl::Span<const double> x)
      : need_(need), row_(row), odd_(row.tokens.begin % 2), x_(odd_ + x.size(), kLogZero) {
    // Noise is generated for pairs of tokens, so x_ begins with an even token.
    std::copy(x.begin(), x.end(), x_.begin() + odd_);
    if (need.count > 1) return;
    weights_.resize((x_.size() + kRowPadding - 1) / kRowPadding * kRowPadding);
    sum_ = ChunkedLogSumExp(x_, weights_.data());
  }

  std::vector<TokenId> Places(uint32_t slot) {
    const NoiseKey key{need_.seed, Domain::kToken, need_.path_hash, slot};
    const auto begin = static_cast<TokenId>(row_.tokens.begin);
    if (need_.count == 1) {
      if (sum_.max == kLogZero) return {};
      const NoisyWinner winner =
          ArgmaxWithNoise(x_, weights_.data(), sum_, key, begin - static_cast<TokenId>(odd_));
      if (winner.margin >= std::min(kMarginCap, need_.slack)) return {winner.token - begin};
    }
    tokens_.resize(row_.tokens.size());
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = begin + static_cast<TokenId>(i);
    keys_.resize(tokens_.size());
    GumbelMany(key, tokens_, keys_.data());
    for (size_t i = 0; i < keys_.size(); ++i) keys_[i] += x_[odd_ + i];
    return Largest(keys_, need_);
  }

 private:
  const RowNeed& need_;
  const ShardRow& row_;
  size_t odd_;  // entries before the shard's first
  std::vector<double> x_, keys_;
  std::vector<float> weights_;
  std::vector<TokenId> tokens_;
  LogSum sum_{};
};

// Makes the logits of a shard its x.
void TemperShard(const RowNeed& need, const ShardRow& row, absl::Span<double> x) {
  SamplingParams sampling;
  sampling.temperature = need.temperature;
  for (const auto& [token, bias] : row.bias) {
    sampling.logit_bias.emplace_back(static_cast<TokenId>(token - row.tokens.begin), bias);
  }
  TemperRow(sampling, x);
}

void WriteNoisyLists(const RowNeed& need, const ShardRow& row, absl::Span<const double> x,
                     Writer* out) {
  NoisyShard noisy(need, row, x);
  for (uint32_t slot = 0; slot < 32; ++slot) {
    if ((need.slots >> slot & 1) != 0) WriteList(ListCapacity(need), row, noisy.Places(slot), out);
  }
}

// The tokens at `places` of what was found, if every token with a key of at least `least` was.
void WriteFound(const FoundList& list, absl::Span<const TokenId> places, double least, int capacity,
                Writer* out) {
  const bool proven = list.bound < least;  // false for NaN
  WritePlaces(places, proven, capacity, out, [&](TokenId place) {
    out->Put<int32_t>(list.tokens.tokens[place]);
    out->Put<float>(list.tokens.logits[place]);
  });
}

void WriteFoundRaw(const RowNeed& need, const FoundList& list,
                   absl::Span<const std::pair<TokenId, double>> bias, Writer* out) {
  const std::vector<TokenId>& tokens = list.tokens.tokens;
  std::vector<double> keys(tokens.size());
  WidenRow(list.tokens.logits, keys.data());
  const double least = LeastKey(keys, need.raw_top, /*slack=*/0);
  std::vector<TokenId> places = PlacesFrom(least, keys);
  const auto place_of = [&tokens](TokenId token) -> int64_t {
    const auto at = std::lower_bound(tokens.begin(), tokens.end(), token);
    return at != tokens.end() && *at == token ? at - tokens.begin() : -1;
  };
  AddAskedFor(need, bias, place_of, &places);
  WriteFound(list, places, least, RawCapacity(need), out);
}

std::vector<double> KeysOf(const TokenList& list, const RowNeed& need,
                           absl::Span<const std::pair<TokenId, double>> bias) {
  SamplingParams sampling;
  sampling.temperature = need.temperature;
  sampling.logit_bias.assign(bias.begin(), bias.end());
  return TemperList(list, sampling);
}

// Appends a rank's list. False: an overflow.
bool ReadList(int capacity, Reader* in, TokenList* list) {
  const auto count = in->Get<int32_t>();
  for (int32_t i = 0; i < count; ++i) {
    list->tokens.push_back(in->Get<int32_t>());
    list->logits.push_back(in->Get<float>());
  }
  in->Skip(2 * (capacity - std::max(count, 0)));
  return count >= 0;
}

// Each rank lists its own `count` best. Below the count-th best of all ranks, tokens of some ranks
// are missing, so the list ends there.
void TrimList(const RowNeed& need, absl::Span<const std::pair<TokenId, double>> bias,
              TokenList* list) {
  if (static_cast<int>(list->tokens.size()) <= need.count) return;
  const std::vector<TokenId> places = Largest(KeysOf(*list, need, bias), need);
  TokenList kept;
  for (TokenId place : places) {
    kept.tokens.push_back(list->tokens[place]);
    kept.logits.push_back(list->logits[place]);
  }
  *list = std::move(kept);
}

}  // namespace

TokenRange VocabularyShard(int64_t vocab, int rank, int ranks) {
  COPPICE_CHECK(rank >= 0 && rank < ranks && ranks <= kLseChunks);
  return {ChunkBegin(vocab, kLseChunks * rank / ranks),
          ChunkBegin(vocab, kLseChunks * (rank + 1) / ranks)};
}

int64_t LargestShard(int64_t vocab, int ranks) {
  int64_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    largest = std::max(largest, VocabularyShard(vocab, rank, ranks).size());
  }
  return largest;
}

bool IsWhole(const RowNeed& need, int64_t vocab) {
  const bool by_x = Lists(need) > 0;
  if (need.form == RowNeed::Form::kWhole || (!by_x && need.form != RowNeed::Form::kRaw))
    return true;
  const int64_t listed =
      RawCapacity(need) + (by_x ? ListCapacity(need) + (need.bias_end - need.bias_begin) : 0);
  return listed * kWorthListing > vocab || static_cast<int64_t>(RecordWords(need)) > vocab;
}

size_t RecordWords(const RowNeed& need) {
  const size_t sums = (need.sums ? 1 : 0) + (need.raw_sums ? 1 : 0);
  return 2 + sums * sizeof(ChunkSums) / sizeof(float) + Lists(need) * (1 + 2 * ListCapacity(need)) +
         (need.raw_top > 0 ? 1 + 2 * RawCapacity(need) : 0);
}

void WriteRecord(const RowNeed& need, const ShardRow& row, float* record) {
  COPPICE_CHECK(static_cast<int64_t>(row.logits.size()) == row.tokens.size());
  Writer out(record);
  const int bad = FirstBadLogit(row.logits);
  out.Put<int32_t>(bad < 0 ? -1 : static_cast<int32_t>(row.tokens.begin) + bad);
  out.Put<float>(bad < 0 ? 0.0f : row.logits[bad]);
  std::vector<double> x(row.logits.size());
  WidenRow(row.logits, x.data());
  ChunkSums raw;
  std::vector<TokenId> raw_places;
  if (need.raw_sums) raw = SumShard(x, row);
  if (need.raw_top > 0) raw_places = RawPlaces(need, row, x);
  if (Lists(need) > 0) TemperShard(need, row, absl::MakeSpan(x));
  if (need.sums) out.Put(SumShard(x, row));
  if (need.raw_sums) out.Put(raw);
  if (need.form == RowNeed::Form::kTop) WriteList(ListCapacity(need), row, Largest(x, need), &out);
  if (need.form == RowNeed::Form::kGumbel) WriteNoisyLists(need, row, x, &out);
  if (need.raw_top > 0) WriteList(RawCapacity(need), row, raw_places, &out);
}

int ListCapacity(const RowNeed& need) { return need.count + kSpare; }

int RawCapacity(const RowNeed& need) {
  if (need.raw_top == 0) return 0;
  const int asked_for = need.form == RowNeed::Form::kRaw ? need.bias_end - need.bias_begin : 0;
  return need.raw_top + kSpare + asked_for;
}

void WriteFoundRecord(const RowNeed& need, const FoundRow& row,
                      absl::Span<const std::pair<TokenId, double>> bias, float* record) {
  const int by_x = Lists(need);
  COPPICE_CHECK(static_cast<int>(row.lists.size()) == by_x + (need.raw_top > 0 ? 1 : 0));
  Writer out(record);
  out.Put<int32_t>(row.bad_token);
  out.Put<float>(row.bad_logit);
  if (need.sums) out.Put(*row.sums);
  if (need.raw_sums) out.Put(*row.raw_sums);
  uint32_t slots = need.slots;  // slots that still need a list
  std::vector<double> noise;
  for (const FoundList& list : absl::MakeConstSpan(row.lists).first(by_x)) {
    std::vector<double> keys = KeysOf(list.tokens, need, bias);
    if (need.form == RowNeed::Form::kGumbel) {
      const auto slot = static_cast<uint32_t>(__builtin_ctz(slots));
      slots &= slots - 1;
      noise.resize(keys.size());
      GumbelMany({need.seed, Domain::kToken, need.path_hash, slot}, list.tokens.tokens,
                 noise.data());
      for (size_t i = 0; i < keys.size(); ++i) keys[i] += noise[i];
    }
    const double least = LeastKey(keys, need.count, need.slack);
    WriteFound(list, PlacesFrom(least, keys), least, ListCapacity(need), &out);
  }
  if (need.raw_top > 0) WriteFoundRaw(need, row.lists.back(), bias, &out);
}

CandidateRow JoinRecords(const RowNeed& need, absl::Span<const float* const> records,
                         absl::Span<const std::pair<TokenId, double>> bias) {
  CandidateRow row;
  row.slots = need.form == RowNeed::Form::kGumbel ? need.slots : 0;
  row.lists.resize(Lists(need));
  std::fill(row.sums.max, row.sums.max + kLseChunks, kLogZero);
  std::fill(row.sums.sum, row.sums.sum + kLseChunks, 0.0);
  row.raw_sums = row.sums;
  const auto add = [](const ChunkSums& part, ChunkSums* whole) {
    for (int c = 0; c < kLseChunks; ++c) {
      if (part.max[c] == kLogZero) continue;
      whole->max[c] = part.max[c];
      whole->sum[c] = part.sum[c];
    }
  };
  for (const float* record : records) {
    Reader in(record);
    const auto bad = in.Get<int32_t>();
    const auto logit = in.Get<float>();
    if (bad >= 0 && row.bad_token < 0) {
      row.bad_token = bad;
      row.bad_logit = logit;
    }
    if (need.sums) add(in.Get<ChunkSums>(), &row.sums);
    if (need.raw_sums) add(in.Get<ChunkSums>(), &row.raw_sums);
    for (TokenList& list : row.lists) row.overflow |= !ReadList(ListCapacity(need), &in, &list);
    if (need.raw_top > 0) row.overflow |= !ReadList(RawCapacity(need), &in, &row.raw);
  }
  if (need.form == RowNeed::Form::kTop) TrimList(need, bias, &row.lists[0]);
  return row;
}

bool IsComplete(const RowNeed& need, const CandidateRow& row,
                absl::Span<const std::pair<TokenId, double>> bias) {
  if (row.bad_token >= 0) return true;  // the row is invalid, so nothing is decided from it
  if (row.overflow) return false;
  if (need.cover <= 0 && need.depth <= 0) return true;  // always true without a list by x
  const TokenList& list = row.lists[0];
  // The vocabulary has no more tokens.
  if (static_cast<int>(list.tokens.size()) < need.count) return true;
  std::vector<double> x = KeysOf(list, need, bias);
  std::sort(x.begin(), x.end(), std::greater<>());
  if (need.depth > 0 && !(x.back() < x.front() - need.depth - 1e-6)) return false;
  if (need.cover <= 0) return true;
  const LogSum sum = JoinChunks(row.sums);
  double mass = 0;
  for (size_t i = 0; i + 1 < x.size(); ++i) mass += Exp(x[i] - sum.max);
  return mass > (need.cover + kRounding) * Exp(sum.log - sum.max);
}

}  // namespace coppice::sampling
