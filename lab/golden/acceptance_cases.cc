// Acceptance calculators compared with exact values and linear programs: docs/algorithms.md 7.
#include <algorithm>

#include "decoding/tree/k_seq.h"
#include "lab/golden/runners.h"
#include "lab/theory/acceptance.h"
#include "lab/theory/optimal_acceptance.h"
#include "sampling/deterministic_math.h"

namespace coppice::golden {
namespace {

constexpr double kQuadratureTolerance = 1e-11;
constexpr double kLargeTolerance = 1e-9;

void CheckAllNear(absl::string_view what, const std::vector<double>& got, const Json& want,
                  double tolerance, CaseCheck* check) {
  const std::vector<double> values = Vec(want);
  check->Equal(what, got.size(), values.size());
  for (size_t i = 0; i < std::min(got.size(), values.size()); ++i) {
    check->Near(what, got[i], values[i], tolerance);
  }
}

std::vector<double> Probabilities(const std::vector<double>& log_probs) {
  std::vector<double> out;
  for (double log_prob : log_probs) out.push_back(sampling::Exp(log_prob));
  return out;
}

}  // namespace

void RunAlphaStar(const Json& inputs, const Json& expected, CaseCheck* check) {
  const std::vector<double> p = Vec(inputs.at("p")), q = Vec(inputs.at("q"));
  const int n = inputs.at("n").get<int>();
  const auto f64 = [&](const char* field) { return expected.at(field).at("f64").get<double>(); };
  const std::vector<TokenId> order = lab::RatioOrder(p, q);
  check->Equal("order_by_q_over_p", order, expected.at("order_by_q_over_p"));
  check->NearAll("Q_iid_prefix", lab::PrefixDistributionIid(q, order, n),
                 expected.at("Q_iid_prefix"));
  CheckAllNear("Q_wor_prefix", lab::PrefixDistributionWithoutReplacement(q, order, n),
               expected.at("Q_wor_prefix"), kQuadratureTolerance, check);
  check->Near("alpha_star_iid", lab::OptimalAcceptanceIid(p, q, n).alpha, f64("alpha_star_iid"));
  check->Near("alpha_star_wor_sequential", lab::OptimalAcceptanceWithoutReplacement(p, q, n).alpha,
              f64("alpha_star_wor_sequential"), kQuadratureTolerance);
  check->Near("alpha_star_greedy", lab::AcceptanceGreedy(p, q, n), f64("alpha_star_greedy"));
  check->Near("alpha_rrs_iid", lab::AcceptanceRrsIid(p, q, n), f64("alpha_rrs_iid"));
}

void RunAlphaStarLarge(const Json& inputs, const Json& expected, CaseCheck* check) {
  const test::HashLm lm = ReadHashLm(inputs);
  const uint64_t hash = sampling::HashPath(Path(inputs.at("path")));
  const std::vector<double> p = Probabilities(lm.TargetLogProbs(hash));
  const std::vector<double> q = Probabilities(lm.DraftLogProbs(hash));
  const int n = inputs.at("n").get<int>();
  const decoding::KSeqAcceptance kseq = decoding::AcceptanceKSeq(p, q, n);
  const std::pair<const char*, double> values[] = {
      {"overlap", lab::Overlap(p, q)},
      {"alpha_star_iid", lab::OptimalAcceptanceIid(p, q, n).alpha},
      {"alpha_star_wor", lab::OptimalAcceptanceWithoutReplacement(p, q, n).alpha},
      {"alpha_greedy", lab::AcceptanceGreedy(p, q, n)},
      {"alpha_rrs_iid", lab::AcceptanceRrsIid(p, q, n)},
      {"kseq_rho", kseq.rho},
      {"kseq_acceptance", kseq.acceptance},
  };
  for (const auto& [field, value] : values) {
    check->Near(field, value, expected.at(field).get<double>(), kLargeTolerance);
  }
}

}  // namespace coppice::golden
