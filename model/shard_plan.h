// Which heads, MLP columns and vocabulary rows one tensor-parallel rank holds. Pure arithmetic;
// weights.cc cuts the checkpoint by it and decoder.cc sizes its tensors by it.
#pragma once

#include "absl/status/statusor.h"
#include "model/model_config.h"

namespace coppice::model {

struct Range {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
};

// Piece `part` of [0, total), cut into `parts` consecutive pieces. Sizes differ by at most one,
// larger pieces first.
Range BalancedPiece(int total, int part, int parts);

// Columns of an MLP: a BalancedPiece of whole blocks of 256 or 32 columns, as block formats have
// them, if the largest piece then has at most an eighth more than its share; else of columns.
Range ColumnPiece(int total, int part, int parts);

// With at least as many KV heads as ranks, each rank holds a run of KV heads and all query heads
// that read them. With fewer KV heads, each is replicated on several ranks, and these divide its
// query heads.
struct ShardPlan {
  Range q_heads;
  Range kv_heads;
  Range intermediate;
  Range expert;           // columns of each expert
  Range vocab;            // whole log-sum-exp chunks (VocabularyShard of sampling/candidate_list.h)
  int largest_vocab = 0;  // of any rank
};

// FailedPrecondition when there are more ranks than query heads, columns of an MLP or chunks of the
// vocabulary, or when a rank would hold no token.
absl::StatusOr<ShardPlan> MakeShardPlan(const ModelConfig& config, int rank, int ranks);

}  // namespace coppice::model
