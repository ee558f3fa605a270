// The bias that a block drafter adds to the logits after a token (DSpark): w2 w1[token]. Rows of
// a block do not see which tokens the rows before them became; this tells them the last one. Kept in
// host memory as bf16, since it is applied to the few candidates of each node of a forest. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "model/checkpoint.h"
#include "model/model_config.h"

namespace coppice::model {

class MarkovBias {
 public:
  // Tensors markov_w1 and markov_w2, [vocabulary, rank] each, beside the layers or under
  // markov_head. nullptr if config.block has none. Errors name the tensor. Check reads no value.
  static absl::Status Check(const ModelConfig& config, Checkpoint* checkpoint);
  static absl::StatusOr<std::unique_ptr<MarkovBias>> Load(const ModelConfig& config,
                                                          Checkpoint* checkpoint);

  // logits[i] += bias of tokens[i] after `before`. All tokens are of the vocabulary.
  void Add(TokenId before, absl::Span<const TokenId> tokens, absl::Span<float> logits) const;
  size_t bytes() const { return (w1_.size() + w2_.size()) * sizeof(uint16_t); }

 private:
  explicit MarkovBias(int rank) : rank_(rank) {}

  const int rank_;
  std::vector<uint16_t> w1_, w2_;  // [vocabulary, rank] bf16
};

}  // namespace coppice::model
