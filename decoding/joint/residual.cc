#include "decoding/joint/residual.h"

#include <algorithm>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

constexpr double kUndefinedMass = 1e-14;

bool Before(const Entry& a, const Entry& b) {
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

}  // namespace

Residual::Residual(const LayerDistribution& p, const LayerDistribution& q)
    : p_(p), q_(q), outside_(p.rows.size(), 0.0), unchanged_(p.rows.size()) {
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
    const double mass = sampling::Exp(LogMass(p_, entry));
    if (mass > 0)
      shared_.push_back(
          {entry, mass, sampling::Exp(proposal.log_weight + proposal.sparse->log_probs[i]), mass});
  }
}

// Tokens of a beam that are shared or removed, ascending.
std::vector<TokenId> Residual::InsideTokens(int beam) const {
  std::vector<TokenId> tokens;
  for (int i = shared_begin_[beam]; i < shared_begin_[beam + 1]; ++i)
    tokens.push_back(shared_[i].entry.token);
  const size_t shared = tokens.size();
  for (const Entry& entry : removed_outside_) {
    if (entry.beam == beam) tokens.push_back(entry.token);
  }
  std::inplace_merge(tokens.begin(), tokens.begin() + shared, tokens.end());
  return tokens;
}

// Sums the outside mass entry by entry, never as 1 - sum.
void Residual::FindOutside(int beam) {
  const WeightedRow& target = p_.rows[beam];
  const std::vector<TokenId> inside = InsideTokens(beam);
  if (target.whole != nullptr) {
    unchanged_[beam] = std::make_shared<sampling::RowWithout>(*target.whole, inside);
    outside_[beam] = sampling::Exp(target.log_weight + unchanged_[beam]->log_mass());
  } else if (target.sparse != nullptr) {
    auto next = inside.begin();
    double mass = 0;
    for (int i = 0; i < target.sparse->size(); ++i) {
      if (next != inside.end() && *next == target.sparse->tokens[i]) {
        ++next;
      } else {
        mass += sampling::Exp(target.log_weight + target.sparse->log_probs[i]);
      }
    }
    outside_[beam] = mass;
  }
}

double Residual::OutsideMass() {
  if (!outside_known_) {
    for (int beam = 0; beam < p_.rows.size(); ++beam) FindOutside(beam);
    outside_known_ = true;
  }
  double sum = 0;
  for (double mass : outside_) sum += mass;
  return sum;
}

Residual::Shared* Residual::Find(Entry entry) {
  const auto it = std::lower_bound(shared_.begin(), shared_.end(), entry,
                                   [](const Shared& s, Entry e) { return Before(s.entry, e); });
  return it != shared_.end() && it->entry == entry ? &*it : nullptr;
}

double Residual::Target(Entry entry) const {
  if (const Shared* shared = Find(entry)) return shared->a;
  if (std::binary_search(removed_outside_.begin(), removed_outside_.end(), entry, Before)) return 0;
  return factor_ * sampling::Exp(LogMass(p_, entry));
}

double Residual::Proposal(Entry entry) const {
  if (const Shared* shared = Find(entry)) return ScaledProposal(*shared);
  return sampling::Exp(LogMass(q_, entry)) * proposal_scale_;
}

double Residual::Overlap() const {
  double sum = 0;
  for (const Shared& s : shared_) sum += std::min(s.a, ScaledProposal(s));
  return sum;
}

void Residual::Reset() {
  factor_ = target_cut_ ? 1 / target_mass_ : 1;
  for (Shared& s : shared_) s.a = s.p * factor_;
  is_target_ = !target_cut_;
}

double Residual::Excess() {
  double sum = factor_ * OutsideMass();
  for (const Shared& s : shared_) sum += std::max(0.0, s.a - ScaledProposal(s));
  return sum;
}

void Residual::Reject() {
  const double sum = Excess();
  if (sum <= kUndefinedMass) return;
  for (Shared& s : shared_) s.a = std::max(0.0, s.a - ScaledProposal(s)) / sum;
  factor_ /= sum;
  is_target_ = false;
}

void Residual::RemoveProposal(Entry entry) {
  if (Shared* shared = Find(entry)) shared->q = 0;
}

void Residual::RemoveTarget(absl::Span<const Entry> entries) {
  bool cut = false;
  int outside = -1;  // the last beam from which an entry outside was removed
  for (Entry entry : entries) {
    if (Shared* shared = Find(entry)) {
      shared->p = 0;
      cut = true;
      continue;
    }
    const auto place =
        std::lower_bound(removed_outside_.begin(), removed_outside_.end(), entry, Before);
    if (place != removed_outside_.end() && *place == entry) continue;
    if (!(LogMass(p_, entry) > sampling::kLogZero)) continue;
    removed_outside_.insert(place, entry);
    cut = true;
    if (!outside_known_ || entry.beam == outside) continue;
    if (outside >= 0) FindOutside(outside);
    outside = entry.beam;
  }
  if (outside >= 0) FindOutside(outside);
  if (!cut) return;
  target_cut_ = true;
  target_mass_ = OutsideMass();
  for (const Shared& s : shared_) target_mass_ += s.p;
}

LayerDistribution Residual::Normalised() const {
  LayerDistribution distribution = p_;
  if (is_target_) return distribution;
  const double log_factor = sampling::Log(factor_);
  for (int beam = 0; beam < distribution.rows.size(); ++beam) {
    WeightedRow& row = distribution.rows[beam];
    row.log_weight += log_factor;
    row.unchanged = unchanged_[beam];
    row.changed = InsideTokens(beam);
    row.changed_log_mass.clear();
    int next = shared_begin_[beam];
    for (TokenId token : row.changed) {
      const bool is_shared = next < shared_begin_[beam + 1] && shared_[next].entry.token == token;
      row.changed_log_mass.push_back(
          sampling::Log(is_shared ? shared_[next++].a : 0.0));  // -inf: removed
    }
  }
  return distribution;
}

}  // namespace coppice::decoding
