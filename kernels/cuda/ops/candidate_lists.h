// The kernels that take from rows of logits what candidate lists need (RowNeed of
// plan/step_plan.h), as host functions like those of launch.h. The device only preselects: for each
// list it finds more tokens than the list will hold, by exact logits or by keys in f32, and bounds
// the keys of all others; the host decides in f64 (sampling/candidate_list.h). Log-sum-exps equal
// those of the host, bit for bit. Grids follow from capacities; what a step asks for is read from
// device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "plan/candidate_row.h"

namespace coppice::kernels::cuda {

inline constexpr int kPieceTokens = 8192;  // tokens of a row that one block looks at
inline constexpr int kMostWanted = 2048;   // entries of a list

// One list: the `want` largest keys among the row's tokens that have no bias. The key is the logit,
// or logit * inverse_temperature + noise, in f32. Tokens whose logit is NaN or -inf have no key.
struct ListTask {
  int32_t row = 0;  // row of the logits
  int32_t want = 0;
  int32_t noisy = 0;
  int32_t first_of_row = 0;              // finds the row's bad token and copies its biased logits
  int32_t bias_begin = 0, bias_end = 0;  // range of DeviceLists::bias
  int32_t record = 0;                    // word of DeviceLists::records
  float inverse_temperature = 1;
  int64_t entries = 0;  // index in DeviceLists::entries: `want` entries for each piece of the row
  uint64_t seed = 0, path_hash = 0;
  uint32_t slot = 0;
  uint32_t unused = 0;
};

// One log-sum-exp, of (logit + bias) / temperature.
struct SumTask {
  int32_t row = 0;
  int32_t bias_begin = 0, bias_end = 0;
  int32_t unused = 0;
  double temperature = 1;
};

struct TokenBias {
  int32_t token = 0;
  int32_t unused = 0;
  double bias = 0;  // nats
};

// A token that a piece of a row gives to the choice among pieces. key: order-preserving bits, 0 =
// no token.
struct ListEntry {
  uint32_t key = 0;
  int32_t token = 0;
};

// The beginning of a list's record. Logits of the row's biased tokens follow (only in the first
// list of a row), and `want` pairs of a token and its logit, of which `count` are written, in any
// order.
struct ListHeader {
  int32_t bad_token = -1;  // first list of a row: the lowest token with logit NaN or +inf
  float bad_logit = 0;
  int32_t count = 0;
  float least_key = 0;  // least key written; no other token of the row has a larger one
};
inline constexpr int kHeaderWords = sizeof(ListHeader) / sizeof(uint32_t);

// What a step asks for. It lies in device memory itself, so that a launch that was recorded once
// serves every step.
struct DeviceLists {
  const ListTask* lists = nullptr;  // [list_count]
  const SumTask* sums = nullptr;    // [sum_count]
  const TokenBias* bias = nullptr;
  ListEntry* entries = nullptr;     // scratch
  int32_t* bad_tokens = nullptr;    // scratch: [list_count][pieces]
  ChunkSums* chunk_sums = nullptr;  // [sum_count]
  uint32_t* records = nullptr;      // words
  int32_t list_count = 0, sum_count = 0;
};

// The part of DeviceLists that a launch is given: room for lists and sums, at least as many as
// there are.
struct ListsView {
  const DeviceLists* lists = nullptr;
  int32_t list_room = 0, sum_room = 0;

  bool operator==(const ListsView&) const = default;
};

// This rank's tokens of each row.
struct LogitRows {
  const float* logits = nullptr;  // [rows, columns] f32
  int64_t columns = 0;
  int64_t first_token = 0;  // begins a chunk of kLseChunks
  int64_t vocab = 0;        // tokens of all ranks

  bool operator==(const LogitRows&) const = default;
};

// Blocks that share a row.
int32_t PiecesOf(const LogitRows& rows);

// chunk_sums[i] of the chunks that lie in `rows`; the others are empty.
void SumRows(const ListsView& lists, const LogitRows& rows, cudaStream_t stream);
// The entries of all lists: what each piece of a row gives to the choice.
void ListPieces(const ListsView& lists, const LogitRows& rows, cudaStream_t stream);
// The records of all lists, from their entries.
void MergePieces(const ListsView& lists, const LogitRows& rows, cudaStream_t stream);

}  // namespace coppice::kernels::cuda
