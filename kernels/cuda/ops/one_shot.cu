#include <algorithm>

#include "kernels/cuda/ops/norm_row.h"
#include "kernels/cuda/ops/one_shot.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = kNormThreads;
constexpr int64_t kLeastPiece = kThreads * 4;  // floats per block, at least
// Reads of a flag between two looks at the clock and at host memory.
constexpr int kAsksBetweenLooks = 16;

// One block's part of a launch.
struct Exchange {
  const OneShotArgs& args;
  const uint64_t launch;  // number of the launch, counted from 1

  DEV_FUNCTION bool Leads() const { return threadIdx.x == 0; }
  DEV_FUNCTION float* Inbox(int of, int from) const {
    const int64_t box = static_cast<int64_t>(launch % 2) * args.ranks + from;
    return args.peers->inbox[of] + box * kMostOneShotFloats;
  }
  DEV_FUNCTION uint64_t* Flag(int of, int from) const {
    return args.peers->flags[of] + from * kMostOneShotBlocks + blockIdx.x;
  }

  // Calls f(i) for each N values [begin, end) of the block, thread by thread.
  template <int N, class F>
  DEV_FUNCTION void ForEach(int64_t begin, int64_t end, F f) const {
    for (int64_t i = begin + int64_t{threadIdx.x} * N; i < end; i += kThreads * N) f(i);
  }

  // Each rank begins with the next rank, so that no two write to the same one first.
  template <int N>
  DEV_FUNCTION void Send(const float* values, int64_t begin, int64_t end) const {
    for (int step = 1; step < args.ranks; ++step) {
      float* const inbox = Inbox((args.rank + step) % args.ranks, args.rank);
      ForEach<N>(begin, end,
                 [&](int64_t i) { dev::StorePack(inbox + i, dev::LoadPack<N>(values + i)); });
    }
  }

  // Whether the other ranks' pieces have arrived. came [ranks] belongs to the block.
  DEV_FUNCTION bool Meet(uint32_t* came) const {
    __syncthreads();  // the pieces of all threads are written
    const int other = static_cast<int>(threadIdx.x);
    if (other < args.ranks) {
      if (other != args.rank) dev::StoreReleaseSystem(Flag(other, args.rank), launch);
      came[other] = other == args.rank || Await(other);
    }
    __syncthreads();
    bool all = true;
    for (int r = 0; r < args.ranks; ++r) all = all && came[r] != 0;
    return all;
  }
  // The report is in host memory, and reading it takes longer than the awaited event, so a flag is
  // read several times before.
  DEV_FUNCTION bool Await(int other) const {
    const uint64_t* const flag = Flag(args.rank, other);
    uint64_t begin_ns = 0;
    for (int asked = 1; dev::LoadAcquireSystem(flag) < launch; ++asked) {
      if (asked % kAsksBetweenLooks != 0) continue;
      if (dev::LoadRelaxedSystem(&args.report->abort) != 0) return false;
      const uint64_t now_ns = dev::NanoSeconds();
      if (begin_ns == 0) begin_ns = now_ns;
      if (now_ns - begin_ns < args.limit_ns) continue;
      dev::StoreRelaxedSystem(&args.report->missing[other], 1);
      dev::StoreRelaxedSystem(&args.report->abort, 1);
      return false;
    }
    return true;
  }

  DEV_FUNCTION const float* PartOf(int from, const float* values) const {
    return from == args.rank ? values : Inbox(args.rank, from);
  }

  // The sum in rank order.
  template <int N>
  DEV_FUNCTION dev::Pack<float, N> SumAt(const float* values, int64_t i) const {
    dev::Pack<float, N> sum = dev::LoadPack<N>(PartOf(0, values) + i);
    for (int from = 1; from < args.ranks; ++from) {
      const dev::Pack<float, N> next = dev::LoadPack<N>(PartOf(from, values) + i);
      for (int e = 0; e < N; ++e) sum.value[e] += next.value[e];
    }
    return sum;
  }

  // The block that ends last counts the launch.
  DEV_FUNCTION void End() const {
    __syncthreads();
    if (!Leads() || dev::AtomicAddAcqRel(&args.count->done, 1) + 1 != gridDim.x) return;
    args.count->done = 0;
    args.count->launches = launch;
  }
};

template <int N>
DEV_KERNEL void DEV_BOUNDS(kThreads, 2)
    SumPieces(OneShotArgs args, float* values, int64_t count, int64_t piece) {
  dev::WaitForPrevious();
  DEV_SHARED(uint32_t, came, kMostOneShotRanks);
  const Exchange exchange = {args, args.count->launches + 1};
  const int64_t begin = blockIdx.x * piece;
  const int64_t end = begin + piece < count ? begin + piece : count;
  exchange.Send<N>(values, begin, end);
  if (exchange.Meet(came)) {
    exchange.ForEach<N>(
        begin, end, [&](int64_t i) { dev::StorePack(values + i, exchange.SumAt<N>(values, i)); });
  }
  exchange.End();
}

// The sum over the ranks as what is added to a row (NormRow).
template <int N>
struct SumAddend {
  const Exchange& exchange;
  const float* values;  // this rank's, of all rows
  int64_t begin;        // of the row

  DEV_FUNCTION dev::Pack<float, N> At(int64_t c) const {
    return exchange.SumAt<N>(values, begin + c);
  }
  // Rank after rank, so that the loads of one rank are under way together.
  DEV_FUNCTION void Group(int first, int64_t columns,
                          dev::Pack<float, N> (&sum)[HeldRow<N>::kGroup]) const {
    using Held = HeldRow<N>;
    for (int from = 0; from < exchange.args.ranks; ++from) {
      const float* const part = exchange.PartOf(from, values) + begin;
      dev::Pack<float, N> next[Held::kGroup] = {};
      Held::EachOf(first, columns,
                   [&](int j, int64_t c) { next[j - first] = dev::LoadPack<N>(part + c); });
      Held::EachOf(first, columns, [&](int j, int64_t) {
        dev::Pack<float, N>& of = sum[j - first];
        for (int e = 0; e < N; ++e) {
          of.value[e] =
              from == 0 ? next[j - first].value[e] : of.value[e] + next[j - first].value[e];
        }
      });
    }
  }
};

// One block a row.
template <class T, int N>
DEV_KERNEL void DEV_BOUNDS(kThreads, 2) SumAndNormRows(OneShotArgs args, AddNormArgs norm) {
  dev::WaitForPrevious();
  DEV_SHARED(uint32_t, came, kMostOneShotRanks);
  const Exchange exchange = {args, args.count->launches + 1};
  const int64_t begin = blockIdx.x * norm.columns;
  exchange.Send<N>(norm.addend, begin, begin + norm.columns);
  if (exchange.Meet(came)) {
    NormRow<T, N>(norm, blockIdx.x, /*adds=*/true, SumAddend<N>{exchange, norm.addend, begin});
  }
  exchange.End();
}

// Each value is read, written to the other ranks, read where they have written theirs.
dev::Cost CostOf(int64_t count, int ranks) {
  return {count * int64_t{sizeof(float)} * (1 + 2 * (ranks - 1)), count * (ranks - 1)};
}

}  // namespace

void OneShotSum(const OneShotArgs& args, float* values, int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  const int64_t least = CeilDiv(count, kMostOneShotBlocks);
  const int64_t piece = CeilDiv(std::max(least, kLeastPiece), 4) * int64_t{4};
  dev::Declare("sum over ranks", [count, ranks = args.ranks] {
    dev::Cost cost = CostOf(count, ranks);
    cost.bytes += count * int64_t{sizeof(float)};
    return cost;
  });
  dev::Launch(count % 4 == 0 ? SumPieces<4> : SumPieces<1>, dim3(CeilDiv(count, piece)),
              dim3(kThreads), 0, stream, args, values, count, piece);
}

void OneShotSumAndNorm(const OneShotArgs& args, const AddNormArgs& norm, cudaStream_t stream) {
  if (norm.rows == 0) return;
  WithType(norm.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("sum over ranks and norm", [norm, ranks = args.ranks] {
      const int64_t elements = norm.rows * norm.columns;
      dev::Cost cost = CostOf(elements, ranks);
      cost.bytes += elements * int64_t{3 * sizeof(float) + sizeof(T)};
      cost.flops += 4 * elements;
      return cost;
    });
    const auto kernel = norm.columns % 4 == 0 ? SumAndNormRows<T, 4> : SumAndNormRows<T, 1>;
    dev::Launch(kernel, dim3(static_cast<unsigned>(norm.rows)), dim3(kThreads), 0, stream, args,
                norm);
  });
}

}  // namespace coppice::kernels::cuda
