#include "decoding/tree/k_seq.h"

#include <vector>

#include "base/deterministic_math.h"
#include "decoding/theory/acceptance.h"

namespace coppice::decoding {

double KSeqRho(const LayerLaw& p, const Distribution& q, int n) {
  std::vector<double> p_mass, q_mass;  // on the support of q; elsewhere min(p / rho, q) is 0
  for (int i = 0; i < q.size(); ++i) {
    p_mass.push_back(Exp(LogMass(p, {0, q.tokens[i]})));
    q_mass.push_back(Exp(q.log_probs[i]));
  }
  return AcceptanceKSeq(p_mass, q_mass, n).rho;
}

// Every draft has its own coin, a repeated one too; the residual is norm(max(0, p - rho q)).
NodeVerdict VerifyKSeq(const NodeInput& input, ChoiceSource* choices) {
  const int n = static_cast<int>(input.drafts.size());
  NodeTrial trial(input, *input.q, choices, KSeqRho(*input.p, *input.q, n));
  for (int j = 0; j < n; ++j) {
    if (trial.Accepts(j)) return trial.Accepted(j);
  }
  trial.Reject();
  return trial.DrawRest();
}

}  // namespace coppice::decoding
