#include "decoding/residual.h"

#include <algorithm>

#include "base/deterministic_math.h"

namespace coppice {
namespace {

constexpr double kUndefinedMass = 1e-14;

}  // namespace

Residual::Residual(const LayerLaw& p, const LayerLaw& q) : p_(p), q_(q), unchanged_(p.rows.size()) {
  for (int beam = 0; beam < p.rows.size(); ++beam) {
    shared_begin_.push_back(static_cast<int>(shared_.size()));
    AddSharedEntries(beam);
  }
  shared_begin_.push_back(static_cast<int>(shared_.size()));
}

void Residual::AddSharedEntries(int beam) {
  const WeightedRow& proposal = q_.rows[beam];
  if (proposal.sparse == nullptr) return;
  for (int i = 0; i < proposal.sparse->size(); ++i) {
    const Entry entry{beam, proposal.sparse->tokens[i]};
    const double mass = Exp(LogMass(p_, entry));
    if (mass > 0)
      shared_.push_back(
          {entry, mass, Exp(proposal.log_weight + proposal.sparse->log_probs[i]), mass});
  }
}

// The outside mass is summed entry by entry, never as 1 - sum.
void Residual::FindOutside() {
  outside_known_ = true;
  for (int beam = 0; beam < p_.rows.size(); ++beam) {
    const WeightedRow& target = p_.rows[beam];
    const auto begin = shared_.begin() + shared_begin_[beam];
    const auto end = shared_.begin() + shared_begin_[beam + 1];
    if (target.whole != nullptr) {
      std::vector<TokenId> removed;
      for (auto s = begin; s != end; ++s) removed.push_back(s->entry.token);
      unchanged_[beam] = std::make_shared<RowWithout>(*target.whole, removed);
      outside_ += Exp(target.log_weight + unchanged_[beam]->log_mass());
    } else if (target.sparse != nullptr) {
      auto next = begin;
      double mass = 0;
      for (int i = 0; i < target.sparse->size(); ++i) {
        if (next != end && next->entry.token == target.sparse->tokens[i]) {
          ++next;
        } else {
          mass += Exp(target.log_weight + target.sparse->log_probs[i]);
        }
      }
      outside_ += mass;
    }
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
  is_target_ = true;
}

void Residual::Reject() {
  if (!outside_known_) FindOutside();
  double sum = factor_ * outside_;
  for (const Shared& s : shared_) sum += std::max(0.0, s.a - s.q);
  if (sum <= kUndefinedMass) return;
  for (Shared& s : shared_) s.a = std::max(0.0, s.a - s.q) / sum;
  factor_ /= sum;
  is_target_ = false;
}

LayerLaw Residual::Law() const {
  LayerLaw law = p_;
  if (is_target_) return law;
  const double log_factor = Log(factor_);
  for (int beam = 0; beam < law.rows.size(); ++beam) {
    WeightedRow& row = law.rows[beam];
    row.log_weight += log_factor;
    row.unchanged = unchanged_[beam];
    for (int i = shared_begin_[beam]; i < shared_begin_[beam + 1]; ++i) {
      row.changed.push_back(shared_[i].entry.token);
      row.changed_log_mass.push_back(Log(shared_[i].a));  // Log(0) = -inf: removed
    }
  }
  return law;
}

}  // namespace coppice
