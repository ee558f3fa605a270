#include "model/shard_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "plan/candidate_row.h"
#include "sampling/candidate_list.h"

namespace coppice::model {
namespace {

// Sets q_heads and kv_heads. ranks <= num_heads, so each rank of a replicated KV head has a query
// head for it.
void SplitHeads(const ModelConfig& config, int rank, int ranks, ShardPlan* plan) {
  const int group = config.num_heads / config.num_kv_heads;
  if (config.num_kv_heads >= ranks) {
    plan->kv_heads = BalancedPiece(config.num_kv_heads, rank, ranks);
    plan->q_heads = {plan->kv_heads.begin * group, plan->kv_heads.end * group};
    return;
  }
  int head = 0;
  while (rank >= BalancedPiece(ranks, head, config.num_kv_heads).end) ++head;
  const Range sharers = BalancedPiece(ranks, head, config.num_kv_heads);
  const Range piece = BalancedPiece(group, rank - sharers.begin, sharers.size());
  plan->kv_heads = {head, head + 1};
  plan->q_heads = {head * group + piece.begin, head * group + piece.end};
}

// A rank holds whole chunks of the vocabulary, and at least one token.
absl::Status CheckVocabulary(int vocab, int ranks) {
  const auto too_many = [&](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tensor parallelism over ", ranks, " ranks: ", "the vocabulary is cut at the borders of ",
        kLseChunks, " chunks, ", why));
  };
  if (ranks > kLseChunks) return too_many(absl::StrCat("expected at most ", kLseChunks, " ranks"));
  for (int rank = 0; rank < ranks; ++rank) {
    if (sampling::VocabularyShard(vocab, rank, ranks).size() > 0) continue;
    return too_many(absl::StrCat("and of ", vocab, " tokens none is left for rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace

Range BalancedPiece(int total, int part, int parts) {
  const int size = total / parts;
  const int larger = total % parts;
  const int begin = part * size + std::min(part, larger);
  return {begin, begin + size + (part < larger ? 1 : 0)};
}

Range ColumnPiece(int total, int part, int parts) {
  for (const int block : {256, 32}) {
    const int blocks = total / block;
    const int largest = BalancedPiece(blocks, 0, parts).size() * block;
    if (total % block != 0 || blocks < parts || int64_t{8} * largest * parts > int64_t{9} * total)
      continue;
    const Range piece = BalancedPiece(blocks, part, parts);
    return {piece.begin * block, piece.end * block};
  }
  return BalancedPiece(total, part, parts);
}

absl::StatusOr<ShardPlan> MakeShardPlan(const ModelConfig& config, int rank, int ranks) {
  COPPICE_CHECK(rank >= 0 && rank < ranks);
  const int most = std::min({config.num_heads, config.intermediate_size, config.vocab_size});
  if (ranks > most) {
    return absl::FailedPreconditionError(absl::StrCat(
        "tensor parallelism over ", ranks, " ranks: the model has num_attention_heads ",
        config.num_heads, ", intermediate_size ", config.intermediate_size, ", vocab_size ",
        config.vocab_size, ", expected at most ", most, " ranks"));
  }
  if (config.experts.count > 0 && ranks > config.experts.size) {
    return absl::FailedPreconditionError(absl::StrCat("tensor parallelism over ", ranks,
                                                      " ranks: an expert has ", config.experts.size,
                                                      " columns, expected at most as many ranks"));
  }
  COPPICE_RETURN_IF_ERROR(CheckVocabulary(config.vocab_size, ranks));
  ShardPlan plan;
  SplitHeads(config, rank, ranks, &plan);
  plan.intermediate = ColumnPiece(config.intermediate_size, rank, ranks);
  plan.expert = ColumnPiece(config.experts.size, rank, ranks);
  const sampling::TokenRange tokens = sampling::VocabularyShard(config.vocab_size, rank, ranks);
  plan.vocab = {static_cast<int>(tokens.begin), static_cast<int>(tokens.end)};
  plan.largest_vocab = static_cast<int>(sampling::LargestShard(config.vocab_size, ranks));
  return plan;
}

}  // namespace coppice::model
