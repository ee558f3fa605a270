// Verification of one node of a draft tree: the children drafted there against the target's row,
// docs/algorithms.md 4.1-4.5 and 4.8. Distribution of every rule: the token follows the target's
// row exactly, provided that the drafts were drawn by the rule's own distribution
// (decoding/tree/child_sampling.h) and are listed as drawn. Called by decoding/tree/tree_decoder.h.
// Pure except for the ChoiceSource.
#pragma once

#include "absl/types/span.h"
#include "decoding/joint/choice_source.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/joint/residual.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

struct NodeInput {
  const LayerDistribution* p = nullptr;       // the target's row: one beam of weight 1
  const sampling::Distribution* q = nullptr;  // the draft row that the children were drawn from
  absl::Span<const TokenId> drafts;  // not empty; drawing order, copies listed, tokens of q
};

struct NodeVerdict {
  TokenId token = -1;
  int draft = -1;          // index of the draft that was emitted, or -1: none
  int tested = 0;          // drafts that met a coin
  int residual_draws = 0;  // 1: no coin accepted
  double min_margin = 0;   // nats, infinity when nothing was decided by chance
};

using NodeRule = NodeVerdict (*)(const NodeInput& input, ChoiceSource* choices);

// 4.2 with replacement: drafts iid from q. One draft: 4.1.
NodeVerdict VerifyRrsIid(const NodeInput& input, ChoiceSource* choices);
// 4.2 without replacement: drafts are a sequential sample without replacement from q.
NodeVerdict VerifyRrsWithoutReplacement(const NodeInput& input, ChoiceSource* choices);
// 4.2 with deterministic drafts: draws t ~ p and checks whether it is a draft. Does not read q.
NodeVerdict SampleAndCheck(const NodeInput& input, ChoiceSource* choices);

// Tests the target's row against a proposal at one node. The rules above and those of k_seq,
// greedy_multi_draft and luce_ot are built from it.
class NodeTrial {
 public:
  // The proposal mass of a draft is scale * proposal(draft). input and proposal must outlive this.
  NodeTrial(const NodeInput& input, const sampling::Distribution& proposal, ChoiceSource* choices,
            double scale = 1);
  NodeTrial(const NodeTrial&) = delete;

  // Tests draft j: u * b(d) < a(d), one coin.
  bool Accepts(int j);
  void Reject() { a_.Reject(); }  // a = res(a, b)
  // Removes `token` from b and normalises the rest. False: the rest is empty or too small for f64,
  // so no further draft can be tested.
  bool RemoveFromProposal(TokenId token);
  void CountMargin(double margin);
  NodeVerdict Accepted(int j) const;  // emits draft j
  NodeVerdict DrawRest();             // emits t ~ a

 private:
  const NodeInput& input_;
  LayerDistribution proposal_;
  Residual a_;
  ChoiceSource* choices_;
  NodeVerdict verdict_;
};

// Index of the first draft equal to `token`, or -1.
int FindDraft(absl::Span<const TokenId> drafts, TokenId token);

}  // namespace coppice::decoding
