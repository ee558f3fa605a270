// One layer verified with reuse, compared with exact distributions: docs/algorithms.md 5.5. All
// choices of production code are enumerated. Drafts are fixed or drawn.
#include "absl/strings/str_cat.h"
#include "decoding/layer/dsbd_wor_layer.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/golden/runners.h"

namespace coppice::golden {
namespace {

// The entries are the tokens of one beam; draft entries without an entry of p are the tokens of a
// second draft beam, whose parent was removed.
class ReuseLayer {
 public:
  ReuseLayer(const Json& inputs, const std::vector<double>& extended, const Json& entry_of)
      : p_row_(RowOf(Vec(inputs.at("p")))),
        width_(inputs.at("W").get<int>()),
        distinct_(inputs.at("target") == "wor") {
    std::vector<double> current(Vec(inputs.at("p")).size(), 0.0);
    std::vector<double> removed(extended.size(), 0.0);
    for (size_t x = 0; x < extended.size(); ++x) {
      if (entry_of.at(x).is_null()) {
        removed[x] = extended[x];
        entries_.push_back({1, static_cast<TokenId>(x)});
      } else {
        current[entry_of.at(x).get<int>()] = extended[x];
        entries_.push_back({0, entry_of.at(x).get<TokenId>()});
      }
    }
    q_rows_ = {RowOf(current), RowOf(removed)};
    p_.rows.resize(1);
    p_.rows[0].sparse = &p_row_;
    q_.rows.resize(2);
    for (int row = 0; row < 2; ++row) q_.rows[row].sparse = &q_rows_[row];
    for (const Json& d : inputs.at("drafts_in_sampling_order"))
      drafts_.push_back(entries_[d.get<int>()]);
  }
  ReuseLayer(const ReuseLayer&) = delete;

  test::ExactDistribution OutputDistribution(decoding::RemovedParents rule) const {
    test::ExactDistribution distribution;
    test::EnumerateChoices([&](test::ScriptedChoices* choices) {
      std::vector<uint64_t> outcome;
      for (const decoding::RuleOutput& output : Verify(drafts_, rule, choices).outputs)
        outcome.push_back(output.entry.token);
      distribution[outcome] += choices->probability();
    });
    return distribution;
  }
  double Coverage(decoding::RemovedParents rule) const {
    double covered = 0;
    test::EnumerateChoices([&](test::ScriptedChoices* choices) {
      const std::vector<decoding::Entry> drafts = choices->ChooseDistinct(
          sampling::Domain::kDraft, 0, q_, static_cast<int>(drafts_.size()));
      const bool full = Verify(drafts, rule, choices).full;
      covered += full ? choices->probability() : 0.0;
    });
    return covered;
  }

 private:
  decoding::LayerResult Verify(const std::vector<decoding::Entry>& drafts,
                               decoding::RemovedParents rule,
                               decoding::ChoiceSource* choices) const {
    const decoding::LayerInput input{&p_, &q_, drafts, width_};
    return distinct_ ? decoding::VerifyDistinctWithReuse(input, rule, /*stop_ids=*/{}, choices)
                     : decoding::VerifyWithReuse(input, rule, choices);
  }

  sampling::Distribution p_row_;
  std::vector<sampling::Distribution> q_rows_;
  decoding::LayerDistribution p_, q_;
  std::vector<decoding::Entry> entries_;  // [extended]
  std::vector<decoding::Entry> drafts_;
  int width_;
  bool distinct_;
};

void CheckMode(const std::string& name, const ReuseLayer& layer, decoding::RemovedParents rule,
               const Json& want, CaseCheck* check) {
  check->SameDistribution(name + "outputs", layer.OutputDistribution(rule),
                          want.at("distribution_of_outputs_given_drafts"));
  check->Near(name + "coverage", layer.Coverage(rule),
              want.at("coverage_over_random_drafts").at("f64").get<double>());
}

}  // namespace

void RunDsbdWorLayer(const Json& inputs, const Json& expected, CaseCheck* check) {
  if (inputs.contains("q_extended")) {
    const ReuseLayer layer(inputs, Vec(inputs.at("q_extended")), inputs.at("entry_of_extended"));
    CheckMode("mode_N ", layer, decoding::RemovedParents::kRenormalise, expected.at("mode_N"),
              check);
    CheckMode("mode_E ", layer, decoding::RemovedParents::kReject, expected.at("mode_E"), check);
    return;
  }
  const std::vector<double> q = Vec(inputs.at("q"));
  Json entry_of = Json::array();
  for (size_t x = 0; x < q.size(); ++x) entry_of.push_back(x);
  CheckMode("", ReuseLayer(inputs, q, entry_of), decoding::RemovedParents::kReject, expected,
            check);
}

}  // namespace coppice::golden
