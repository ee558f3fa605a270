// Candidate lists of rows of logits: the largest logits, or the largest keys with Gumbel noise, of
// each piece of a row, then those among the pieces. A list is of a need, or of a need and a slot.
#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/gumbel_noise.h"
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/list_cost.h"
#include "kernels/cuda/ops/list_select.h"
#include "kernels/cuda/ops/noisy_piece.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kPieceBits = 13;
static_assert(1 << kPieceBits == kPieceTokens && kMostWanted <= kRoom);

// The keys of a thread's tokens in registers. Indices are those in the piece.
struct PieceKeys {
  uint32_t key[kThreadTokens];

  template <class F>
  DEV_FUNCTION void Each(F f) const {
    DEV_UNROLL
    for (int i = 0; i < kThreadTokens; ++i) f(key[i], PieceIndex(i));
  }
};

// What the pieces chose, in memory. Indices are tokens.
struct EntryKeys {
  const ListEntry* entries;
  int count;

  template <class F>
  DEV_FUNCTION void Each(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) {
      f(entries[i].key, static_cast<uint32_t>(entries[i].token));
    }
  }
};

DEV_FUNCTION void MarkBiased(const DeviceLists& all, const ListTask& list, int64_t first) {
  static_assert(kPieceTokens / 32 <= kSelectThreads);
  const int word = static_cast<int>(threadIdx.x);
  if (word < kPieceTokens / 32) {
    uint32_t bits = 0;
    for (int i = list.bias_begin; i < list.bias_end; ++i) {
      const int64_t index = all.bias[i].token - first;
      if (index >= 0 && index < kPieceTokens && index / 32 == word) bits |= 1u << index % 32;
    }
    BiasMarks()[word] = bits;
  }
  __syncthreads();
}

DEV_FUNCTION int64_t FirstPiece(const LogitRows& rows) { return rows.first_token / kPieceTokens; }

// Block (list, piece). A piece begins with a multiple of kPieceTokens, so pairs of tokens that
// share a Philox block stay together on any rank.
DEV_KERNEL void DEV_BOUNDS(kSelectThreads, 2)
    ListEachPiece(const DeviceLists* lists, LogitRows rows) {
  dev::WaitForPrevious();
  const DeviceLists& all = *lists;
  if (static_cast<int>(blockIdx.x) >= all.list_count) return;
  const ListTask& list = all.lists[blockIdx.x];
  const int64_t first = (FirstPiece(rows) + blockIdx.y) * kPieceTokens;
  const bool has_bias = list.bias_begin < list.bias_end;
  if (has_bias) MarkBiased(all, list, first);
  const RowPiece piece = {rows.logits + list.row * rows.columns, rows.columns, first,
                          first - rows.first_token, has_bias};
  const int64_t place = blockIdx.x * int64_t{gridDim.y} + blockIdx.y;
  int32_t* const bad_token = all.bad_tokens + place;
  ListEntry* const out = all.entries + list.entries + blockIdx.y * int64_t{list.want};
  BlockReduce block;
  if (list.noisy != 0 && ListNoisyPiece(list, piece, &block, out, bad_token)) return;

  float logits[kThreadTokens];
  piece.Load(logits);
  const uint32_t bad = block.Min(FirstBad(logits, first));
  if (threadIdx.x == 0) *bad_token = static_cast<int32_t>(bad);
  piece.DropBiased(logits);
  PieceKeys keys;
  DEV_UNROLL
  for (int i = 0; i < kThreadTokens; i += 2) {
    NoisePair noise = {0.0f, 0.0f};
    if (list.noisy != 0) {
      noise = TokenNoise(list.seed, list.path_hash, list.slot,
                         static_cast<uint32_t>(first) + PieceIndex(i));
    }
    DEV_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const float logit = logits[i + odd];
      uint32_t key = KeyBits(logit);
      if (list.noisy != 0 && key != 0) {
        key = NoisyKey(list, logit, odd == 0 ? noise.even : noise.odd);
      }
      keys.key[i + odd] = key;
    }
  }
  uint32_t least = 0;
  const int count = SelectLargest(keys, list.want, kPieceBits, &block, &least,
                                  [&](int place, uint32_t key, uint32_t index) {
                                    out[place] = {key, static_cast<int32_t>(first + index)};
                                  });
  for (int i = count + static_cast<int>(threadIdx.x); i < list.want; i += kSelectThreads) {
    out[i] = {0, 0};
  }
}

// The first list of a row has its bad token and the logits of its biased tokens.
DEV_FUNCTION void WriteRowFacts(const DeviceLists& all, const ListTask& list, const float* row,
                                const LogitRows& rows, int pieces, uint32_t* record) {
  if (threadIdx.x == 0) {
    const int32_t* bad_tokens = all.bad_tokens + blockIdx.x * int64_t{pieces};
    int32_t bad = bad_tokens[0];
    for (int p = 1; p < pieces; ++p) bad = min(bad, bad_tokens[p]);
    ListHeader* header = reinterpret_cast<ListHeader*>(record);
    const bool none = bad == static_cast<int32_t>(kNoToken);
    header->bad_token = none ? -1 : bad;
    header->bad_logit = none ? 0.0f : row[bad - rows.first_token];
  }
  for (int i = static_cast<int>(threadIdx.x); i < list.bias_end - list.bias_begin;
       i += kSelectThreads) {
    const int64_t column = all.bias[list.bias_begin + i].token - rows.first_token;
    const bool held = column >= 0 && column < rows.columns;
    record[kHeaderWords + i] = __float_as_uint(held ? row[column] : 0.0f);
  }
}

constexpr int kMostRanked = 128;

// What SelectLargest does, for at most kMostRanked entries, with fewer steps that wait for each
// other: each entry counts those before it. Writes the largest first.
template <class Write>
DEV_FUNCTION int RankEntries(const EntryKeys& keys, int want, BlockReduce* block, uint32_t* least,
                             Write write) {
  const int thread = static_cast<int>(threadIdx.x);
  const ListEntry own = thread < keys.count ? keys.entries[thread] : ListEntry{0, 0};
  const int count = min(want, block->Sum(own.key != 0 ? 1 : 0));
  uint32_t lowest = 0xffffffffu;
  if (own.key != 0) {
    int rank = 0;
    for (int j = 0; j < keys.count; ++j) {
      const ListEntry other = keys.entries[j];
      rank += other.key > own.key || (other.key == own.key && other.token < own.token) ? 1 : 0;
    }
    if (rank < count) {
      write(rank, own.key, static_cast<uint32_t>(own.token));
      lowest = own.key;
    }
  }
  *least = block->Min(lowest);
  return count;
}

// Block (list).
DEV_KERNEL void DEV_BOUNDS(kSelectThreads, 2)
    MergeEachList(const DeviceLists* lists, LogitRows rows, int pieces) {
  dev::WaitForPrevious();
  const DeviceLists& all = *lists;
  if (static_cast<int>(blockIdx.x) >= all.list_count) return;
  const ListTask list = all.lists[blockIdx.x];
  const float* row = rows.logits + list.row * rows.columns;
  uint32_t* const record = all.records + list.record;
  if (list.first_of_row != 0) WriteRowFacts(all, list, row, rows, pieces, record);
  const int biased = list.first_of_row != 0 ? list.bias_end - list.bias_begin : 0;
  uint32_t* const out = record + kHeaderWords + biased;
  const EntryKeys keys = {all.entries + list.entries, pieces * list.want};
  BlockReduce block;
  uint32_t least = 0;
  const auto write = [&](int place, uint32_t, uint32_t token) {
    out[2 * place] = token;
    out[2 * place + 1] = __float_as_uint(row[token - rows.first_token]);
  };
  const int count = list.noisy != 0 && keys.count <= kMostRanked
                        ? RankEntries(keys, list.want, &block, &least, write)
                        : SelectLargest(keys, list.want, /*index_bits=*/31, &block, &least, write);
  if (threadIdx.x != 0) return;
  ListHeader* header = reinterpret_cast<ListHeader*>(record);
  header->count = count;
  header->least_key = count == 0 ? 0.0f : KeyValue(least);
}

}  // namespace

int32_t PiecesOf(const LogitRows& rows) {
  const int64_t first = rows.first_token / kPieceTokens;
  return static_cast<int32_t>(CeilDiv(rows.first_token + rows.columns, kPieceTokens) - first);
}

void ListPieces(const ListsView& lists, const LogitRows& rows, cudaStream_t stream) {
  if (lists.list_room == 0) return;
  const dim3 grid(static_cast<unsigned>(lists.list_room), static_cast<unsigned>(PiecesOf(rows)));
  dev::Declare("candidate lists of pieces", [view = lists.lists, rows] {
    // A row once for each of its lists.
    dev::Cost cost = {.dependent_loads = 3, .resident = 2};
    for (int i = 0; i < view->list_count; ++i) {
      const int64_t thread = PieceInstructions(view->lists[i].noisy != 0, view->lists[i].want);
      cost.bytes += rows.columns * int64_t{sizeof(float)} +
                    PiecesOf(rows) * view->lists[i].want * int64_t{sizeof(ListEntry)};
      cost.instructions += PiecesOf(rows) * kSelectWarps * thread;
      cost.serial_instructions = std::max(cost.serial_instructions, thread);
    }
    cost.blocks = int64_t{view->list_count} * PiecesOf(rows);
    return cost;
  });
  dev::Launch(ListEachPiece, grid, dim3(kSelectThreads), 0, stream, lists.lists, rows);
}

void MergePieces(const ListsView& lists, const LogitRows& rows, cudaStream_t stream) {
  if (lists.list_room == 0) return;
  dev::Declare("merge of candidate lists", [view = lists.lists, rows] {
    // The first pass over the entries, one that counts what a cut takes, and two that take it.
    dev::Cost cost = {.dependent_loads = 2 + 4, .serial_instructions = kSelectInstructions};
    cost.blocks = view->list_count;
    for (int i = 0; i < view->list_count; ++i) {
      const int64_t want = view->lists[i].want;
      cost.bytes +=
          PiecesOf(rows) * want * int64_t{sizeof(ListEntry)} + kHeaderWords * 4 + want * 8;
    }
    return cost;
  });
  dev::Launch(MergeEachList, dim3(static_cast<unsigned>(lists.list_room)), dim3(kSelectThreads), 0,
              stream, lists.lists, rows, PiecesOf(rows));
}

}  // namespace coppice::kernels::cuda
