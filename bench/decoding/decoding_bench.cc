// Decision cost of one verified round: V = 4096, W = 4, W_S = 8, depth 4, f32 logits. Rows are made
// before the clock starts; the time (CPU time of the thread) is that of BeamDecoder::Advance, and
// apart from it that of drafting from ready logits.
//   build/release/bin/bench_decoding --benchmark_min_time=1
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/row_kernels.h"

namespace coppice {
namespace {

constexpr int kVocab = 4096;
constexpr int kWidth = 4;
constexpr int kDraftWidth = 8;
constexpr int kDepth = 4;

// Gaussian logits that depend on the path alone; the draft's are the target's plus noise.
std::vector<float> Logits(uint64_t hash, bool draft) {
  std::mt19937 target_bits(static_cast<uint32_t>(hash));
  std::mt19937 draft_bits(static_cast<uint32_t>(hash >> 32));
  std::normal_distribution<float> target(0, 3), noise(0, 0.7f);
  std::vector<float> out(kVocab);
  for (float& logit : out) logit = target(target_bits);
  if (draft) {
    for (float& logit : out) logit += noise(draft_bits);
  }
  return out;
}

class ReadyRows : public RowSource {
 public:
  ReadyRows(absl::Span<const uint64_t> roots, const DraftForest& forest) {
    std::vector<uint64_t> hashes(roots.begin(), roots.end());
    for (int i = 0; i < forest.size(); ++i) {
      const int parent =
          forest.parent[i] < 0 ? -1 - forest.parent[i] : forest.num_roots + forest.parent[i];
      hashes.push_back(ExtendHash(hashes[parent], forest.token[i]));
    }
    for (uint64_t hash : hashes) rows_.push_back(Logits(hash, /*draft=*/false));
  }
  absl::Span<const float> Logits(int row) override {
    ++read;
    return rows_[row];
  }
  int read = 0;

 private:
  static std::vector<float> Logits(uint64_t hash, bool draft) {
    return coppice::Logits(hash, draft);
  }
  std::vector<std::vector<float>> rows_;
};

// CPU time of this thread: what else runs on the machine does not count.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Drafts one forest; returns it and the seconds that DraftRow and Grow took.
std::pair<DraftForest, double> Draft(const DecodingParams& params, const BeamDecoder& decoder) {
  const DraftState state = decoder.draft_state();
  std::unique_ptr<Drafter> drafter = MakeDrafter(params, state, kDraftWidth).value();
  std::vector<uint64_t> hashes = state.root_hash;
  double seconds = 0;
  for (int level = 0; level < kDepth && !drafter->frontier().empty(); ++level) {
    std::vector<std::vector<float>> logits;
    for (uint64_t hash : hashes) logits.push_back(Logits(hash, /*draft=*/true));
    const std::vector<int32_t> parents(drafter->frontier().begin(), drafter->frontier().end());
    const auto start = ThreadSeconds();
    std::vector<Distribution> rows;
    for (const auto& row : logits)
      rows.push_back(DraftRow(row, params, decoder.layers_committed() + level));
    drafter->Grow(rows);
    seconds += ThreadSeconds() - start;
    const DraftForest& forest = drafter->forest();
    std::vector<uint64_t> next;
    for (int32_t node : drafter->frontier()) {
      const size_t at =
          std::find(parents.begin(), parents.end(), forest.parent[node]) - parents.begin();
      next.push_back(ExtendHash(hashes[at], forest.token[node]));
    }
    hashes = std::move(next);
  }
  return {drafter->forest(), seconds};
}

DecodingParams Params(DecodingKind kind) {
  DecodingParams params;
  params.kind = kind;
  params.beam_width = kWidth;
  params.max_tokens = 200;
  params.seed = 7;
  params.stop_ids = {2};
  return params;
}

void Rounds(benchmark::State& state, DecodingParams params, bool time_draft) {
  double layers = 0, rows_read = 0, rounds = 0;
  std::unique_ptr<BeamDecoder> decoder;
  for (auto _ : state) {
    if (decoder == nullptr || decoder->finished()) {
      ++params.seed;
      decoder = MakeBeamDecoder(params).value();
    }
    const auto [forest, draft_seconds] = Draft(params, *decoder);
    ReadyRows rows(decoder->draft_state().root_hash, forest);
    const auto start = ThreadSeconds();
    const Verdict verdict = decoder->Advance(forest, &rows);
    const double seconds = ThreadSeconds() - start;
    state.SetIterationTime(time_draft ? draft_seconds : seconds);
    layers += verdict.stats.layers;
    rows_read += rows.read;
    rounds += 1;
  }
  state.counters["layers"] = layers / rounds;
  state.counters["rows"] = rows_read / rounds;
}

void PfGumbelVerdict(benchmark::State& state) {
  Rounds(state, Params(DecodingKind::kBeamSampling), false);
}
void PfGumbelDraft(benchmark::State& state) {
  Rounds(state, Params(DecodingKind::kBeamSampling), true);
}
void CertifiedVerdict(benchmark::State& state) {
  Rounds(state, Params(DecodingKind::kBeamSearch), false);
}
void CertifiedDraft(benchmark::State& state) {
  Rounds(state, Params(DecodingKind::kBeamSearch), true);
}
void HgWorVerdict(benchmark::State& state) {
  Rounds(state, Params(DecodingKind::kBeamSamplingWithoutReplacement), false);
}
void PfGumbelTopKVerdict(benchmark::State& state) {
  DecodingParams params = Params(DecodingKind::kBeamSampling);
  params.warp.top_k = 50;
  params.warp.top_p = 0.9;
  Rounds(state, params, false);
}
void PfGumbelTopPVerdict(benchmark::State& state) {
  DecodingParams params = Params(DecodingKind::kBeamSampling);
  params.warp.top_p = 0.9;
  Rounds(state, params, false);
}
DecodingParams DsbdParams() {
  DecodingParams params = Params(DecodingKind::kBeamSampling);
  params.method = "dsbd";
  return params;
}
void DsbdVerdict(benchmark::State& state) { Rounds(state, DsbdParams(), false); }
void DsbdDraft(benchmark::State& state) { Rounds(state, DsbdParams(), true); }
void DsbdTopKVerdict(benchmark::State& state) {
  DecodingParams params = DsbdParams();
  params.warp.top_k = 50;
  params.warp.top_p = 0.9;
  Rounds(state, params, false);
}
void DsbdDynamicWidthVerdict(benchmark::State& state) {
  DecodingParams params = DsbdParams();
  params.width_threshold = 0.7;
  Rounds(state, params, false);
}
BENCHMARK(DsbdVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(DsbdDraft)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(DsbdTopKVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(DsbdDynamicWidthVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(PfGumbelVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(PfGumbelDraft)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(PfGumbelTopKVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(PfGumbelTopPVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(CertifiedVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(CertifiedDraft)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(HgWorVerdict)->UseManualTime()->Unit(benchmark::kMicrosecond);

// The parts: one log-sum-exp and one noisy argmax over a row.
void LogSumExpOfRow(benchmark::State& state) {
  const std::vector<float> logits = Logits(1, false);
  std::vector<double> x(kVocab);
  std::vector<float> weights(kVocab);
  for (auto _ : state) {
    WidenRow(logits, x.data());
    benchmark::DoNotOptimize(ChunkedLogSumExp(x, weights.data()));
  }
}
void NoisyArgmaxOfRow(benchmark::State& state) {
  const std::vector<float> logits = Logits(1, false);
  std::vector<double> x(logits.begin(), logits.end());
  std::vector<float> weights(kVocab);
  const LogSum sum = ChunkedLogSumExp(x, weights.data());
  NoiseKey key{1, Domain::kToken, 1, 0};
  for (auto _ : state) {
    ++key.hash;
    benchmark::DoNotOptimize(ArgmaxWithNoise(x, weights.data(), sum, key));
  }
}
BENCHMARK(LogSumExpOfRow)->Unit(benchmark::kMicrosecond);
BENCHMARK(NoisyArgmaxOfRow)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace coppice
