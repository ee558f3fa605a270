#include "decoding/residual.h"

#include <algorithm>

#include "base/deterministic_math.h"

namespace coppice {
namespace {

constexpr double kUndefinedMass = 1e-14;

}  // namespace

Residual::Residual(const LayerLaw& p, const LayerLaw& q) : p_(p), q_(q) {
  for (int beam = 0; beam < p.rows.size(); ++beam) {
    const WeightedRow& target = p.rows[beam];
    const WeightedRow& proposal = q.rows[beam];
    // Merge of two ascending lists. The outside mass is summed entry by entry, never as 1 - sum.
    int next = 0;
    const int proposed = proposal.row == nullptr ? 0 : static_cast<int>(proposal.row->size());
    double outside = 0;
    for (int i = 0; i < target.row->size(); ++i) {
      const TokenId token = target.row->tokens[i];
      const double mass = Exp(target.log_weight + target.row->log_probs[i]);
      while (next < proposed && proposal.row->tokens[next] < token) ++next;
      if (next < proposed && proposal.row->tokens[next] == token) {
        shared_.push_back(
            {{beam, token}, mass, Exp(proposal.log_weight + proposal.row->log_probs[next]), mass});
      } else {
        outside += mass;
      }
    }
    outside_ += outside;
  }
}

const Residual::Shared* Residual::Find(Entry entry) const {
  const auto it =
      std::lower_bound(shared_.begin(), shared_.end(), entry, [](const Shared& s, const Entry& e) {
        return s.entry.beam != e.beam ? s.entry.beam < e.beam : s.entry.token < e.token;
      });
  return it != shared_.end() && it->entry == entry ? &*it : nullptr;
}

double Residual::Target(Entry entry) const {
  if (const Shared* shared = Find(entry)) return shared->a;
  return factor_ * Exp(LogMass(p_, entry));
}

double Residual::Proposal(Entry entry) const { return Exp(LogMass(q_, entry)); }

double Residual::Overlap() const {
  double sum = 0;
  for (const Shared& s : shared_) sum += std::min(s.a, s.q);
  return sum;
}

void Residual::Reset() {
  for (Shared& s : shared_) s.a = s.p;
  factor_ = 1;
}

void Residual::Reject() {
  double sum = factor_ * outside_;
  for (const Shared& s : shared_) sum += std::max(0.0, s.a - s.q);
  if (sum <= kUndefinedMass) return;
  for (Shared& s : shared_) s.a = std::max(0.0, s.a - s.q) / sum;
  factor_ /= sum;
}

LayerLaw Residual::Law() const {
  LayerLaw law = p_;
  if (factor_ == 1) {
    const bool untouched =
        std::all_of(shared_.begin(), shared_.end(), [](const Shared& s) { return s.a == s.p; });
    if (untouched) return law;  // a is P itself, bit for bit
  }
  const double log_factor = Log(factor_);
  for (WeightedRow& row : law.rows) row.log_weight += log_factor;
  for (const Shared& s : shared_) {
    law.rows[s.entry.beam].changed.push_back(s.entry.token);
    law.rows[s.entry.beam].changed_log_mass.push_back(Log(s.a));  // Log(0) = -inf: removed
  }
  return law;
}

}  // namespace coppice
