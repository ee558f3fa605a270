// Whole decodes that depend only on seed and target: Gumbel coupling, Gumbel top-k, beam search,
// plain and speculative, with and without an end of sequence. docs/algorithms.md 3.5, 5.7-5.9, 8.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/drafter.h"
#include "decoding/seeded/search.h"
#include "lab/golden/runners.h"

namespace coppice::golden {
namespace {

decoding::DecodingParams ReadParams(const Json& inputs, sampling::DecodingKind kind) {
  decoding::DecodingParams params;
  params.kind = kind;
  if (const Json& width = inputs.at("W"); width.is_array()) {
    params.width_schedule = width.get<std::vector<int>>();
    params.beam_width =
        *std::max_element(params.width_schedule.begin(), params.width_schedule.end());
  } else {
    params.beam_width = width.get<int>();
  }
  params.num_hypotheses = inputs.value("n", params.beam_width);
  params.max_tokens =
      inputs.contains("layers") ? inputs.at("layers").get<int>() : inputs.at("max_len").get<int>();
  if (inputs.contains("seed_hex")) params.seed = Hex(inputs.at("seed_hex").get<std::string>());
  if (inputs.contains("eos")) {
    params.stop_ids = {inputs.at("eos").get<TokenId>()};
    params.length_penalty = inputs.at("length_alpha").get<double>();
    params.stop_when_full = inputs.at("policy") == "FIRST";
    params.refill = inputs.value("refill", true);
  }
  params.sampling = ReadSampling(inputs);
  params.num_beam_groups = inputs.value("num_beam_groups", 1);
  params.diversity_penalty = inputs.value("diversity_penalty", 0.0);
  params.min_score = inputs.value("min_score", params.min_score);
  params.sampling.no_repeat_ngram_size = inputs.value("no_repeat_ngram_size", 0);
  decoding::SetPrompt(inputs.value("prompt", std::vector<TokenId>()), &params);
  return params;
}

struct Decode {
  std::unique_ptr<decoding::BeamDecoder> decoder;
  std::vector<int> layers_per_iteration;
};

// Grows the draft of one round from the draft rows of the test model. The drafts of the files know
// nothing of the target's rows.
decoding::DraftForest Draft(const test::HashLm& lm, const decoding::DecodingParams& params,
                            decoding::DraftState state, int width, int depth) {
  state.known_roots.clear();
  state.known_children.clear();
  const std::unique_ptr<decoding::Drafter> drafter =
      decoding::MakeSearchDrafter(params, state, width, /*look_ahead=*/false);
  for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = test::RowHashes(state.root_hash, drafter->forest());
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : drafter->frontier()) {
      rows.push_back(
          test::DenseDistribution(lm.DraftLogProbs(hashes[drafter->forest().RowOf(place)])));
    }
    drafter->Grow(rows);
  }
  return drafter->Sent();
}

// width 0: no drafts.
using AfterRound = std::function<void(const decoding::BeamDecoder&)>;
Decode Run(const test::HashLm& lm, const decoding::DecodingParams& params,
           std::unique_ptr<decoding::BeamDecoder> decoder, int width, int depth,
           const AfterRound& after_round) {
  Decode decode{std::move(decoder), {}};
  while (!decode.decoder->finished()) {
    const decoding::DraftState state = decode.decoder->draft_state();
    const int useful = std::min(depth, decode.decoder->max_useful_depth());
    const decoding::DraftForest forest =
        width == 0 || useful == 0
            ? decoding::DraftForest::Empty(static_cast<int>(state.root_hash.size()))
            : Draft(lm, params, state, width, useful);
    test::HashLmRows rows(lm, state.root_hash, forest);
    const decoding::Verdict verdict = decode.decoder->Advance(forest, &rows);
    decode.layers_per_iteration.push_back(verdict.stats.layers);
    if (after_round) after_round(*decode.decoder);
  }
  return decode;
}

// If the parameters are refused, fails the case and returns null.
std::unique_ptr<decoding::BeamDecoder> Make(const decoding::DecodingParams& params,
                                            CaseCheck* check) {
  absl::StatusOr<std::unique_ptr<decoding::BeamDecoder>> decoder =
      decoding::MakeBeamDecoder(params);
  check->True(decoder.status().message(), decoder.ok());
  return decoder.ok() ? *std::move(decoder) : nullptr;
}

// gumbel_coupling, gumbel_top_k: the layers shown.
void RunShownLayers(const Json& inputs, const Json& expected, sampling::DecodingKind kind,
                    CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const decoding::DecodingParams params = ReadParams(inputs, kind);
  std::unique_ptr<decoding::BeamDecoder> decoder = Make(params, check);
  if (decoder == nullptr) return;
  const std::vector<int> shown = expected.at("layers_shown").get<std::vector<int>>();
  size_t next = 0;
  Run(lm, params, std::move(decoder), 0, 0, [&](const decoding::BeamDecoder& decoder) {
    if (next == shown.size() || decoder.layers_committed() != shown[next]) return;
    CheckBeams(absl::StrCat("layer ", shown[next]), decoder.paths(), decoder.last_layer(),
               expected.at("layers").at(next), check);
    ++next;
  });
  check->Equal("layers shown", next, shown.size());
}

// spec_beam_search, gumbel_top_k_spec: the same beams plain, speculative and certified, and L.
void RunSpeculative(const Json& inputs, const Json& expected, sampling::DecodingKind kind,
                    CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const decoding::DecodingParams params = ReadParams(inputs, kind);
  std::unique_ptr<decoding::BeamDecoder> plain = Make(params, check);
  if (plain == nullptr) return;
  Run(lm, params, std::move(plain), 0, 0, [&](const decoding::BeamDecoder& decoder) {
    if (decoder.layers_committed() == 2) {
      CheckBeams("layer2", decoder.paths(), decoder.last_layer(), expected.at("layer2"), check);
    } else if (decoder.finished()) {
      CheckBeams("final", decoder.paths(), decoder.last_layer(), expected.at("final"), check);
    }
  });
  const int width = inputs.at("W_S").get<int>();
  const int depth = inputs.at("gamma").get<int>();
  for (const auto& [name, certified] : {std::pair("plain", false), std::pair("certified", true)}) {
    const Decode decode =
        Run(lm, params, decoding::MakeSearchDecoder(params, certified), width, depth, nullptr);
    CheckBeams(absl::StrCat(name, " final"), decode.decoder->paths(), decode.decoder->last_layer(),
               expected.at("final"), check);
    check->Equal(absl::StrCat("layers_per_iteration_", name), decode.layers_per_iteration,
                 expected.at(absl::StrCat("layers_per_iteration_", name)));
  }
}

void CheckHypotheses(absl::string_view what, const std::vector<decoding::Hypothesis>& pool,
                     const Json& want, CaseCheck* check) {
  check->Equal(absl::StrCat(what, " pool size"), pool.size(), want.size());
  for (size_t i = 0; i < pool.size() && i < want.size(); ++i) {
    const std::string name = absl::StrCat(what, " pool[", i, "].");
    check->Equal(name + "path", pool[i].tokens, want[i].at("path"));
    check->Near(name + "logscore", pool[i].joint_log_probability,
                want[i].at("logscore").get<double>());
    check->Near(name + "normalised", pool[i].score, want[i].at("normalised").get<double>());
    check->Equal(name + "finished", pool[i].finished, want[i].at("finished"));
  }
}

void CheckPool(absl::string_view what, const decoding::BeamDecoder& decoder, const Json& expected,
               CaseCheck* check) {
  check->Equal(absl::StrCat(what, " layers_done"), decoder.layers_committed(),
               expected.at("layers_done"));
  const std::vector<decoding::Hypothesis> pool = decoder.Result();
  CheckHypotheses(what, pool, expected.at("pool"), check);
  if (!pool.empty()) {
    check->Equal(absl::StrCat(what, " best_path"), pool[0].tokens, expected.at("best_path"));
  }
}

sampling::DecodingKind ReadKind(const Json& inputs) {
  const std::string kind = inputs.at("kind").get<std::string>();
  if (kind == "pf") return sampling::DecodingKind::kBeamSampling;
  if (kind == "hg") return sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  return sampling::DecodingKind::kBeamSearch;
}

}  // namespace

void RunGumbelCoupling(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunShownLayers(inputs, expected, sampling::DecodingKind::kBeamSampling, check);
}

void RunGumbelTopK(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunShownLayers(inputs, expected, sampling::DecodingKind::kBeamSamplingWithoutReplacement, check);
}

void RunSpecSearch(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunSpeculative(inputs, expected, sampling::DecodingKind::kBeamSearch, check);
}

void RunGumbelTopKSpec(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunSpeculative(inputs, expected, sampling::DecodingKind::kBeamSamplingWithoutReplacement, check);
}

void RunEosDecode(const Json& inputs, const Json& expected, CaseCheck* check) {
  const decoding::DecodingParams params = ReadParams(inputs, ReadKind(inputs));
  std::unique_ptr<decoding::BeamDecoder> decoder = Make(params, check);
  if (decoder == nullptr) return;
  const Decode decode = Run(ReadHashLm(inputs), params, std::move(decoder), 0, 0, nullptr);
  CheckPool("decode", *decode.decoder, expected, check);
}

void RunSearchOptions(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const decoding::DecodingParams params = ReadParams(inputs, sampling::DecodingKind::kBeamSearch);
  std::unique_ptr<decoding::BeamDecoder> decoder = Make(params, check);
  if (decoder == nullptr) return;
  const Decode decode = Run(lm, params, std::move(decoder), 0, 0, nullptr);
  check->Equal("layers_done", decode.decoder->layers_committed(), expected.at("layers_done"));
  CheckHypotheses("", decode.decoder->Result(), expected.at("pool"), check);
}

void RunEosCertificate(const Json& inputs, const Json& expected, CaseCheck* check) {
  const decoding::DecodingParams params = ReadParams(inputs, ReadKind(inputs));
  if (Make(params, check) == nullptr) return;
  for (const auto& [name, certified] : {std::pair("plain", false), std::pair("certified", true)}) {
    const Decode decode =
        Run(ReadHashLm(inputs), params, decoding::MakeSearchDecoder(params, certified),
            inputs.at("W_S").get<int>(), inputs.at("gamma").get<int>(), nullptr);
    CheckPool(name, *decode.decoder, expected, check);
    check->Equal(absl::StrCat("layers_per_iteration_", name), decode.layers_per_iteration,
                 expected.at(absl::StrCat("layers_per_iteration_", name)));
  }
}

}  // namespace coppice::golden
