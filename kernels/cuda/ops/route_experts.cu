// The experts of each row (experts.h): scores, the choice, and the pairs in the order of the experts.
#include "kernels/cuda/ops/exact_exp.h"
#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

// Rows of the step that are no padding.
DEV_FUNCTION int32_t RowsOf(const DeviceStep* step, const ExpertsArgs& args) {
  return args.after_gather ? step->needs : step->rows;
}

DEV_FUNCTION int CountBits(uint32_t bits) {
  bits -= bits >> 1 & 0x55555555u;
  bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
  return static_cast<int>(((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}
DEV_FUNCTION int CountBelow(uint32_t bits, int lane) {
  return CountBits(bits & ((1u << lane) - 1u));
}

// ---- Scores

constexpr int kScoreThreads = 128, kScoreRows = 8;
constexpr int kScoreWarps = kScoreThreads / dev::kWarpSize;

// Block (kExperts experts, kScoreRows rows). Thread t sums the inputs t N, t N + 1, ..., (t +
// kScoreThreads) N, ...; then lanes and warps are added in one order: the bits do not depend on
// kExperts.
template <class T, int N, int kExperts>
DEV_KERNEL void ScoreRows(const DeviceStep* step, ExpertsArgs args) {
  dev::WaitForPrevious();
  constexpr int kSums = kExperts * kScoreRows;
  DEV_SHARED(float, parts, kScoreWarps* kSums);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_expert = int64_t{kExperts} * blockIdx.x;
  const int64_t first_row = int64_t{kScoreRows} * blockIdx.y;
  const int64_t rows = RowsOf(step, args);
  if (first_row >= rows) return;
  float sums[kExperts][kScoreRows] = {};
  for (int64_t c = int64_t{thread} * N; c < args.columns; c += kScoreThreads * N) {
    dev::Pack<T, N> w[kExperts];
    DEV_UNROLL
    for (int e = 0; e < kExperts; ++e) {  // what is beyond the last is computed and left
      const int64_t expert = min(first_expert + e, int64_t{args.experts} - 1);
      w[e] = dev::LoadPack<N>(static_cast<const T*>(args.router) + expert * args.columns + c);
    }
    DEV_UNROLL
    for (int r = 0; r < kScoreRows; ++r) {
      const int64_t row = min(first_row + r, rows - 1);
      const dev::Pack<T, N> x =
          dev::LoadPack<N>(static_cast<const T*>(args.x) + row * args.columns + c);
      DEV_UNROLL
      for (int e = 0; e < kExperts; ++e) {
        for (int i = 0; i < N; ++i)
          sums[e][r] = fmaf(dev::ToFloat(x.value[i]), dev::ToFloat(w[e].value[i]), sums[e][r]);
      }
    }
  }
  DEV_UNROLL
  for (int e = 0; e < kExperts; ++e) {
    DEV_UNROLL
    for (int r = 0; r < kScoreRows; ++r) {
      const float sum = dev::WarpSum(sums[e][r]);
      if (thread % dev::kWarpSize == 0)
        parts[thread / dev::kWarpSize * kSums + e * kScoreRows + r] = sum;
    }
  }
  __syncthreads();
  if (thread >= kSums) return;
  const int64_t expert = first_expert + thread / kScoreRows;
  const int64_t row = first_row + thread % kScoreRows;
  if (expert >= args.experts || row >= rows) return;
  float sum = 0.0f;
  for (int w = 0; w < kScoreWarps; ++w) sum += parts[w * kSums + thread];
  args.lists.scores[row * args.experts + expert] = sum;
}

template <class T, int kExperts>
void LaunchScores(const StepView& step, const ExpertsArgs& args, cudaStream_t stream) {
  const dim3 grid(CeilDiv(args.experts, kExperts), CeilDiv(args.rows, kScoreRows));
  const auto kernel = args.columns % 4 == 0 ? ScoreRows<T, 4, kExperts> : ScoreRows<T, 1, kExperts>;
  dev::Declare("scores of experts", [args] {
    const int64_t scores = int64_t{args.rows} * args.experts;
    const int64_t loads = int64_t{args.experts} * CeilDiv(args.rows, kScoreRows) +
                          int64_t{args.rows} * CeilDiv(args.experts, kExperts);
    return dev::Cost{int64_t{sizeof(T)} * loads * args.columns + 4 * scores,
                     2 * scores * args.columns};
  });
  dev::Launch(kernel, grid, dim3(kScoreThreads), 0, stream, step.step, args);
}

// ---- The choice

constexpr int kChoiceThreads = 128, kChoiceRows = kChoiceThreads / dev::kWarpSize;

// An expert of a row. Of equal scores the lower number comes first.
struct Scored {
  float score = -INFINITY;
  int32_t expert = INT32_MAX;  // none: comes after all others

  DEV_FUNCTION bool Before(const Scored& other) const {
    return score > other.score || (score == other.score && expert < other.expert);
  }
};

// The experts of one row, by one warp.
struct RowChoice {
  const ExpertsArgs& args;
  const int64_t row;
  const float* const scores;

  DEV_FUNCTION int Lane() const { return static_cast<int>(threadIdx.x % dev::kWarpSize); }

  // The first behind `last`.
  DEV_FUNCTION Scored Next(bool is_first, const Scored& last) const {
    Scored best;
    for (int32_t e = Lane(); e < args.experts; e += dev::kWarpSize) {
      const Scored scored = {scores[e], e};
      if ((is_first || last.Before(scored)) && scored.Before(best)) best = scored;
    }
    for (int step = dev::kWarpSize / 2; step > 0; step /= 2) {
      const Scored other = {__shfl_xor_sync(dev::kFullWarp, best.score, step),
                            __shfl_xor_sync(dev::kFullWarp, best.expert, step)};
      if (other.Before(best)) best = other;
    }
    return best;
  }
  DEV_FUNCTION bool Ordered() const {
    bool numbers = true;
    for (int32_t e = Lane(); e < args.experts; e += dev::kWarpSize)
      numbers = numbers && scores[e] == scores[e];
    return __all_sync(dev::kFullWarp, numbers);
  }
  DEV_FUNCTION double Exp(int32_t expert, float largest) const {
    return ExpNonPositive(dev::AddRn(static_cast<double>(scores[expert]), -double{largest}));
  }

  // Without an order the first experts are chosen, with shares that are not numbers.
  DEV_FUNCTION void Choose() const {
    const bool ordered = Ordered();
    Scored last;
    float largest = 0.0f;
    if (ordered) {
      for (int i = 0; i < args.chosen; ++i) {
        last = Next(i == 0, last);
        if (i == 0) largest = last.score;
      }
    }
    const auto takes = [&](int32_t e) {
      if (e >= args.experts) return false;
      return ordered ? !last.Before({scores[e], e}) : e < args.chosen;
    };
    double whole = 0.0;  // what the shares are parts of
    for (int32_t e = Lane(); ordered && e < args.experts; e += dev::kWarpSize) {
      if (!args.normalised || takes(e)) whole = dev::AddRn(whole, Exp(e, largest));
    }
    for (int step = dev::kWarpSize / 2; step > 0; step /= 2)
      whole = dev::AddRn(whole, __shfl_xor_sync(dev::kFullWarp, whole, step));
    int64_t at = row * args.chosen;
    for (int32_t first = 0; first < args.experts; first += dev::kWarpSize) {
      const int32_t e = first + Lane();
      const bool taken = takes(e);
      const uint32_t votes = __ballot_sync(dev::kFullWarp, taken);
      if (taken) {
        const int64_t place = at + CountBelow(votes, Lane());
        args.lists.chosen[place] = e;
        args.lists.shares[place] =
            ordered ? static_cast<float>(Exp(e, largest) / whole) : __uint_as_float(0x7fc00000u);
      }
      at += CountBits(votes);
    }
  }
};

DEV_KERNEL void ChooseRows(const DeviceStep* step, ExpertsArgs args) {
  dev::WaitForPrevious();
  const int64_t row = int64_t{kChoiceRows} * blockIdx.x + threadIdx.x / dev::kWarpSize;
  if (row >= RowsOf(step, args)) return;
  RowChoice{args, row, args.lists.scores + row * args.experts}.Choose();
}

// ---- The pairs in the order of the experts

constexpr int kListThreads = 1024, kListWarps = kListThreads / dev::kWarpSize;

// Pairs of one expert, by one warp; visit(pair in the order of rows, its index among those).
template <class Visit>
DEV_FUNCTION int32_t VisitPairs(const ExpertsArgs& args, int32_t pairs, int32_t expert,
                                const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x % dev::kWarpSize);
  int32_t count = 0;
  for (int32_t first = 0; first < pairs; first += dev::kWarpSize) {
    const int32_t i = first + lane;
    const bool its = i < pairs && args.lists.chosen[i] == expert;
    const uint32_t votes = __ballot_sync(dev::kFullWarp, its);
    if (its) visit(i, count + CountBelow(votes, lane));
    count += CountBits(votes);
  }
  return count;
}

// begin[e + 1] is the number of pairs of expert e, and becomes where they end.
DEV_FUNCTION void SumCounts(const ExpertsArgs& args) {
  const int lane = static_cast<int>(threadIdx.x);
  int32_t before = 0, used = 0;
  for (int32_t first = 0; first < args.experts; first += dev::kWarpSize) {
    const int32_t e = first + lane;
    const int32_t count = e < args.experts ? args.lists.begin[e + 1] : 0;
    const uint32_t votes = __ballot_sync(dev::kFullWarp, count > 0);
    int32_t sum = count;
    for (int step = 1; step < dev::kWarpSize; step *= 2) {
      const int32_t lower = __shfl_up_sync(dev::kFullWarp, sum, step);
      if (lane >= step) sum += lower;
    }
    if (e < args.experts) args.lists.begin[e + 1] = before + sum;
    if (count > 0) args.lists.used[1 + used + CountBelow(votes, lane)] = e;
    before += __shfl_sync(dev::kFullWarp, sum, dev::kWarpSize - 1);
    used += CountBits(votes);
  }
  if (lane == 0) {
    args.lists.begin[0] = 0;
    args.lists.used[0] = used;
  }
}

// One block.
DEV_KERNEL void DEV_BOUNDS(kListThreads, 1) ListPairs(const DeviceStep* step, ExpertsArgs args) {
  dev::WaitForPrevious();
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int32_t pairs = RowsOf(step, args) * args.chosen;
  for (int32_t e = warp; e < args.experts; e += kListWarps) {
    const int32_t count = VisitPairs(args, pairs, e, [](int32_t, int32_t) {});
    if (threadIdx.x % dev::kWarpSize == 0) args.lists.begin[e + 1] = count;
  }
  __syncthreads();
  if (warp == 0) SumCounts(args);
  __syncthreads();
  for (int32_t e = warp; e < args.experts; e += kListWarps) {
    const int32_t begin = args.lists.begin[e];
    if (begin == args.lists.begin[e + 1]) continue;
    VisitPairs(args, pairs, e, [&](int32_t pair, int32_t index) {
      args.lists.source[begin + index] = pair / args.chosen;
      args.lists.place[pair] = begin + index;
    });
  }
}

// ---- The sum over the experts of a row

constexpr int kShareThreads = 256;

// Block (row, piece of kShareThreads * N columns).
template <int N>
DEV_KERNEL void AddPairs(const DeviceStep* step, ExpertsArgs args) {
  dev::WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int64_t c = (int64_t{blockIdx.y} * kShareThreads + threadIdx.x) * N;
  if (c >= args.columns) return;
  dev::Pack<float, N> sum = {};
  if (row < RowsOf(step, args)) {
    for (int64_t i = row * args.chosen; i < (row + 1) * args.chosen; ++i) {
      const float share = args.lists.shares[i];
      const int64_t pair = args.lists.place[i];
      const dev::Pack<float, N> output = dev::LoadPack<N>(args.outputs + pair * args.columns + c);
      for (int k = 0; k < N; ++k) sum.value[k] = fmaf(share, output.value[k], sum.value[k]);
    }
  }
  dev::StorePack(args.out + row * args.columns + c, sum);
}

}  // namespace

void ScoreExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream) {
  // Few rows: a block for each expert, to keep the device busy. Many: the rows are read less often.
  constexpr int kFewRows = 32;
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    args.rows <= kFewRows ? LaunchScores<T, 1>(step, args, stream)
                          : LaunchScores<T, 4>(step, args, stream);
  });
}

void ChooseExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream) {
  dev::Declare("choice of experts", [args] {
    // The scores once for each choice, for the largest, the sum and the shares.
    const int64_t scores = int64_t{args.rows} * args.experts;
    return dev::Cost{4 * scores * (args.chosen + 3) + 8 * args.pairs(), 30 * scores};
  });
  dev::Launch(ChooseRows, dim3(CeilDiv(args.rows, kChoiceRows)), dim3(kChoiceThreads), 0, stream,
              step.step, args);
}

void ListExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream) {
  dev::Declare("list of experts", [args] {
    return dev::Cost{4 * (args.pairs() * (args.experts + args.most_used() + 2) + 4 * args.experts),
                     0};
  });
  dev::Launch(ListPairs, dim3(1), dim3(kListThreads), 0, stream, step.step, args);
}

void AddShares(const StepView& step, const ExpertsArgs& args, cudaStream_t stream) {
  const bool whole = args.columns % 4 == 0;
  const dim3 grid(static_cast<unsigned>(args.rows),
                  CeilDiv(args.columns, kShareThreads * (whole ? 4 : 1)));
  dev::Declare("sum of experts", [args] {
    return dev::Cost{4 * args.columns * (args.pairs() + args.rows),
                     2 * args.columns * args.pairs()};
  });
  dev::Launch(whole ? AddPairs<4> : AddPairs<1>, grid, dim3(kShareThreads), 0, stream, step.step,
              args);
}

ActivateArgs ActivationOf(const ExpertsArgs& args) {
  return {args.activation, /*gated=*/true, args.gate_up_out, args.activated,
          args.dtype,      args.pairs(),   args.inner};
}

}  // namespace coppice::kernels::cuda
