// The lossy methods, with the production drafter and decoder: docs/algorithms.md 6.1-6.3.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/lossy/bild.h"
#include "decoding/lossy/mjgd.h"
#include "decoding/lossy/mjsd.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/forwarded_choices.h"
#include "lab/exact/function_rows.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

// `rows_by_prefix` of 12.1: log of field "p" or "q" by path hash.
test::LogProbsOf TableModel(const Json& rows_by_prefix, const char* field) {
  std::map<uint64_t, std::vector<double>> rows;
  for (const auto& [prefix, row] : rows_by_prefix.items()) {
    const Json path = Json::parse(absl::StrCat("[", prefix, "]"));
    std::vector<double>& log_probs = rows[sampling::HashPath(Path(path))];
    for (double probability : Vec(row.at(field))) log_probs.push_back(sampling::Log(probability));
  }
  return [rows = std::move(rows)](uint64_t hash) { return rows.at(hash); };
}

decoding::DraftForest DraftPath(decoding::Drafter* drafter, const decoding::DraftState& state,
                                const test::LogProbsOf& draft, int depth) {
  for (int level = 0; level < depth && !drafter->frontier().empty(); ++level) {
    const std::vector<uint64_t> hashes = test::RowHashes(state.root_hash, drafter->forest());
    std::vector<sampling::Distribution> rows;
    for (const TreePlace place : drafter->frontier()) {
      rows.push_back(test::DenseDistribution(draft(hashes[drafter->forest().RowOf(place)])));
    }
    drafter->Grow(rows);
  }
  return drafter->Sent();
}

void CheckMjsd(const Json& inputs, const Json& expected, CaseCheck* check) {
  const int gamma = inputs.at("gamma").get<int>();
  decoding::DecodingParams params;
  params.mjsd_threshold = Fraction(inputs.at("tau").get<std::string>());
  params.draft_beams = inputs.at("draft_num_beams").get<int>();
  params.max_tokens = gamma + 2;
  const test::LogProbsOf target = TableModel(inputs.at("rows_by_prefix"), "p");
  const test::LogProbsOf draft = TableModel(inputs.at("rows_by_prefix"), "q");
  const std::vector<double> p_joint = Vec(expected.at("p_joint_prefix"));
  const std::vector<double> next = Vec(expected.at("next_token_distribution"));
  const size_t eta = expected.at("eta").get<size_t>();

  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* script) {
    const auto decoder =
        decoding::MakeMjsdDecoder(params, std::make_shared<test::ForwardedChoices>(script));
    const decoding::DraftState state = decoder->draft_state();
    const decoding::DraftForest forest =
        DraftPath(decoding::MakeMjsdDrafter(params, state, 1).get(), state, draft, gamma);
    check->Equal("draft", forest.token, expected.at("draft"));
    std::vector<double> q_joint;
    for (int i = 0; i < forest.size(); ++i) {
      const sampling::Distribution& q = forest.proposals[i].row;
      q_joint.push_back((i > 0 ? q_joint[i - 1] : 1) *
                        sampling::Exp(q.log_probs[decoding::FindToken(q, forest.token[i])]));
    }
    check->NearAll("q_joint_prefix", q_joint, expected.at("q_joint_prefix"));
    test::FunctionRows rows(target, state.root_hash, forest);
    check->Equal("eta", decoder->Advance(forest, &rows).stats.layers - 1, eta);
    const decoding::LayerOutput& output = decoder->last_layer()[0];
    const TokenId token = decoder->paths().token(output.path);
    check->Near("p of what is kept", sampling::Exp(output.log_score),
                (eta > 0 ? p_joint[eta - 1] : 1) * next[token]);
    distribution[{static_cast<uint64_t>(token)}] += script->probability();
  });
  std::vector<double> masses(next.size(), 0.0);
  for (const auto& [outcome, mass] : distribution) masses[outcome[0]] = mass;
  check->NearAll("next_token_distribution", masses, expected.at("next_token_distribution"));
}

void CheckMjgd(const Json& inputs, const Json& expected, CaseCheck* check) {
  const int gamma = inputs.at("gamma").get<int>();
  decoding::DecodingParams params;
  params.joint_tokens = gamma;
  params.max_tokens = gamma;
  params.draft_beams = 1;  // V^gamma: every path is kept
  for (int i = 0; i < gamma; ++i) params.draft_beams *= inputs.at("V").get<int>();
  const test::LogProbsOf target = TableModel(inputs.at("rows_by_prefix"), "p");
  const auto decoder = decoding::MakeMjgdDecoder(params);
  while (!decoder->finished()) {
    const decoding::DraftState state = decoder->draft_state();
    const decoding::DraftForest forest =
        decoding::DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    test::FunctionRows rows(target, state.root_hash, forest);
    decoder->Advance(forest, &rows);
  }
  const decoding::Hypothesis best = decoder->Result()[0];
  check->Equal("mjgd_argmax", best.tokens, expected.at("mjgd_argmax"));
  check->Near("mjgd_likelihood", sampling::Exp(best.joint_log_probability),
              expected.at("mjgd_likelihood").at("f64").get<double>());
}

}  // namespace

void RunMjsdMjgd(const Json& inputs, const Json& expected, CaseCheck* check) {
  CheckMjsd(inputs, expected, check);
  CheckMjgd(inputs, expected, check);
}

void RunBild(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const int gamma = inputs.at("max_draft").get<int>();
  const int min_tokens = inputs.at("min_tokens").get<int>();
  decoding::DecodingParams params;
  params.sampling.temperature = 0;
  params.max_tokens = min_tokens + gamma + 1;  // never reached
  params.fallback_threshold = inputs.at("tau1_fallback").get<double>();
  params.rollback_threshold = inputs.at("tau2_rollback_nats").get<double>();
  const auto decoder = decoding::MakeBildDecoder(params);
  Json trace = Json::array();
  while (decoder->layers_committed() < min_tokens) {
    const decoding::DraftState state = decoder->draft_state();
    const auto draft = [&lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
    const decoding::DraftForest forest =
        DraftPath(decoding::MakeBildDrafter(params, state, 1).get(), state, draft, gamma);
    test::HashLmRows rows(lm, state.root_hash, forest);
    const int emitted = decoder->Advance(forest, &rows).stats.layers;
    const bool rolled_back = emitted <= forest.size();
    trace.push_back({{"drafted", forest.size()},
                     {"rollback_at", rolled_back ? Json(emitted - 1) : Json()},
                     {"emitted", emitted}});
  }
  check->Equal("trace", trace, expected.at("trace"));
  check->Equal("target_calls", trace.size(), expected.at("target_calls"));
  check->Equal("path", decoder->paths().Tokens(decoder->last_layer()[0].path), expected.at("path"));
}

}  // namespace coppice::golden
