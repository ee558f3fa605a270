// Verification of one node: docs/algorithms.md 4.2-4.5 and 4.8. Distributions come from enumerating
// every choice of the production rules. To see what a rule does after rejections, the test rejects.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "decoding/tree/child_sampling.h"
#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "decoding/tree/luce_ot.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/golden/runners.h"
#include "lab/theory/acceptance.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

struct GoldenNode {
  sampling::Distribution p_row, q_row;
  decoding::LayerDistribution p;
  int vocab;

  GoldenNode(const std::vector<double>& p_mass, const std::vector<double>& q_mass)
      : p_row(RowOf(p_mass)), q_row(RowOf(q_mass)), vocab(static_cast<int>(p_mass.size())) {
    p.rows.resize(1);
    p.rows[0].sparse = &p_row;
  }
  GoldenNode(const GoldenNode&) = delete;
};

std::vector<double> Dense(const decoding::LayerDistribution& distribution, int vocab) {
  std::vector<double> dense(vocab, 0.0);
  for (const decoding::EntryMass& entry : decoding::ListEntries(distribution))
    dense[entry.entry.token] = sampling::Exp(entry.log_mass);
  return dense;
}

// Rejects every draft that can be rejected, and records the coins and the last draw.
class Rejecting : public test::ScriptedChoices {
 public:
  explicit Rejecting(int vocab) : vocab_(vocab) {}
  decoding::Coin Accept(uint64_t, uint32_t, double a, double b) override {
    accept_prob.push_back(a >= b ? 1.0 : a / b);
    proposal.push_back(b);
    return {false, std::numeric_limits<double>::infinity()};
  }
  decoding::Draw Choose(sampling::Domain domain, uint32_t slot,
                        const decoding::LayerDistribution& distribution) override {
    rest = Dense(distribution, vocab_);
    return test::ScriptedChoices::Choose(domain, slot, distribution);
  }
  std::vector<double> accept_prob, proposal, rest;

 private:
  int vocab_;
};

Rejecting RejectAll(decoding::NodeRule rule, const GoldenNode& node,
                    absl::Span<const TokenId> drafts) {
  Rejecting choices(node.vocab);
  rule({&node.p, &node.q_row, drafts}, &choices);
  return choices;
}

test::ExactDistribution DistributionGivenDrafts(decoding::NodeRule rule, const GoldenNode& node,
                                                const std::vector<TokenId>& drafts) {
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const decoding::NodeVerdict verdict = rule({&node.p, &node.q_row, drafts}, choices);
    distribution[{static_cast<uint64_t>(verdict.token)}] += choices->probability();
  });
  return distribution;
}

// With random drafts: P(the output is one of them), and the distribution of the output, which must
// be p.
double AcceptanceOverDrafts(decoding::NodeRule rule, decoding::ChildSampling distribution,
                            const GoldenNode& node, int n, CaseCheck* check) {
  double accepted = 0;
  std::vector<double> output(node.vocab, 0.0);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const std::vector<TokenId> drafts =
        decoding::DrawChildren(distribution, node.q_row, /*hash=*/0, n, choices);
    const decoding::NodeVerdict verdict = rule({&node.p, &node.q_row, drafts}, choices);
    output[verdict.token] += choices->probability();
    if (verdict.draft >= 0) accepted += choices->probability();
  });
  const std::vector<double> p = Dense(node.p, node.vocab);
  for (int v = 0; v < node.vocab; ++v)
    check->Near("distribution over random drafts", output[v], p[v]);
  return accepted;
}

void NearEach(absl::string_view what, const std::vector<double>& got,
              const std::vector<double>& want, double tolerance, CaseCheck* check) {
  check->Equal(absl::StrCat(what, ": entries"), got.size(), want.size());
  for (size_t i = 0; i < got.size() && i < want.size(); ++i)
    check->Near(absl::StrCat(what, "[", i, "]"), got[i], want[i], tolerance);
}

void RunRrs(decoding::NodeRule rule, decoding::ChildSampling distribution, const Json& inputs,
            const Json& expected, CaseCheck* check) {
  const GoldenNode node(Vec(inputs.at("p")), Vec(inputs.at("q")));
  const std::vector<TokenId> drafts = Path(inputs.at("drafts"));
  check->Equal("chain", drafts.size(), expected.at("chain").size());
  for (size_t j = 0; j < drafts.size() && j < expected.at("chain").size(); ++j) {
    const Json& want = expected.at("chain").at(j);
    const std::string name = absl::StrCat("chain[", j, "]");
    const Rejecting rejected = RejectAll(rule, node, absl::MakeConstSpan(drafts).subspan(0, j + 1));
    check->Near(name + ".accept_prob", rejected.accept_prob.at(j),
                want.at("accept_prob").at("f64").get<double>());
    check->Near(name + ".q_used", rejected.proposal.at(j), Vec(want.at("q_used")).at(drafts[j]));
    if (!want.at("target_after_reject").is_null())
      check->NearAll(name + ".target_after_reject", rejected.rest, want.at("target_after_reject"));
  }
  check->SameDistribution("distribution_of_output", DistributionGivenDrafts(rule, node, drafts),
                          expected.at("distribution_of_output_given_drafts"));
  const int n = inputs.value("n", static_cast<int>(drafts.size()));
  check->Near("acceptance_rate", AcceptanceOverDrafts(rule, distribution, node, n, check),
              expected.at("acceptance_rate_over_random_drafts").at("f64").get<double>());
}

}  // namespace

void RunRrsIid(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunRrs(decoding::VerifyRrsIid, decoding::ChildSampling::kIid, inputs, expected, check);
}

void RunRrsWithoutReplacement(const Json& inputs, const Json& expected, CaseCheck* check) {
  RunRrs(decoding::VerifyRrsWithoutReplacement, decoding::ChildSampling::kWithoutReplacement,
         inputs, expected, check);
}

void RunKSeq(const Json& inputs, const Json& expected, CaseCheck* check) {
  constexpr double kSeqTolerance = 1e-9;
  const GoldenNode node(Vec(inputs.at("p")), Vec(inputs.at("q")));
  const std::vector<TokenId> drafts = Path(inputs.at("drafts"));
  const int n = inputs.at("n").get<int>();
  const decoding::KSeqAcceptance k_seq =
      decoding::AcceptanceKSeq(Vec(inputs.at("p")), Vec(inputs.at("q")), n);
  check->Near(
      "acceptance",
      AcceptanceOverDrafts(decoding::VerifyKSeq, decoding::ChildSampling::kIid, node, n, check),
      k_seq.acceptance, kSeqTolerance);
  check->Near("acceptance", k_seq.acceptance, expected.at("acceptance").get<double>(),
              kSeqTolerance);
  // When almost no mass is left, rho is ill-conditioned; then only the distributions above are
  // compared.
  if (1 - k_seq.acceptance < kSeqTolerance) return;
  check->Near("rho", decoding::KSeqRho(node.p, node.q_row, n), expected.at("rho").get<double>(),
              kSeqTolerance);
  check->Near("beta", k_seq.beta, expected.at("beta").get<double>(), kSeqTolerance);
  NearEach("residual", RejectAll(decoding::VerifyKSeq, node, drafts).rest,
           Vec(expected.at("residual")), kSeqTolerance, check);
  std::vector<double> distribution(node.vocab, 0.0), want(node.vocab, 0.0);
  for (const auto& [token, mass] : DistributionGivenDrafts(decoding::VerifyKSeq, node, drafts))
    distribution[token[0]] = mass;
  for (const Json& entry : expected.at("distribution_of_output_given_drafts"))
    want[entry.at("out").get<int>()] = entry.at("f64").get<double>();
  NearEach("distribution_of_output", distribution, want, kSeqTolerance, check);
}

void RunLuceOt(const Json& inputs, const Json& expected, CaseCheck* check) {
  constexpr double kDistributionTolerance = 1e-10, kAcceptanceTolerance = 1e-8;
  std::vector<double> p, q;
  for (const Json& mass : inputs.at("p")) p.push_back(Fraction(mass.get<std::string>()));
  for (const Json& mass : inputs.at("q")) q.push_back(Fraction(mass.get<std::string>()));
  const int n = inputs.at("n").get<int>();
  const std::vector<double> s =
      decoding::LuceSelectionDistribution(q, Vec(inputs.at("weights")), n);
  NearEach("selection_distribution", s, Vec(expected.at("selection_distribution_for_weights")),
           kDistributionTolerance, check);
  check->Near("acceptance_for_weights", lab::Overlap(p, s),
              expected.at("acceptance_for_weights").get<double>(), kDistributionTolerance);
  const GoldenNode selected(p, s);
  NearEach("residual_for_weights",
           RejectAll(decoding::VerifyRrsIid, selected, {selected.q_row.tokens[0]}).rest,
           Vec(expected.at("residual_for_weights")), kDistributionTolerance, check);

  const GoldenNode node(p, q);
  std::vector<double> p_shared, q_shared;
  for (size_t v = 0; v < q.size(); ++v) {
    if (q[v] <= 0) continue;
    p_shared.push_back(p[v]);
    q_shared.push_back(q[v]);
  }
  const double acceptance =
      decoding::FindLuceWeights(p_shared, q_shared, n, inputs.at("iterations").get<int>())
          .acceptance;
  check->Near("acceptance_after_iterations", acceptance,
              expected.at("acceptance_after_iterations").get<double>(), kAcceptanceTolerance);
  // A residual hit on another draft is accepted too.
  const double matched =
      AcceptanceOverDrafts(decoding::VerifyLuceOt, decoding::ChildSampling::kIid, node, n, check);
  check->True("drafts are emitted at least as often", matched >= acceptance - kTolerance);
  check->True("not above the optimum",
              matched <= expected.at("alpha_star_iid").get<double>() + kTolerance);
}

void RunGreedySpecHub(const Json& inputs, const Json& expected, CaseCheck* check) {
  const GoldenNode node(Vec(inputs.at("p")), Vec(inputs.at("q")));
  const std::vector<TokenId> drafts = Path(inputs.at("drafts"));
  const int n = inputs.at("n").get<int>();
  const decoding::GreedyProposal proposal = decoding::SplitProposal(node.q_row, n);
  check->Equal("top", proposal.top, expected.at("top"));
  check->SameDistribution("distribution_of_output",
                          DistributionGivenDrafts(decoding::VerifyGreedy, node, drafts),
                          expected.at("distribution_of_output_given_drafts"));
  check->Near("alpha",
              AcceptanceOverDrafts(decoding::VerifyGreedy, decoding::ChildSampling::kGreedy, node,
                                   n, check),
              expected.at("alpha").at("f64").get<double>());
  check->Equal("q_without_top is empty", proposal.rest.size() == 0,
               expected.at("q_without_top").is_null());
  if (proposal.rest.size() > 0) {
    std::vector<double> rest(node.vocab, 0.0);
    for (int i = 0; i < proposal.rest.size(); ++i)
      rest[proposal.rest.tokens[i]] = sampling::Exp(proposal.rest.log_probs[i]);
    check->NearAll("q_without_top", rest, expected.at("q_without_top"));
    const Rejecting rejected = RejectAll(decoding::VerifyGreedy, node, drafts);
    if (!rejected.accept_prob.empty()) {
      check->Near("accept_prob_of_last", rejected.accept_prob[0],
                  expected.at("accept_prob_of_last").at("f64").get<double>());
      check->NearAll("residual", rejected.rest, expected.at("residual"));
    }
  }
  if (!expected.contains("alpha_spechub")) return;
  check->Near("alpha_spechub",
              AcceptanceOverDrafts(decoding::VerifyGreedy, decoding::ChildSampling::kSpecHub, node,
                                   n, check),
              expected.at("alpha_spechub").at("f64").get<double>());
  test::ExactDistribution pairs;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const auto drawn = decoding::DrawChildren(decoding::ChildSampling::kSpecHub, node.q_row,
                                              /*hash=*/0, n, choices);
    pairs[{drawn.begin(), drawn.end()}] += choices->probability();
  });
  check->SameDistribution("spechub_draft_distribution", pairs,
                          expected.at("spechub_draft_distribution"));
}

}  // namespace coppice::golden
