// Candidate lists of rows of logits (RowNeed of plan/step_plan.h). Each rank of a tensor-parallel
// replica writes its part as a record of fixed size, and rank 0 joins the parts. The joined list
// holds at least what was asked for. Decisions made from it are the same on any number of ranks,
// bit for bit. Host code that all backends call. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "plan/candidate_row.h"
#include "plan/step_plan.h"

namespace coppice::sampling {

// Tokens [begin, end) of rank `rank`: whole log-sum-exp chunks. ranks <= kLseChunks.
struct TokenRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
TokenRange VocabularyShard(int64_t vocab, int rank, int ranks);
// Tokens of the largest shard.
int64_t LargestShard(int64_t vocab, int ranks);

// Whether a row of `vocab` tokens is better sent whole than as this candidate list.
bool IsWhole(const RowNeed& need, int64_t vocab);

// 32-bit words of one rank's record of a candidate list.
size_t RecordWords(const RowNeed& need);
// What a rank knows of one row.
struct ShardRow {
  absl::Span<const float> logits;  // logits of its tokens
  TokenRange tokens;
  int64_t vocab = 0;
  absl::Span<const std::pair<TokenId, double>> bias;  // biases of the need
};
// Writes RecordWords(need) words.
void WriteRecord(const RowNeed& need, const ShardRow& row, float* record);

// Most tokens of a candidate list by x. More within the slack are an overflow.
int ListCapacity(const RowNeed& need);
// The same for the list of the largest logits; 0: there is none.
int RawCapacity(const RowNeed& need);
// What a device found of one row of a rank, whose logits stayed there.
struct FoundList {
  TokenList tokens;  // every token with a bias, and the largest others
  // No other token's key is larger; -inf when there is none. nats
  double bound = 0;
};
struct FoundRow {
  TokenId bad_token = -1;  // as in CandidateRow
  float bad_logit = 0;
  const ChunkSums* sums = nullptr;  // present if wanted
  const ChunkSums* raw_sums = nullptr;
  // kTop: one; kGumbel: one for each wanted slot, ascending. Then that of the largest logits, if it
  // is wanted, where keys are logits.
  std::vector<FoundList> lists;
};
// The same words as WriteRecord, as long as the found tokens prove them; else an overflow.
void WriteFoundRecord(const RowNeed& need, const FoundRow& row,
                      absl::Span<const std::pair<TokenId, double>> bias, float* record);
// records[r]: RecordWords(need) words of rank r. bias: of the need.
CandidateRow JoinRecords(const RowNeed& need, absl::Span<const float* const> records,
                         absl::Span<const std::pair<TokenId, double>> bias);
// Whether the candidate list covers what the need asks for. If not, the row must be fetched whole.
bool IsComplete(const RowNeed& need, const CandidateRow& row,
                absl::Span<const std::pair<TokenId, double>> bias);

}  // namespace coppice::sampling
