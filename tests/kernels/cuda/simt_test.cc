// The simulator itself: what it computes, and that it reports what is wrong.
#include <algorithm>
#include <functional>
#include <utility>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

DEV_KERNEL void NumberThreads(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned size = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * size + thread] = static_cast<int>(block * size + thread);
}

TEST(Simt, EveryThreadOfEveryBlockRuns) {
  DeviceArray<int> out(2 * 3 * 4 * 5 * 3 * 2);
  dev::Launch(NumberThreads, dim3(2, 3, 4), dim3(5, 3, 2), 0, nullptr, out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<int>(i));
}

// Every warp operation once; lane l gives l + 100 w.
DEV_KERNEL void UseWarp(int* out) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int value = lane + thread / 32 * 100;
  int* mine = out + thread * 12;
  mine[0] = __shfl_sync(dev::kFullWarp, value, 5);
  mine[1] = __shfl_xor_sync(dev::kFullWarp, value, 3);
  mine[2] = __shfl_up_sync(dev::kFullWarp, value, 2);
  mine[3] = __shfl_down_sync(dev::kFullWarp, value, 30);
  mine[4] = static_cast<int>(__ballot_sync(dev::kFullWarp, lane % 3 == 0));
  mine[5] = __any_sync(dev::kFullWarp, lane == 31);
  mine[6] = __any_sync(dev::kFullWarp, false);
  mine[7] = __all_sync(dev::kFullWarp, lane < 31);
  mine[8] = __all_sync(dev::kFullWarp, true);
  mine[9] = __reduce_add_sync(dev::kFullWarp, lane);
  mine[10] = __reduce_max_sync(dev::kFullWarp, value);
  mine[11] = __reduce_min_sync(dev::kFullWarp, value);
}

TEST(Simt, WarpOperations) {
  DeviceArray<int> out(64 * 12);
  dev::Launch(UseWarp, dim3(1), dim3(64), 0, nullptr, out.data());
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32, base = thread / 32 * 100;
    const std::vector<int> want = {base + 5,
                                   base + (lane ^ 3),
                                   base + (lane < 2 ? lane : lane - 2),
                                   base + (lane < 2 ? lane + 30 : lane),
                                   0x49249249,
                                   1,
                                   0,
                                   0,
                                   1,
                                   496,
                                   base + 31,
                                   base};
    for (int i = 0; i < 12; ++i) ASSERT_EQ(out[thread * 12 + i], want[i]) << thread << " " << i;
  }
}

// One tile d = a b by ldmatrix and mma; b is given by rows of 8 columns.
DEV_KERNEL void MultiplyTile(const dev::bf16* a, const dev::bf16* b, float* d) {
  DEV_SHARED(dev::bf16, tile_a, 16 * 16);
  DEV_SHARED(dev::bf16, tile_b, 32 * 8);  // the second half is zero
  const int lane = static_cast<int>(threadIdx.x);
  dev::CopyAsync16(tile_a + lane * 8, a + lane * 8);
  dev::CopyAsync16(tile_b + lane * 8, b + lane % 16 * 8, lane < 16);
  dev::CopyCommit();
  dev::CopyWait<0>();
  __syncthreads();
  uint32_t fragment_a[4], fragment_b[4];
  dev::LoadMatrix4(fragment_a, tile_a + lane % 16 * 16 + lane / 16 * 8);
  dev::LoadMatrix4Transposed(fragment_b, tile_b + lane % 16 * 8);
  float sum[4] = {0, 0, 0, 0};
  const uint32_t pair[2] = {fragment_b[0], fragment_b[1]};
  dev::Mma<dev::bf16>(sum, fragment_a, pair);
  sum[0] += dev::ToFloat(tile_b[128 + lane * 4]);
  for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

TEST(Simt, MatrixInstructionsMultiply) {
  DeviceArray<dev::bf16> a(RandomValues<dev::bf16>(256, 1)), b(RandomValues<dev::bf16>(128, 2));
  DeviceArray<float> d(128);
  dev::Launch(MultiplyTile, dim3(1), dim3(32), 0, nullptr, a.data(), b.data(), d.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      double want = 0;
      for (int k = 0; k < 16; ++k) {
        want += double{dev::ToFloat(a[row * 16 + k])} * dev::ToFloat(b[k * 8 + column]);
      }
      ASSERT_NEAR(d[row * 8 + column], want, 1e-5) << row << " " << column;
    }
  }
}

std::vector<std::function<void()>>* queued;

TEST(Simt, LaunchesGoThroughTheHook) {
  std::vector<std::function<void()>> launches;
  queued = &launches;
  simt::SetEnqueue([](void*, simt::LaunchKind, std::function<void()> work) {
    queued->push_back(std::move(work));
  });
  DeviceArray<int> out(30);
  dev::Launch(NumberThreads, dim3(1), dim3(30), 0, nullptr, out.data());
  EXPECT_EQ(out[29], -1);
  simt::SetEnqueue(nullptr);
  ASSERT_EQ(launches.size(), 1u);
  launches[0]();
  EXPECT_EQ(out[29], 29);
}

// Blocks of one launch that take turns by an atomic count.
DEV_KERNEL void CountArrivals(uint32_t* count, uint32_t* order) {
  if (threadIdx.x == 0) order[dev::AtomicAddAcqRel(count, 1)] = blockIdx.x;
}

TEST(Simt, AtomicsCount) {
  DeviceArray<uint32_t> count(std::vector<uint32_t>(1, 0)), order(7);
  dev::Launch(CountArrivals, dim3(7), dim3(32), 0, nullptr, count.data(), order.data());
  EXPECT_EQ(count[0], 7u);
  std::vector<uint32_t> blocks = order.Copy();
  std::sort(blocks.begin(), blocks.end());
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(blocks[i], i);
}

DEV_KERNEL void Waits(bool early, bool waits, float* out) {
  if (early) __syncthreads();
  if (waits || threadIdx.x != 3) dev::WaitForPrevious();
  out[threadIdx.x] = 1.0f;
}

TEST(Simt, ALaunchThatOverlapsMustWait) {
  DeviceArray<float> out(32);
  const auto run = [&](bool early, bool waits) {
    dev::Launch(Waits, dim3(1), dim3(32), 0, nullptr, early, waits, out.data());
  };
  run(true, false);  // does not overlap
  const OverlapScope overlap(true);
  run(false, true);
  EXPECT_EQ(out[31], 1.0f);
  EXPECT_DEATH(run(false, false), "does not begin with WaitForPrevious");
  EXPECT_DEATH(run(true, true), "does not begin with WaitForPrevious");
}

DEV_KERNEL void AddOne(float* values) {
  dev::WaitForPrevious();
  values[threadIdx.x] += 1.0f;
}
// Copies `constants` before it waits, and `values` after it.
DEV_KERNEL void CopyAhead(const float* constants, const float* values, float* out) {
  DEV_SHARED(float, early, 128);
  DEV_SHARED(float, late, 128);
  dev::CopyConstantAsync16(early + threadIdx.x * 4, constants + threadIdx.x * 4);
  dev::CopyCommit();
  dev::WaitForPrevious();
  dev::CopyAsync16(late + threadIdx.x * 4, values + threadIdx.x * 4);
  dev::CopyCommit();
  dev::CopyWait<0>();
  for (unsigned i = threadIdx.x * 4; i < threadIdx.x * 4 + 4; ++i) out[i] = early[i] + late[i];
}

TEST(Simt, LaunchesThatOverlapBeginBeforeTheOneBeforeHasWorked) {
  DeviceArray<float> constants(std::vector<float>(128, 0.5f)), out(128);
  DeviceArray<float> values(std::vector<float>(128, 1.0f));
  const auto launch = [&](const float* early) {
    dev::Launch(AddOne, dim3(1), dim3(128), 0, nullptr, values.data());
    dev::Launch(CopyAhead, dim3(1), dim3(32), 0, nullptr, early, values.data(), out.data());
    dev::Launch(AddOne, dim3(1), dim3(128), 0, nullptr, values.data());
  };
  RunOverlapped([&] { launch(constants.data()); });
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(out[i], 2.5f);
    EXPECT_EQ(values[i], 3.0f);
  }
  launch(values.data());  // one after the other, nothing has changed
  EXPECT_DEATH(RunOverlapped([&] { launch(values.data()); }), "has changed since");
}

// Each block leaves a number in its shared memory; each reads those of all.
DEV_KERNEL void ReadPeers(bool meet, bool stay, float* out) {
  DEV_SHARED(float, number, 4);
  number[threadIdx.x % 4] = static_cast<float>(blockIdx.y);
  if (meet) dev::ClusterBarrier();
  for (int rank = 0; rank < 4; ++rank) {
    float values[4];
    dev::LoadPeer4(values, number, rank);
    if (threadIdx.x == 0) out[(blockIdx.x * gridDim.y + blockIdx.y) * 4 + rank] = values[3];
  }
  if (stay) dev::ClusterBarrier();
}

TEST(Simt, BlocksOfAClusterReadEachOthersSharedMemory) {
  DeviceArray<float> out(3 * 8 * 4);
  const auto run = [&](bool meet, bool stay, int cluster = 4) {
    dev::LaunchClusters(ReadPeers, cluster, dim3(3, 8), dim3(4), 0, nullptr, meet, stay,
                        out.data());
  };
  run(true, true);
  for (int i = 0; i < 3 * 8 * 4; ++i) EXPECT_EQ(out[i], i / 4 % 8 / 4 * 4 + i % 4) << i;
  EXPECT_DEATH(run(false, true), "before a cluster's barrier");
  EXPECT_DEATH(run(true, false), "a block that has ended");
  EXPECT_DEATH(run(true, true, 2), "no block of this rank");
  EXPECT_DEATH(run(true, true, 3), "device refuses");
}

DEV_KERNEL void ReadWithoutWait(const float* in, float* out) {
  DEV_SHARED(float, copy, 128);
  dev::CopyAsync16(copy + threadIdx.x * 4, in + threadIdx.x * 4);
  dev::CopyCommit();
  out[threadIdx.x] = copy[threadIdx.x * 4];
  dev::CopyWait<0>();
}

TEST(Simt, CopyLandsWhenItIsWaitedFor) {
  DeviceArray<float> in(std::vector<float>(128, 1.0f)), out(32);
  dev::Launch(ReadWithoutWait, dim3(1), dim3(32), 0, nullptr, in.data(), out.data());
  for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(out[i]));
}

DEV_KERNEL void ReadUnwritten(float* out) {
  DEV_SHARED(float, nothing, 32);
  out[threadIdx.x] = nothing[threadIdx.x];
}

TEST(Simt, SharedMemoryStartsAsNaN) {
  DeviceArray<float> out(std::vector<float>(32, 0.0f));
  dev::Launch(ReadUnwritten, dim3(1), dim3(32), 0, nullptr, out.data());
  for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(out[i]));
}

DEV_KERNEL void MeetAtTwoBarriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
DEV_KERNEL void LeaveCopiesInFlight(const float* in) {
  DEV_SHARED(float, copy, 128);
  dev::CopyAsync16(copy + threadIdx.x * 4, in + threadIdx.x * 4);
}
DEV_KERNEL void PartTheWarp() {
  if (threadIdx.x < 16) {
    __shfl_sync(dev::kFullWarp, 1, 0);
  } else {
    __ballot_sync(dev::kFullWarp, true);
  }
}
DEV_KERNEL void DoNothing() {}

// 1,024 bytes beside what the launch asks for.
DEV_KERNEL void HoldShared(float* out) {
  DEV_SHARED(float, fixed, 256);
  DEV_DYNAMIC_SHARED(float, dynamic);
  fixed[0] = dynamic[0] = 1.0f;
  out[0] = fixed[0] + dynamic[0];
}

TEST(SimtDeathTest, StaticAndDynamicSharedMemoryShareOneLimit) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  constexpr size_t kMost = 227 << 10;
  DeviceArray<float> out(1);
  dev::Launch(HoldShared, dim3(1), dim3(1), kMost - 1024, nullptr, out.data());
  EXPECT_EQ(out[0], 2.0f);
  EXPECT_DEATH(dev::Launch(HoldShared, dim3(1), dim3(1), kMost - 1008, nullptr, out.data()),
               "static and dynamic shared memory together");
}

TEST(SimtDeathTest, ReportsWhatIsWrong) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(dev::Launch(MeetAtTwoBarriers, dim3(1), dim3(64), 0, nullptr),
               "different __syncthreads");
  DeviceArray<float> in(std::vector<float>(128, 1.0f));
  EXPECT_DEATH(dev::Launch(LeaveCopiesInFlight, dim3(1), dim3(32), 0, nullptr, in.data()),
               "copies in flight");
  EXPECT_DEATH(dev::Launch(DoNothing, dim3(0), dim3(32), 0, nullptr), "device refuses");
  EXPECT_DEATH(dev::Launch(DoNothing, dim3(1), dim3(2048), 0, nullptr), "device refuses");
  EXPECT_DEATH(dev::Launch(PartTheWarp, dim3(1), dim3(32), 0, nullptr), "deadlock");
}

}  // namespace
}  // namespace coppice::kernels::cuda
