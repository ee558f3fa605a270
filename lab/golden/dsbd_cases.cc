// One DSBD layer compared with exact distributions: docs/algorithms.md 5.1-5.3. All choices of
// production code are enumerated.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "decoding/joint/residual.h"
#include "decoding/layer/dsbd_layer.h"
#include "decoding/layer/dsbd_width.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/golden/runners.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

// The entries of the golden layer are the tokens of one beam.
struct GoldenLayer {
  sampling::Distribution p_row, q_row;
  decoding::LayerDistribution p, q;

  GoldenLayer(const std::vector<double>& p_mass, const std::vector<double>& q_mass)
      : p_row(RowOf(p_mass)), q_row(RowOf(q_mass)) {
    p.rows.resize(1);
    q.rows.resize(1);
    p.rows[0].sparse = &p_row;
    q.rows[0].sparse = &q_row;
  }
  GoldenLayer(const GoldenLayer&) = delete;
};

struct LayerDistributions {
  test::ExactDistribution outputs;
  test::ExactDistribution accepted;
};

LayerDistributions EnumerateLayer(const GoldenLayer& layer,
                                  const std::vector<decoding::Entry>& drafts,
                                  decoding::RemovedParents rule, int width) {
  LayerDistributions distributions;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const decoding::LayerResult result = decoding::VerifyDsbdLayer(
        {&layer.p, &layer.q, drafts, width}, rule, decoding::WidthRule(), choices);
    std::vector<uint64_t> outcome;
    uint64_t accepted = 0;
    for (const decoding::RuleOutput& output : result.outputs) {
      outcome.push_back(output.entry.token);
      accepted += output.draft >= 0;
    }
    distributions.outputs[outcome] += choices->probability();
    distributions.accepted[{accepted}] += choices->probability();
  });
  return distributions;
}

}  // namespace

void RunDsbdLayer(const Json& inputs, const Json& expected, CaseCheck* check) {
  const GoldenLayer layer(Vec(inputs.at("p_beam")), Vec(inputs.at("q_beam")));
  decoding::Residual a(layer.p, layer.q);
  const std::vector<double> alpha = decoding::AcceptanceByDraft(&a, inputs.at("m").get<int>());
  const std::vector<double> tail = decoding::AcceptedTail(alpha);
  check->NearAll("alpha_j", alpha, expected.at("alpha_j"));
  check->NearAll("P_m_k_row", decoding::AcceptedCountDistribution(alpha), expected.at("P_m_k_row"));
  check->NearAll("tail_P_at_least_K", tail, expected.at("tail_P_at_least_K"));
  for (const auto& [t, width] : expected.at("W_tilde_by_t").items()) {
    check->Equal(absl::StrCat("W_tilde at ", t), decoding::WidthForThreshold(tail, Fraction(t)),
                 width);
  }
  std::vector<decoding::Entry> drafts;
  for (const Json& d : inputs.at("drafts_in_sampling_order")) drafts.push_back({0, d.get<int>()});
  const LayerDistributions distributions =
      EnumerateLayer(layer, drafts, decoding::RemovedParents::kReject, inputs.at("W").get<int>());
  check->SameDistribution("distribution_of_outputs", distributions.outputs,
                          expected.at("distribution_of_outputs_given_drafts"));
  check->SameDistribution("distribution_of_number_accepted", distributions.accepted,
                          expected.at("distribution_of_number_accepted_given_drafts_capped_at_W"));
}

void RunDsbdSurvivors(const Json& inputs, const Json& expected, CaseCheck* check) {
  const std::vector<double> p = Vec(inputs.at("p_beam"));
  const std::vector<double> extended = Vec(inputs.at("q_beam_extended"));
  const Json& entry_of = inputs.at("entry_of_extended");
  std::vector<double> q(p.size(), 0.0);
  for (size_t x = 0; x < extended.size(); ++x) {
    if (!entry_of.at(x).is_null()) q[entry_of.at(x).get<int>()] += extended[x];
  }
  const GoldenLayer layer(p, q);
  std::vector<decoding::Entry> drafts;
  for (const Json& d : inputs.at("drafts_in_sampling_order")) {
    const Json& entry = entry_of.at(d.get<int>());
    drafts.push_back(entry.is_null() ? decoding::Entry{1, 0}
                                     : decoding::Entry{0, entry.get<int>()});
  }
  for (const auto& [name, rule] : {std::pair("mode_N", decoding::RemovedParents::kRenormalise),
                                   std::pair("mode_E", decoding::RemovedParents::kReject)}) {
    const LayerDistributions distributions =
        EnumerateLayer(layer, drafts, rule, inputs.at("W").get<int>());
    const Json& want = expected.at(name);
    check->SameDistribution(absl::StrCat(name, " outputs"), distributions.outputs,
                            want.at("distribution_of_outputs_given_drafts"));
    check->SameDistribution(absl::StrCat(name, " accepted"), distributions.accepted,
                            want.at("distribution_of_number_accepted"));
  }
}

void RunDsbdWidth(const Json& inputs, const Json& expected, CaseCheck* check) {
  const GoldenLayer layer(Vec(inputs.at("p_beam")), Vec(inputs.at("q_beam")));
  const int m = inputs.at("m").get<int>();
  decoding::Residual a(layer.p, layer.q);
  const std::vector<double> alpha = decoding::AcceptanceByDraft(&a, m);
  const std::vector<double> tail = decoding::AcceptedTail(alpha);
  check->NearAll("alpha_j", alpha, expected.at("alpha_j"));
  check->NearAll("tail_P_at_least_K", tail, expected.at("tail_P_at_least_K"));
  decoding::WidthRule rule;
  rule.minimum = inputs.at("W_min").get<int>();
  rule.maximum = inputs.value("W_max", std::max(m, rule.minimum));
  const std::vector<decoding::Entry> drafts(m, decoding::Entry{0, layer.q_row.tokens[0]});
  for (const Json& want : expected.at("widths")) {
    const std::string t = want.at("t").get<std::string>();
    rule.threshold = Fraction(t);
    check->Equal(absl::StrCat("W_tilde at ", t), decoding::WidthForThreshold(tail, rule.threshold),
                 want.at("W_tilde"));
    test::ScriptedChoices choices;
    const decoding::LayerResult result =
        decoding::VerifyDsbdLayer({&layer.p, &layer.q, drafts, /*width=*/1},
                                  decoding::RemovedParents::kReject, rule, &choices);
    check->Equal(absl::StrCat("W_used at ", t), result.outputs.size(), want.at("W_used"));
  }
}

}  // namespace coppice::golden
