#include "decoding/joint/draft_proposals.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/joint/layer_distribution.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("draft forest: ", what));
}

absl::Status CheckWeights(const DraftForest& forest, const ProposalIndex& proposals, int layer) {
  double weight = 0;
  for (int row = ParentRowsBegin(forest, layer); row < ParentRowsEnd(forest, layer); ++row) {
    if (const Proposal* proposal = proposals.Find(row))
      weight += sampling::Exp(proposal->log_weight);
  }
  if (std::abs(weight - 1) <= 1e-9) return absl::OkStatus();
  return Bad(absl::StrCat("proposal weights of layer ", layer, " sum to ", weight, ", want 1"));
}

absl::Status CheckLayer(const DraftForest& forest, const ProposalIndex& proposals, int layer,
                        DrawKind draws) {
  const bool distinct = draws == DrawKind::kDistinct || draws == DrawKind::kDistinctChildren;
  std::vector<bool> drawn(forest.layer_begin[layer + 1] - forest.layer_begin[layer]);
  for (int32_t i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = Index(forest.draws[i]);
    const Proposal* proposal = proposals.Find(forest.RowOf(forest.parent[node]));
    if (proposal == nullptr || FindToken(proposal->row, forest.token[node]) < 0) {
      return Bad(absl::StrCat("node ", node, " was drawn from no proposal that was sent"));
    }
    const int place = node - forest.layer_begin[layer];
    if (drawn[place] && distinct) {
      return Bad(absl::StrCat("node ", node, " was drawn twice"));
    }
    drawn[place] = true;
  }
  const auto undrawn = std::find(drawn.begin(), drawn.end(), false);
  if (undrawn == drawn.end()) return absl::OkStatus();
  return Bad(absl::StrCat("draws: node ", forest.layer_begin[layer] + (undrawn - drawn.begin()),
                          " is not among them"));
}

}  // namespace

absl::Status CheckSentDraws(const DraftForest& forest, DrawKind draws) {
  if (forest.draws_begin.size() != forest.layer_begin.size()) return Bad("draws are not listed");
  const ProposalIndex proposals(forest);
  for (int layer = 0; layer < forest.depth(); ++layer) {
    if (draws == DrawKind::kIndependent || draws == DrawKind::kDistinct)
      COPPICE_RETURN_IF_ERROR(CheckWeights(forest, proposals, layer));
    COPPICE_RETURN_IF_ERROR(CheckLayer(forest, proposals, layer, draws));
  }
  return absl::OkStatus();
}

ProposalIndex::ProposalIndex(const DraftForest& forest) : by_row_(forest.rows(), nullptr) {
  for (const Proposal& proposal : forest.proposals) {
    by_row_[forest.RowOf(proposal.place)] = &proposal;
  }
}

int ParentRowsBegin(const DraftForest& forest, int layer) {
  return layer == 0 ? 0 : forest.num_roots + forest.layer_begin[layer - 1];
}

int ParentRowsEnd(const DraftForest& forest, int layer) {
  return layer == 0 ? forest.num_roots : forest.num_roots + forest.layer_begin[layer];
}

}  // namespace coppice::decoding
