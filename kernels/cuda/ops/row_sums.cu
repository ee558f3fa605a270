// Log-sum-exps of rows of logits in f64: of each chunk the largest x and the sum of exp(x -
// largest), operation for operation as sampling/row_kernels.cc has them, so the bits are the same.
#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/exact_exp.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

using dev::AddRn;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / dev::kWarpSize;
constexpr int kAccumulators = 8;
constexpr int kTile = 4 * (kThreads - dev::kWarpSize);  // terms; the first warp adds, the others
                                                        // compute the next
static_assert(kTile % kAccumulators == 0);

DEV_FUNCTION double Infinity() { return __longlong_as_double(0x7ff0000000000000); }

// The tokens [begin, end) of one row, as f64 keys without noise.
struct Chunk {
  const float* row;  // logits of this rank's tokens
  int64_t first_token, begin, end;
  const TokenBias* bias;
  int biases;
  double temperature;
  const uint32_t* marks;  // marks tokens that may have a bias; nullptr = no token has one

  // NaN counts as -inf, +inf as the largest float.
  DEV_FUNCTION float Logit(int64_t token) const {
    const float logit = dev::LoadInput(row + (token - first_token));
    return logit == logit ? fminf(logit, 3.402823466e38f) : __uint_as_float(0xff800000u);
  }
  DEV_FUNCTION bool MayHaveBias(int64_t token) const {
    return marks != nullptr && (marks[token % kPieceTokens / 32] >> token % 32 & 1) != 0;
  }
  DEV_FUNCTION double Tempered(double x) const { return temperature == 1.0 ? x : x / temperature; }
  DEV_FUNCTION double Key(int64_t token) const {
    double x = static_cast<double>(Logit(token));
    if (MayHaveBias(token)) {
      for (int i = 0; i < biases; ++i) {
        if (bias[i].token == token) x = AddRn(x, bias[i].bias);
      }
    }
    return Tempered(x);
  }
};

// Bits of token % kPieceTokens, for all tokens with a bias. Other tokens may share them.
DEV_FUNCTION const uint32_t* MarkBiased(const TokenBias* bias, int biases) {
  DEV_SHARED(uint32_t, marks, kThreads);
  static_assert(kThreads * 32 == kPieceTokens);
  const int word = static_cast<int>(threadIdx.x);
  uint32_t bits = 0;
  for (int i = 0; i < biases; ++i) {
    const int index = bias[i].token % kPieceTokens;
    if (index / 32 == word) bits |= 1u << index % 32;
  }
  marks[word] = bits;
  __syncthreads();
  return marks;
}

// Dividing keeps the order, so the largest quotient of tokens without bias is that of the largest.
DEV_FUNCTION double LargestKey(const Chunk& chunk) {
  DEV_SHARED(double, largest, kWarps);
  float logit = __uint_as_float(0xff800000u);
  double key = -Infinity();
  for (int64_t token = chunk.begin + threadIdx.x; token < chunk.end; token += kThreads) {
    if (chunk.MayHaveBias(token)) {
      key = fmax(key, chunk.Key(token));
    } else {
      logit = fmaxf(logit, chunk.Logit(token));
    }
  }
  key = fmax(key, chunk.Tempered(static_cast<double>(logit)));
  for (int step = dev::kWarpSize / 2; step > 0; step /= 2) {
    key = fmax(key, __shfl_xor_sync(dev::kFullWarp, key, step));
  }
  if (threadIdx.x % dev::kWarpSize == 0) largest[threadIdx.x / dev::kWarpSize] = key;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) key = fmax(key, largest[w]);
  return key;
}

// Term i of the chunk goes to accumulator i % 8, in order. The value is that of thread 0.
DEV_FUNCTION double SumOfExp(const Chunk& chunk, double max) {
  DEV_SHARED(double, terms, 2 * kTile);
  DEV_SHARED(double, sums, kAccumulators);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t count = chunk.end - chunk.begin;
  double sum = 0.0;
  // Tile t is computed while tile t - 1 is added.
  for (int64_t tile = 0; tile < count + kTile; tile += kTile) {
    const int64_t turn = tile / kTile % 2;
    if (thread >= dev::kWarpSize) {
      double* const computed = terms + turn * kTile;
      for (int i = thread - dev::kWarpSize; i < kTile; i += kThreads - dev::kWarpSize) {
        if (tile + i < count) {
          computed[i] = ExpNonPositive(AddRn(chunk.Key(chunk.begin + tile + i), -max));
        }
      }
    } else if (thread < kAccumulators && tile > 0) {
      const double* const added = terms + (1 - turn) * kTile;
      const int64_t left = count - (tile - kTile);
      const int n = left < kTile ? static_cast<int>(left) : kTile;
      for (int i = thread; i < n; i += kAccumulators) sum = AddRn(sum, added[i]);
    }
    __syncthreads();
  }
  if (thread >= dev::kWarpSize) return 0.0;
  if (thread < kAccumulators) sums[thread] = sum;
  __syncwarp();
  return AddRn(AddRn(AddRn(sums[0], sums[4]), AddRn(sums[2], sums[6])),
               AddRn(AddRn(sums[1], sums[5]), AddRn(sums[3], sums[7])));
}

// Block (sum, chunk).
DEV_KERNEL void DEV_BOUNDS(kThreads, 4) SumChunks(const DeviceLists* lists, LogitRows rows) {
  dev::WaitForPrevious();
  const DeviceLists& all = *lists;
  if (static_cast<int>(blockIdx.x) >= all.sum_count) return;
  const SumTask task = all.sums[blockIdx.x];
  const int64_t c = blockIdx.y;
  Chunk chunk;
  chunk.row = rows.logits + task.row * rows.columns;
  chunk.first_token = rows.first_token;
  chunk.begin = c * rows.vocab / kLseChunks;
  chunk.end = (c + 1) * rows.vocab / kLseChunks;
  chunk.bias = all.bias + task.bias_begin;
  chunk.biases = task.bias_end - task.bias_begin;
  chunk.temperature = task.temperature;
  chunk.marks = chunk.biases > 0 ? MarkBiased(chunk.bias, chunk.biases) : nullptr;
  const bool held = chunk.begin >= rows.first_token && chunk.end <= rows.first_token + rows.columns;
  double max = -Infinity(), sum = 0.0;
  if (held) max = LargestKey(chunk);
  if (max != -Infinity()) sum = SumOfExp(chunk, max);
  if (threadIdx.x != 0) return;
  all.chunk_sums[blockIdx.x].max[c] = max;
  all.chunk_sums[blockIdx.x].sum[c] = sum;
}

}  // namespace

void SumRows(const ListsView& lists, const LogitRows& rows, cudaStream_t stream) {
  if (lists.sum_room == 0) return;
  dev::Declare("sums of logits", [view = lists.lists, rows] {
    // A row is read for its largest key and again for its sum; 40 operations an exponential.
    const int64_t terms = view->sum_count * rows.columns;
    return dev::Cost{
        2 * terms * int64_t{sizeof(float)} + view->sum_count * int64_t{sizeof(ChunkSums)},
        40 * terms};
  });
  dev::Launch(SumChunks, dim3(static_cast<unsigned>(lists.sum_room), kLseChunks), dim3(kThreads), 0,
              stream, lists.lists, rows);
}

}  // namespace coppice::kernels::cuda
