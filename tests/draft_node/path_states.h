// For tests: the hidden states of a target that exists only here, sequences that it decodes, and
// the requests of their leader.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "absl/types/span.h"
#include "decoding/draft_request.h"
#include "decoding/forest.h"
#include "decoding/params.h"

namespace coppice::draft_node {

using Tokens = std::vector<TokenId>;

// A state depends on all tokens up to its own.
class PathStates {
 public:
  explicit PathStates(int columns) : columns_(columns) {}
  int columns() const { return columns_; }
  // Appends that of the last token of `path`: [columns] bf16.
  void Append(absl::Span<const TokenId> path, std::vector<uint16_t>* values) const;
  // Of stable rows: that of row r is the state of token r - 1.
  decoding::RowStates OfRows(absl::Span<const TokenId> tokens, int first, int count) const;

 private:
  int columns_;
};

// Chosen by a test: the beams of a sequence, and how they go on.
struct DecodedSequence {
  Tokens prompt;
  std::vector<Tokens> roots;  // generated tokens, of one length of at least 1; distinct

  // Every root goes on by `layers` tokens, along nodes of the forest as far as chance wants; some
  // roots get several children, others none.
  void Advance(const decoding::DraftForest& forest, int layers, int vocab, std::mt19937* rng);
  // The generated tokens that all roots share without the last token of each.
  Tokens Stable() const;
  // A request for a forest below the roots, without states. known: stable tokens that the node has.
  decoding::DraftRequest Ask(int width, int depth, size_t known) const;
};

// Rows that a node has answered for, by their paths from the prompt's first token on.
using KnownRows = std::set<Tokens>;

// The states of the rows of a request that are not known, and of its roots; from `first` on of the
// stable rows.
decoding::RowStates StatesFor(const DecodedSequence& sequence,
                              const decoding::DraftRequest& request, const KnownRows& known,
                              int first, const PathStates& states);
// Its rows become known.
void Answered(const DecodedSequence& sequence, const decoding::DraftRequest& request,
              KnownRows* known);

}  // namespace coppice::draft_node
