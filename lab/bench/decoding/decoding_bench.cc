// The cost of deciding one drafted round, without any model: the CPU time of BeamDecoder::Advance
// and, measured separately, of drafting from given logits. Depth 4. There are three kinds of rows,
// all made before the clock starts:
//   Reduced   64 logits per row: what top_k = 64 leaves of a vocabulary
//   Vocab128k 131072 f32 logits per row and top_k = 64: the reduction is part of the time
//   Vocab4k   4096 f32 logits per row, nothing is cut
//   bench_decoding --benchmark_min_time=1
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "lab/bench/decoding/thread_seconds.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logits_processing.h"
#include "sampling/rng.h"
#include "sampling/row_kernels.h"

namespace coppice::bench {
namespace {

constexpr int kDepth = 4;
constexpr int kReduced = 64;
constexpr int kVocab = 4096;
constexpr int kLargeVocab = 131072;

// Gaussian logits (sd 3) that depend only on the path: each row is a window of one long table.
absl::Span<const float> TargetLogits(uint64_t hash, int vocab) {
  constexpr size_t kOffsets = size_t{1} << 20;
  static const auto* table = [] {
    std::mt19937 bits(1);
    std::normal_distribution<float> normal(0, 3);
    auto* out = new std::vector<float>(kOffsets + kLargeVocab);
    for (float& logit : *out) logit = normal(bits);
    return out;
  }();
  return absl::MakeConstSpan(table->data() + sampling::Finalize(hash) % kOffsets, vocab);
}

// The target's logits plus noise (sd 0.7).
std::vector<float> DraftLogits(uint64_t hash, int vocab) {
  const absl::Span<const float> target = TargetLogits(hash, vocab);
  const absl::Span<const float> noise = TargetLogits(~hash, vocab);
  std::vector<float> out(vocab);
  for (int v = 0; v < vocab; ++v) out[v] = target[v] + 0.7f / 3 * noise[v];
  return out;
}

class ReadyRows : public sampling::RowSource {
 public:
  ReadyRows(absl::Span<const uint64_t> roots, const decoding::DraftForest& forest, int vocab)
      : vocab_(vocab), hashes_(roots.begin(), roots.end()) {
    for (int i = 0; i < forest.size(); ++i) {
      const int parent = forest.RowOf(forest.parent[i]);
      hashes_.push_back(sampling::ExtendHash(hashes_[parent], forest.token[i]));
    }
    TargetLogits(0, vocab);
  }
  absl::Span<const float> Logits(int row) override {
    ++read;
    return TargetLogits(hashes_[row], vocab_);
  }
  int read = 0;

 private:
  int vocab_;
  std::vector<uint64_t> hashes_;
};

enum class Timed { kVerdict, kDraft };

struct Setting {
  decoding::DecodingParams params;
  int vocab = kReduced;
  Timed timed = Timed::kVerdict;
};

// Drafts one forest. Returns it and the seconds that DraftRow and Grow took.
std::pair<decoding::DraftForest, double> Draft(const Setting& setting,
                                               const decoding::BeamDecoder& decoder) {
  const decoding::DraftState state = decoder.draft_state();
  const int width = decoding::AutoDraftWidth(setting.params.beam_width);
  std::unique_ptr<decoding::Drafter> drafter =
      decoding::MakeDrafter(setting.params, state, width).value();
  std::vector<uint64_t> hash_of_row = state.root_hash;  // [rows of the forest]
  double seconds = 0;
  for (int level = 0; level < kDepth && !drafter->frontier().empty(); ++level) {
    std::vector<std::vector<float>> logits;
    const decoding::DraftForest& forest = drafter->forest();
    const int nodes_before = forest.size();
    for (const TreePlace place : drafter->frontier())
      logits.push_back(DraftLogits(hash_of_row[forest.RowOf(place)], setting.vocab));
    const auto start = ThreadSeconds();
    std::vector<sampling::Distribution> rows;
    for (const auto& row : logits)
      rows.push_back(decoding::DraftRow(row, setting.params, decoder.layers_committed() + level));
    drafter->Grow(rows);
    seconds += ThreadSeconds() - start;
    for (int i = nodes_before; i < forest.size(); ++i)
      hash_of_row.push_back(
          sampling::ExtendHash(hash_of_row[forest.RowOf(forest.parent[i])], forest.token[i]));
  }
  return {drafter->Sent(), seconds};
}

// A request of width W with draft width 2 W and no end of sequence.
Setting Request(const std::string& method, sampling::DecodingKind kind, int width) {
  Setting setting;
  setting.params.kind = kind;
  setting.params.method = decoding::FindMethod(method);
  setting.params.beam_width = width;
  setting.params.max_tokens = 200;
  setting.params.seed = 7;
  setting.params.stop_ids = {2};
  setting.params.refill = true;
  setting.params.stop_when_full = false;
  return setting;
}

void Rounds(benchmark::State& state, Setting setting) {
  double layers = 0, rows_read = 0, rounds = 0;
  std::unique_ptr<decoding::BeamDecoder> decoder;
  for (auto _ : state) {
    if (decoder == nullptr || decoder->finished()) {
      ++setting.params.seed;
      decoder = decoding::MakeBeamDecoder(setting.params).value();
      decoder->Advance(decoding::DraftForest::Empty(1),
                       std::make_unique<ReadyRows>(decoder->draft_state().root_hash,
                                                   decoding::DraftForest::Empty(1), setting.vocab)
                           .get());
    }
    const auto [forest, draft_seconds] = Draft(setting, *decoder);
    ReadyRows rows(decoder->draft_state().root_hash, forest, setting.vocab);
    const auto start = ThreadSeconds();
    const decoding::Verdict verdict = decoder->Advance(forest, &rows);
    const double seconds = ThreadSeconds() - start;
    state.SetIterationTime(setting.timed == Timed::kDraft ? draft_seconds : seconds);
    layers += verdict.stats.layers;
    rows_read += rows.read;
    rounds += 1;
  }
  state.counters["layers"] = layers / rounds;
  state.counters["rows"] = rows_read / rounds;
}

struct Method {
  const char* label;
  const char* name;
  sampling::DecodingKind kind;
};
constexpr Method kMethods[] = {
    {"GumbelCoupling", "gumbel_coupling", sampling::DecodingKind::kBeamSampling},
    {"GumbelTopK", "gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement},
    {"Dsbd", "dsbd", sampling::DecodingKind::kBeamSampling},
    {"SpeculativeBeamSearch", "speculative_beam_search", sampling::DecodingKind::kBeamSearch},
};

// W = 4, W_S = 8: every method and kind of row, verdict and draft.
void RegisterRounds(const Method& method) {
  struct Rows {
    const char* label;
    int vocab;
    int top_k;
  };
  for (const Rows& rows : {Rows{"Reduced", kReduced, 64}, Rows{"Vocab128k", kLargeVocab, 64},
                           Rows{"Vocab4k", kVocab, 0}}) {
    for (const auto& [label, timed] :
         {std::pair("Verdict", Timed::kVerdict), std::pair("Draft", Timed::kDraft)}) {
      Setting setting = Request(method.name, method.kind, 4);
      setting.vocab = rows.vocab;
      // Beam search takes no sampling parameters. Its reduced rows have 64 tokens; its other rows
      // are not cut.
      if (method.kind != sampling::DecodingKind::kBeamSearch)
        setting.params.sampling.top_k = rows.top_k;
      setting.timed = timed;
      const std::string name = std::string(method.label) + label + "/" + rows.label;
      benchmark::RegisterBenchmark(name.c_str(), Rounds, setting)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

// Generative recommendation: many beams, W_S = 2 W, reduced rows.
void RegisterWide(const Method& method) {
  for (const auto& [label, timed] :
       {std::pair("Verdict", Timed::kVerdict), std::pair("Draft", Timed::kDraft)}) {
    for (int width : {64, 128, 256, 512}) {
      Setting setting = Request(method.name, method.kind, width);
      setting.timed = timed;
      const std::string name =
          std::string("Wide") + method.label + label + "/" + std::to_string(width);
      benchmark::RegisterBenchmark(name.c_str(), Rounds, setting)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

const bool registered = [] {
  for (const Method& method : kMethods) RegisterRounds(method);
  for (const Method& method : kMethods) {
    if (std::string(method.name) != "dsbd") RegisterWide(method);
  }
  return true;
}();

// Parts of a decision: cutting a row to its 64 largest logits (argument: logits in the row), one
// log-sum-exp and one noisy argmax over a row.
void TopOfRow(benchmark::State& state) {
  sampling::SamplingParams sampling;
  sampling.top_k = 64;
  uint64_t hash = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        sampling::ProcessRow(TargetLogits(++hash, static_cast<int>(state.range(0))), sampling)
            .size());
  }
}
BENCHMARK(TopOfRow)->Arg(kReduced)->Arg(kLargeVocab)->Unit(benchmark::kMicrosecond);

void LogSumExpOfRow(benchmark::State& state) {
  const absl::Span<const float> logits = TargetLogits(1, kVocab);
  std::vector<double> x(kVocab);
  std::vector<float> weights(kVocab);
  for (auto _ : state) {
    sampling::WidenRow(logits, x.data());
    benchmark::DoNotOptimize(sampling::ChunkedLogSumExp(x, weights.data()));
  }
}
void NoisyArgmaxOfRow(benchmark::State& state) {
  const absl::Span<const float> logits = TargetLogits(1, kVocab);
  std::vector<double> x(logits.begin(), logits.end());
  std::vector<float> weights(kVocab);
  const sampling::LogSum sum = sampling::ChunkedLogSumExp(x, weights.data());
  sampling::NoiseKey key{1, sampling::Domain::kToken, 1, 0};
  for (auto _ : state) {
    ++key.hash;
    benchmark::DoNotOptimize(sampling::ArgmaxWithNoise(x, weights.data(), sum, key));
  }
}
BENCHMARK(LogSumExpOfRow)->Unit(benchmark::kMicrosecond);
BENCHMARK(NoisyArgmaxOfRow)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace coppice::bench
