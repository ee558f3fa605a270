// What one layer of a wide search costs beside the model: BeamDecoder::Advance over W roots, no
// drafts, one thread, rows of 32,768 f32 logits that are there before the clock starts. By method,
// by W, and without a format or with one that allows 16 tokens after each path and ends it after
// four, as a catalogue does.
//   bench_decoding --benchmark_filter=Layer
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/beam_decoder.h"
#include "decoding/method.h"
#include "lab/bench/decoding/thread_seconds.h"
#include "sampling/rng.h"

namespace coppice::bench::wide {
namespace {

constexpr int kVocab = 32768;
constexpr int kLayers = 4;     // of a hypothesis
constexpr int kChildren = 16;  // tokens that the format allows
constexpr int kStates = 4096;

// Gaussian logits (sd 3): each row is a window of one long table.
absl::Span<const float> RowOf(uint64_t hash) {
  constexpr size_t kOffsets = size_t{1} << 20;
  static const auto* table = [] {
    std::mt19937 bits(1);
    std::normal_distribution<float> normal(0, 3);
    auto* out = new std::vector<float>(kOffsets + kVocab);
    for (float& logit : *out) logit = normal(bits);
    return out;
  }();
  return absl::MakeConstSpan(table->data() + sampling::Finalize(hash) % kOffsets, kVocab);
}

class RootRows : public sampling::RowSource {
 public:
  explicit RootRows(std::vector<uint64_t> hashes) : hashes_(std::move(hashes)) {}
  absl::Span<const float> Logits(int row) override {
    ++read;
    return RowOf(hashes_[row]);
  }
  int read = 0;

 private:
  const std::vector<uint64_t> hashes_;
};

// kChildren tokens after each of kStates states, of which there are so many for each length. Paths
// of kLayers tokens are complete.
class FewChildren : public OutputFormat {
 public:
  FewChildren() {
    for (uint64_t state = 0; state < kStates; ++state) {
      auto allowed = std::make_shared<AllowedTokens>();
      for (uint64_t i = 0; i < kChildren; ++i) {
        const uint64_t bits = sampling::Finalize(state * kChildren + i + 1);
        allowed->listed.push_back(
            static_cast<TokenId>(i * (kVocab / kChildren) + bits % (kVocab / kChildren)));
      }
      allowed->count = kChildren;
      allowed->bits.resize(kVocab / 64);
      for (const TokenId token : allowed->listed)
        allowed->bits[token / 64] |= uint64_t{1} << (token % 64);
      allowed_.push_back(std::move(allowed));
    }
  }
  State Start() const override { return 0; }
  State Next(State state, TokenId token) const override {
    const uint64_t place = sampling::Finalize(static_cast<uint64_t>(state) * kVocab + token + 1);
    return (state / kStates + 1) * kStates + static_cast<State>(place % kStates);
  }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    return allowed_[state % kStates];
  }
  bool CutShort(State) const override { return false; }
  bool Complete(State state) const override { return state / kStates == kLayers; }
  bool has_complete_states() const override { return true; }

 private:
  std::vector<std::shared_ptr<const AllowedTokens>> allowed_;
};

// An iteration is a layer from W beams. The layers before there are W beams are not timed.
void Layers(benchmark::State& state, decoding::DecodingParams params) {
  std::unique_ptr<decoding::BeamDecoder> decoder;
  double rows = 0, roots = 0;
  const size_t full = params.kind == sampling::DecodingKind::kBeamSampling
                          ? 1
                          : static_cast<size_t>(params.beam_width);
  for (auto _ : state) {
    while (true) {
      if (decoder == nullptr || decoder->finished()) {
        ++params.seed;
        decoder = decoding::MakeBeamDecoder(params).value();
      }
      const int count = static_cast<int>(decoder->roots().size());
      // Beam searches of one model and no noise differ by their prompts.
      std::vector<uint64_t> hashes = decoder->draft_state().root_hash;
      for (uint64_t& hash : hashes) hash ^= params.seed << 20;
      RootRows source(std::move(hashes));
      const bool timed = decoder->layers_committed() > 1 && decoder->roots().size() >= full;
      const double start = ThreadSeconds();
      decoder->Advance(decoding::DraftForest::Empty(count), &source);
      if (!timed) continue;
      state.SetIterationTime(ThreadSeconds() - start);
      rows += source.read;
      roots += count;
      break;
    }
  }
  const auto layers = static_cast<double>(state.iterations());
  state.counters["roots"] = roots / layers;
  state.counters["rows"] = rows / layers;
}

const bool registered = [] {
  struct Method {
    const char* name;
    sampling::DecodingKind kind;
  };
  for (const Method& method :
       {Method{"speculative_beam_search", sampling::DecodingKind::kBeamSearch},
        Method{"gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement},
        Method{"gumbel_coupling", sampling::DecodingKind::kBeamSampling}}) {
    for (const bool few : {false, true}) {
      for (const int width : {64, 128, 256, 512, 1024}) {
        decoding::DecodingParams params;
        params.kind = method.kind;
        params.method = decoding::FindMethod(method.name);
        params.beam_width = params.num_hypotheses = width;
        params.max_tokens = kLayers;
        params.stop_when_full = false;
        if (few) params.format = std::make_shared<FewChildren>();
        benchmark::RegisterBenchmark(
            absl::StrCat("Layer/", method.name, few ? "/few/" : "/all/", width).c_str(), Layers,
            params)
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace coppice::bench::wide
