#include "decoding/forest.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

absl::Status Bad(absl::string_view field, int index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("draft forest: ", field, "[", index, "]: ", what));
}

// Checks that begin[0] = 0, that begin never decreases, and that it ends with total. The array may
// be absent if total is 0.
absl::Status CheckLayers(absl::string_view field, const std::vector<int32_t>& begin, size_t total) {
  if (begin.empty()) {
    if (total == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("draft forest: ", field, " is empty but there are ", total, " entries"));
  }
  if (begin[0] != 0) return Bad(field, 0, absl::StrCat("must be 0, got ", begin[0]));
  for (size_t l = 1; l < begin.size(); ++l) {
    if (begin[l] < begin[l - 1]) return Bad(field, l, "decreases");
  }
  if (static_cast<size_t>(begin.back()) != total) {
    return Bad(field, begin.size() - 1, absl::StrCat("must be ", total, ", got ", begin.back()));
  }
  return absl::OkStatus();
}

absl::Status CheckSiblings(const DraftForest& forest) {
  std::vector<std::pair<TreePlace, TokenId>> edges;
  edges.reserve(forest.size());
  for (int i = 0; i < forest.size(); ++i) edges.emplace_back(forest.parent[i], forest.token[i]);
  std::sort(edges.begin(), edges.end());
  auto twin = std::adjacent_find(edges.begin(), edges.end());
  if (twin == edges.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("draft forest: two children of node ",
                                                 twin->first.code(), " have the same token"));
}

absl::Status CheckProposal(const DraftForest& forest, int index, int vocab_size) {
  const Proposal& proposal = forest.proposals[index];
  const sampling::Distribution& row = proposal.row;
  const auto bad = [&](absl::string_view what) {
    return Bad("proposals", index, absl::StrCat("node ", proposal.place.code(), ": ", what));
  };
  if (!forest.Has(proposal.place)) return bad("there is no such node");
  if (std::isnan(proposal.log_weight) || proposal.log_weight > 1e-9) {
    return bad("log_weight is not a log-probability");
  }
  if (row.tokens.empty() || row.tokens.size() != row.log_probs.size()) {
    return bad(absl::StrCat(row.tokens.size(), " tokens, ", row.log_probs.size(), " log_probs"));
  }
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row.tokens[i] < 0 || row.tokens[i] >= vocab_size ||
        (i > 0 && row.tokens[i] <= row.tokens[i - 1])) {
      return bad("tokens are not ascending within the vocabulary");
    }
    if (!(row.log_probs[i] <= 0) || !std::isfinite(row.log_probs[i])) {
      return bad("log_probs must be finite and <= 0");
    }
    sum += sampling::Exp(row.log_probs[i]);
  }
  return std::abs(sum - 1) <= 1e-9 ? absl::OkStatus()
                                   : bad(absl::StrCat("probabilities sum to ", sum));
}

absl::Status CheckProposals(const DraftForest& forest, int vocab_size) {
  std::vector<TreePlace> places;
  for (size_t i = 0; i < forest.proposals.size(); ++i) {
    COPPICE_RETURN_IF_ERROR(CheckProposal(forest, i, vocab_size));
    places.push_back(forest.proposals[i].place);
  }
  std::sort(places.begin(), places.end());
  const auto twin = std::adjacent_find(places.begin(), places.end());
  if (twin == places.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("draft forest: proposals: node ", twin->code(), " has two"));
}

}  // namespace

DraftForest DraftForest::Empty(int num_roots) {
  DraftForest forest;
  forest.num_roots = num_roots;
  return forest;
}

absl::Status DraftForest::Validate(int vocab_size) const {
  if (num_roots < 0) return absl::InvalidArgumentError("draft forest: num_roots is negative");
  if (parent.size() != token.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft forest: ", token.size(), " tokens but ", parent.size(), " parents"));
  }
  COPPICE_RETURN_IF_ERROR(CheckLayers("layer_begin", layer_begin, token.size()));
  for (int layer = 0; layer < depth(); ++layer) {
    // The codes of the parents: [previous, end).
    const int previous = layer == 0 ? -num_roots : layer_begin[layer - 1];
    const int end = layer == 0 ? 0 : layer_begin[layer];
    if (layer_begin[layer] == layer_begin[layer + 1]) return Bad("layer_begin", layer, "no nodes");
    for (int i = layer_begin[layer]; i < layer_begin[layer + 1]; ++i) {
      if (token[i] < 0 || token[i] >= vocab_size) {
        return Bad("token", i,
                   absl::StrCat(token[i], " is outside the vocabulary of ", vocab_size));
      }
      if (parent[i].code() < previous || parent[i].code() >= end) {
        return Bad("parent", i, absl::StrCat(parent[i].code(), " is not in the layer before"));
      }
    }
  }
  COPPICE_RETURN_IF_ERROR(CheckSiblings(*this));
  COPPICE_RETURN_IF_ERROR(CheckProposals(*this, vocab_size));
  COPPICE_RETURN_IF_ERROR(CheckLayers("draws_begin", draws_begin, draws.size()));
  if (!draws_begin.empty() && draws_begin.size() != layer_begin.size()) {
    return absl::InvalidArgumentError("draft forest: draws_begin and layer_begin differ in length");
  }
  for (int layer = 0; layer + 1 < static_cast<int>(draws_begin.size()); ++layer) {
    for (int i = draws_begin[layer]; i < draws_begin[layer + 1]; ++i) {
      const int32_t node = Index(draws[i]);
      if (node < layer_begin[layer] || node >= layer_begin[layer + 1]) {
        return Bad("draws", i, absl::StrCat("node ", node, " is not in layer ", layer));
      }
    }
  }
  if (!log_probs.empty() && log_probs.size() != token.size()) {
    return absl::InvalidArgumentError(absl::StrCat("draft forest: ", log_probs.size(),
                                                   " log_probs for ", token.size(), " nodes"));
  }
  for (size_t i = 0; i < log_probs.size(); ++i) {
    if (!(log_probs[i] <= 1e-9)) return Bad("log_probs", static_cast<int>(i), "is above 0");
  }
  return absl::OkStatus();
}

}  // namespace coppice::decoding
