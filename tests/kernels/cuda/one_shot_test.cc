// The ranks' launches run together, as interleaved grids: to the thread sanitizer each thread of each
// rank is a thread of its own, ordered by flags and barriers alone. Only in simulation.
#include "kernels/cuda/ops/one_shot.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cuda/simulator/simt.h"
#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

using dev::bf16;

// All blocks of all ranks are there at once, and the thread sanitizer knows so many threads only.
#if defined(__SANITIZE_THREAD__)
constexpr int64_t kMostFloats = 2100, kMostRows = 5, kFloatsOfEight = 100;
#else
constexpr int64_t kMostFloats = kMostOneShotFloats, kMostRows = 33, kFloatsOfEight = 1030;
#endif

// The memory of the ranks, and what each enqueues.
class TestRanks {
 public:
  explicit TestRanks(int count) : count_(count) {
    OneShotPeers peers;
    for (int r = 0; r < count; ++r) {
      inboxes_.push_back(std::make_unique<DeviceArray<float>>(2 * count * kMostOneShotFloats));
      flags_.push_back(std::make_unique<DeviceArray<uint64_t>>(
          std::vector<uint64_t>(count * kMostOneShotBlocks)));
      peers.inbox[r] = inboxes_[r]->data();
      peers.flags[r] = flags_[r]->data();
    }
    for (int r = 0; r < count; ++r) {
      peers_.push_back(std::make_unique<DeviceArray<OneShotPeers>>(std::vector{peers}));
      counts_.push_back(std::make_unique<DeviceArray<OneShotCount>>(std::vector{OneShotCount()}));
      reports_.push_back(std::make_unique<OneShotReport>());
    }
  }

  OneShotArgs Args(int rank) const {
    return {peers_[rank]->data(),      counts_[rank]->data(), reports_[rank].get(), rank, count_,
            uint64_t{600} * 1000000000};
  }
  // One launch on each of these ranks, all together.
  template <class Enqueue>
  void Run(const std::vector<int>& ranks, Enqueue enqueue) {
    std::vector<simt::Grid> grids;
    simt::CollectGrids(&grids);
    for (const int r : ranks) enqueue(r);
    simt::CollectGrids(nullptr);
    simt::Run(grids);
  }
  // Some launches of one block each on every rank, one after the other; a rank need not wait until the
  // others have ended theirs.
  template <class Enqueue>
  void RunInTurn(int launches, Enqueue enqueue) {
    std::vector<simt::Grid> grids;
    for (int r = 0; r < count_; ++r) {
      std::vector<simt::Grid> own;
      simt::CollectGrids(&own);
      for (int launch = 0; launch < launches; ++launch) enqueue(r, launch);
      simt::CollectGrids(nullptr);
      simt::Grid all = own[0];
      all.body = [own] {
        for (const simt::Grid& grid : own) {
          grid.body();
          __syncthreads();  // as the end of a launch orders its threads
        }
      };
      grids.push_back(all);
    }
    simt::Run(grids);
  }
  std::vector<int> All() const {
    std::vector<int> all;
    for (int r = 0; r < count_; ++r) all.push_back(r);
    return all;
  }
  OneShotReport& report(int rank) { return *reports_[rank]; }
  uint64_t launches(int rank) const { return (*counts_[rank])[0].launches; }

 private:
  const int count_;
  std::vector<std::unique_ptr<DeviceArray<float>>> inboxes_;
  std::vector<std::unique_ptr<DeviceArray<uint64_t>>> flags_;
  std::vector<std::unique_ptr<DeviceArray<OneShotPeers>>> peers_;
  std::vector<std::unique_ptr<DeviceArray<OneShotCount>>> counts_;
  std::vector<std::unique_ptr<OneShotReport>> reports_;
};

using Vectors = std::vector<std::unique_ptr<DeviceArray<float>>>;

Vectors RandomVectors(int ranks, int64_t count, uint64_t seed) {
  Vectors values;
  for (int r = 0; r < ranks; ++r)
    values.push_back(std::make_unique<DeviceArray<float>>(RandomValues<float>(count, seed + r)));
  return values;
}
std::vector<float> SumInRankOrder(const Vectors& values) {
  std::vector<float> sum = values[0]->Copy();
  for (size_t r = 1; r < values.size(); ++r) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*values[r])[i];
  }
  return sum;
}
void ExpectBits(const DeviceArray<float>& got, const std::vector<float>& want, const char* what) {
  ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << what;
}

// Sizes one after the other, so that blocks find inboxes that others have used.
void TestSums(int ranks, const std::vector<int64_t>& counts) {
  TestRanks test(ranks);
  uint64_t launches = 0;
  for (const int64_t count : counts) {
    if (count > kMostFloats) continue;
    ++launches;
    Vectors values = RandomVectors(ranks, count, 10 * count);
    const std::vector<float> want = SumInRankOrder(values);
    test.Run(test.All(),
             [&](int r) { OneShotSum(test.Args(r), values[r]->data(), count, nullptr); });
    for (int r = 0; r < ranks; ++r) ExpectBits(*values[r], want, "a sum");
  }
  for (int r = 0; r < ranks; ++r) EXPECT_EQ(test.launches(r), launches);
}

TEST(CudaOneShot, SumsInRankOrderOnEveryRank) {
  TestSums(2, {1, 1000, 5000, 3, 1024, 4099, 30000, 2048});
  TestSums(3, {7, 2500, 64});
  TestSums(4, {4, 3000, 1025});
  TestSums(8, {kFloatsOfEight});
}

TEST(CudaOneShot, TheLargestLaunch) {
  TestSums(2, {kMostOneShotFloats, 5, kMostOneShotFloats - 1});
}

// Few values, for tests under the thread sanitizer and in many orders.
TEST(CudaOneShot, ARankMayBeALaunchAhead) {
  constexpr int kRanks = 4, kLaunches = 7;
  constexpr int64_t kCount = 70;
  TestRanks test(kRanks);
  std::vector<Vectors> values;
  std::vector<std::vector<float>> want;
  for (int launch = 0; launch < kLaunches; ++launch) {
    values.push_back(RandomVectors(kRanks, kCount, 100 * launch));
    want.push_back(SumInRankOrder(values.back()));
  }
  test.RunInTurn(kLaunches, [&](int r, int launch) {
    OneShotSum(test.Args(r), values[launch][r]->data(), kCount, nullptr);
  });
  for (int launch = 0; launch < kLaunches; ++launch) {
    for (int r = 0; r < kRanks; ++r) ExpectBits(*values[launch][r], want[launch], "in turn");
  }
}

TEST(CudaOneShot, SmallSums) { TestSums(4, {100, 2100}); }

// With the norm in it: the bits of a sum and a norm after it.
template <class T>
void TestNorm(int ranks, int64_t rows, int64_t columns) {
  TestRanks test(ranks);
  const int64_t count = rows * columns;
  Vectors addends = RandomVectors(ranks, count, 5), x, want_x;
  std::vector<std::unique_ptr<DeviceArray<T>>> out, want_out;
  DeviceArray<float> gain(RandomValues<float>(columns, 6));
  for (int r = 0; r < ranks; ++r) {
    for (Vectors* to : {&x, &want_x})
      to->push_back(std::make_unique<DeviceArray<float>>(RandomValues<float>(count, 7)));
    for (auto* to : {&out, &want_out}) to->push_back(std::make_unique<DeviceArray<T>>(count));
  }
  const auto args = [&](DeviceArray<float>& residual, const DeviceArray<float>& addend,
                        DeviceArray<T>& to) {
    AddNormArgs norm;
    norm.x = residual.data();
    norm.addend = addend.data();
    norm.norm.gain = gain.data();
    norm.out = to.data();
    norm.dtype = kTypeOf<T>;
    norm.rows = rows;
    norm.columns = columns;
    norm.norm.epsilon = 1e-5f;
    return norm;
  };
  test.Run(test.All(), [&](int r) {
    OneShotSumAndNorm(test.Args(r), args(*x[r], *addends[r], *out[r]), nullptr);
  });
  const DeviceArray<float> sum(SumInRankOrder(addends));
  for (int r = 0; r < ranks; ++r) {
    AddNorm(args(*want_x[r], sum, *want_out[r]), nullptr);
    WaitForDevice();
    ExpectBits(*x[r], want_x[r]->Copy(), "residual");
    ASSERT_EQ(std::memcmp(out[r]->data(), want_out[r]->data(), count * sizeof(T)), 0);
  }
}

TEST(CudaOneShot, NormsAsASumAndANorm) {
  TestNorm<bf16>(2, 5, 1100);
  TestNorm<float>(4, 3, 70);  // columns one by one
  TestNorm<float>(2, kMostRows, 64);
}

// ---- Ranks that do not come

TEST(CudaOneShot, ALaunchEndsWhenTheHostSaysSo) {
  TestRanks test(3);
  test.report(0).abort = 1;
  Vectors values = RandomVectors(3, 100, 1);
  const std::vector<float> before = values[0]->Copy();
  test.Run({0}, [&](int r) { OneShotSum(test.Args(r), values[r]->data(), 100, nullptr); });
  ExpectBits(*values[0], before, "an aborted sum");
  EXPECT_EQ(test.report(0).missing[1] + test.report(0).missing[2], 0u);
}

TEST(CudaOneShot, AfterItsTimeALaunchNamesWhoIsMissing) {
  TestRanks test(3);
  Vectors values = RandomVectors(3, 100, 1);
  test.Run({0, 2}, [&](int r) {
    OneShotArgs args = test.Args(r);
    args.limit_ns = 20 * 1000000;
    OneShotSum(args, values[r]->data(), 100, nullptr);
  });
  for (const int r : {0, 2}) {
    EXPECT_EQ(test.report(r).abort, 1u);
    EXPECT_EQ(test.report(r).missing[1], 1u);
    EXPECT_EQ(test.report(r).missing[2 - r], 0u);
  }
  // What follows ends at once, though nobody comes.
  test.Run({0}, [&](int r) { OneShotSum(test.Args(r), values[r]->data(), 100, nullptr); });
}

}  // namespace
}  // namespace coppice::kernels::cuda
