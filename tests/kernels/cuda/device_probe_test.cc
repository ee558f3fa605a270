// Every wrapper of device.h against its definition, bit by bit, with a value of its own in each
// register of each lane: a fragment that lies elsewhere shows by the value that turns up. It says
// whether hardware and simulator mean the same.
#include "tests/kernels/cuda/device_probe.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Small integers, which both types hold: bf16 up to 256, f16 up to 2048.
uint32_t Bf16Bits(int value) { return Bits(static_cast<float>(value)) >> 16; }
uint32_t F16Bits(int value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  const int fraction = (std::abs(value) << (10 - exponent)) - 1024;
  return static_cast<uint32_t>((value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction);
}

using Entry = std::function<int(int row, int column)>;

// Fragments by the comment of Mma: lane l, g = l / 4, t = l % 4.
std::vector<uint32_t> FragmentA(bool f16, const Entry& a) {
  const auto bits = f16 ? F16Bits : Bf16Bits;
  std::vector<uint32_t> registers(32 * 4);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8;
      registers[lane * 4 + i] = bits(a(row, column)) | bits(a(row, column + 1)) << 16;
    }
  }
  return registers;
}
std::vector<uint32_t> FragmentB(bool f16, const Entry& b) {
  const auto bits = f16 ? F16Bits : Bf16Bits;
  std::vector<uint32_t> registers(32 * 2);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2; ++i) {
      const int row = lane % 4 * 2 + i * 8, column = lane / 4;
      registers[lane * 2 + i] = bits(b(row, column)) | bits(b(row + 1, column)) << 16;
    }
  }
  return registers;
}

void CheckProduct(bool f16, const Entry& a, const Entry& b, const std::string& what) {
  const DeviceArray<uint32_t> of_a(FragmentA(f16, a)), of_b(FragmentB(f16, b));
  DeviceArray<float> d(32 * 4);
  for (int i = 0; i < 32 * 4; ++i) d[i] = static_cast<float>(100000 + i);
  ProbeMma(f16, of_a.data(), of_b.data(), d.data());
  WaitForDevice();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      int want = 100000 + lane * 4 + i;
      for (int k = 0; k < 16; ++k) want += a(row, k) * b(k, column);
      ASSERT_EQ(Bits(d[lane * 4 + i]), Bits(static_cast<float>(want)))
          << (f16 ? "f16, " : "bf16, ") << what << ": lane " << lane << " register " << i
          << " holds " << d[lane * 4 + i] << ", expected " << want;
    }
  }
}

int NumberOfA(int row, int k) { return row * 16 + k + 1; }
int NumberOfB(int k, int column) { return k * 8 + column + 1; }

TEST(DeviceProbe, MmaHoldsEveryElementOfAWhereItSays) {
  for (int k = 0; k < 32; ++k) {
    CheckProduct(
        k >= 16, NumberOfA, [k](int row, int) { return row == k % 16 ? 1 : 0; },
        "column " + std::to_string(k % 16));
  }
}

TEST(DeviceProbe, MmaHoldsEveryElementOfBWhereItSays) {
  for (int k = 0; k < 32; ++k) {
    CheckProduct(
        k >= 16, [k](int, int column) { return column == k % 16 ? 1 : 0; }, NumberOfB,
        "row " + std::to_string(k % 16));
  }
}

TEST(DeviceProbe, MmaSumsExactlyWhatIsSmall) {
  for (const bool f16 : {false, true}) {
    CheckProduct(
        f16, [](int row, int k) { return row * 7 % 13 - k; },
        [](int k, int column) { return column * 5 % 11 - k % 9; }, "small integers");
  }
}

void CheckLoadMatrix(bool transposed) {
  std::vector<uint16_t> values(32 * 8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x0102 + i * 251);
  std::vector<int32_t> order(32);
  for (int lane = 0; lane < 32; ++lane) order[lane] = (lane * 11 + 5) % 32;
  const DeviceArray<uint16_t> rows(values);
  const DeviceArray<int32_t> of_lane(order);
  DeviceArray<uint32_t> out(32 * 4);
  ProbeLoadMatrix(rows.data(), of_lane.data(), transposed, out.data());
  WaitForDevice();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto element = [&](int row, int column) -> uint32_t {
        return values[order[8 * i + row] * 8 + column];
      };
      const int line = lane / 4, first = lane % 4 * 2;
      const uint32_t want = transposed ? element(first, line) | element(first + 1, line) << 16
                                       : element(line, first) | element(line, first + 1) << 16;
      ASSERT_EQ(out[lane * 4 + i], want) << "lane " << lane << " matrix " << i;
    }
  }
}

TEST(DeviceProbe, LoadMatrix4) { CheckLoadMatrix(false); }
TEST(DeviceProbe, LoadMatrix4Transposed) { CheckLoadMatrix(true); }

TEST(DeviceProbe, CopyAsync16ByGroupsAndZeros) {
  std::vector<uint32_t> first(32 * 4), second(32 * 4);
  std::iota(first.begin(), first.end(), 0x10000000u);
  std::iota(second.begin(), second.end(), 0x20000000u);
  const DeviceArray<uint32_t> from_first(first), from_second(second);
  for (const uint32_t valid : {0xffffffffu, 0u, 0x5a5a3c01u}) {
    DeviceArray<uint32_t> early(32 * 4), late(32 * 8);
    ProbeCopy(from_first.data(), from_second.data(), valid, early.data(), late.data());
    WaitForDevice();
    for (int i = 0; i < 32 * 4; ++i) {
      const int lane = i / 4;
      const bool copied = (valid >> lane & 1) != 0;
      const uint32_t want_first = copied ? first[i] : 0, want_second = copied ? second[i] : 0;
      ASSERT_EQ(early[i], want_first) << "lane " << lane << " after the first group";
      ASSERT_EQ(late[lane * 8 + i % 4], want_first) << "lane " << lane;
      ASSERT_EQ(late[lane * 8 + 4 + i % 4], want_second) << "lane " << lane;
    }
  }
}

TEST(DeviceProbe, StorePackToGlobalAndSharedMemory) {
  std::vector<uint16_t> values(kProbeStores);
  std::iota(values.begin(), values.end(), uint16_t{0x1234});
  const DeviceArray<uint16_t> from(values);
  DeviceArray<uint16_t> global(kProbeStores), shared(kProbeStores);
  ProbeStores(from.data(), global.data(), shared.data());
  WaitForDevice();
  EXPECT_EQ(global.Copy(), values);
  EXPECT_EQ(shared.Copy(), values);
}

TEST(DeviceProbe, AtomicAddGivesEveryCountOnce) {
  constexpr int kBlocks = 24, kThreads = 64;
  DeviceArray<uint32_t> counter(std::vector<uint32_t>{7});
  DeviceArray<uint32_t> before(kBlocks * kThreads);
  ProbeAtomic(kBlocks, kThreads, counter.data(), before.data());
  WaitForDevice();
  std::vector<uint32_t> counts = before.Copy();
  std::sort(counts.begin(), counts.end());
  for (size_t i = 0; i < counts.size(); ++i) ASSERT_EQ(counts[i], 7 + i);
  EXPECT_EQ(counter[0], 7u + kBlocks * kThreads);
}

TEST(DeviceProbe, TheLastBlockSeesWhatAllWrote) {
  constexpr int kBlocks = 40, kThreads = 64, kRounds = 20, kCount = kBlocks * kThreads;
  for (int round = 0; round < kRounds; ++round) {
    DeviceArray<uint32_t> counter(std::vector<uint32_t>{0});
    DeviceArray<uint32_t> values(kCount), sum(1);
    ProbeLastBlock(kBlocks, kThreads, counter.data(), values.data(), sum.data());
    WaitForDevice();
    ASSERT_EQ(sum[0], static_cast<uint32_t>(kCount * (kCount + 1) / 2)) << "round " << round;
  }
}

TEST(DeviceProbe, Exp2) {
  std::vector<float> x = {-INFINITY, -200.0f, -0.0f, 0.0f, INFINITY};
  for (int i = -12500; i <= 12700; i += 3) x.push_back(static_cast<float>(i) / 100.0f);
  const DeviceArray<float> of_x(x);
  DeviceArray<float> exp2(x.size());
  DeviceArray<uint32_t> bf16(x.size()), f16(x.size());
  ProbeValues(static_cast<int>(x.size()), of_x.data(), exp2.data(), bf16.data(), f16.data());
  WaitForDevice();
  EXPECT_EQ(Bits(exp2[0]), 0u);
  EXPECT_EQ(Bits(exp2[1]), 0u);
  EXPECT_EQ(exp2[2], 1.0f);
  EXPECT_EQ(exp2[3], 1.0f);
  EXPECT_EQ(exp2[4], INFINITY);
  for (size_t i = 5; i < x.size(); ++i) {
    const double want = std::exp2(double{x[i]});
    ASSERT_LE(std::abs(exp2[i] - want), want * 0x1p-21) << "2^" << x[i];
  }
}

// 1 + n 2^-(m+1), m bits of a mantissa: on a place for even n, in the middle between two for odd n.
TEST(DeviceProbe, PackPairRoundsToEvenLowHalfFirst) {
  for (const int mantissa : {7, 10}) {
    const int count = 2 << mantissa;
    std::vector<float> x;
    for (int n = 0; n < count; ++n) x.push_back(1.0f + static_cast<float>(n) / count);
    const DeviceArray<float> of_x(x);
    DeviceArray<float> exp2(x.size());
    DeviceArray<uint32_t> bf16(x.size()), f16(x.size());
    ProbeValues(count, of_x.data(), exp2.data(), bf16.data(), f16.data());
    WaitForDevice();
    for (int n = 0; n < count; ++n) {
      const uint32_t down = (mantissa == 7 ? 0x3f80 : 0x3c00) + n / 2;
      const uint32_t want = n % 2 == 0 ? down : down + down % 2;
      ASSERT_EQ((mantissa == 7 ? bf16 : f16)[n], want | (want | 0x8000) << 16) << n;
    }
  }
}

TEST(DeviceProbe, F16OverflowsToInfinityAndKeepsSubnormals) {
  const DeviceArray<float> x(std::vector<float>{65504.0f, 65519.9f, 65520.0f, 1e30f, 0x1p-24f,
                                                0x1.8p-24f, 0x1p-26f, INFINITY});
  DeviceArray<float> exp2(8);
  DeviceArray<uint32_t> bf16(8), f16(8);
  ProbeValues(8, x.data(), exp2.data(), bf16.data(), f16.data());
  WaitForDevice();
  const std::vector<uint32_t> want = {0x7bff, 0x7bff, 0x7c00, 0x7c00, 1, 2, 0, 0x7c00};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(f16[i], want[i] | (want[i] | 0x8000) << 16) << x[i];
}

TEST(DeviceProbe, EveryF16AsAFloat) {
  std::vector<uint16_t> all(1 << 16);
  std::iota(all.begin(), all.end(), uint16_t{0});
  const DeviceArray<uint16_t> bits(all);
  DeviceArray<float> values(all.size());
  ProbeHalves(1 << 16, bits.data(), values.data());
  WaitForDevice();
  for (int i = 0; i < 1 << 16; ++i) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    double want =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) want = fraction == 0 ? INFINITY : NAN;
    if (i & 0x8000) want = -want;
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(values[i])) << i;
    } else {
      ASSERT_EQ(values[i], want) << i;
    }
  }
}

TEST(DeviceProbe, PicksAnyByteToAnyPlace) {
  std::vector<uint32_t> which;
  for (uint32_t place = 0; place < 4; ++place) {
    for (uint32_t byte = 0; byte < 8; ++byte)
      which.push_back((0x5713u & ~(15u << place * 4)) | byte << place * 4);
  }
  const auto count = static_cast<int>(which.size());
  const DeviceArray<uint32_t> a(std::vector<uint32_t>(count, 0x83828180u));
  const DeviceArray<uint32_t> b(std::vector<uint32_t>(count, 0x87868584u));
  const DeviceArray<uint32_t> selectors(which);
  DeviceArray<uint32_t> picked(count);
  ProbePickBytes(count, a.data(), b.data(), selectors.data(), picked.data());
  WaitForDevice();
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(picked[i], (which[i] & 15u) + 0x80u + ((which[i] >> 4 & 15u) + 0x80u) * 0x100u +
                             ((which[i] >> 8 & 15u) + 0x80u) * 0x10000u +
                             ((which[i] >> 12 & 15u) + 0x80u) * 0x1000000u);
}

TEST(DeviceProbe, ALaunchThatOverlapsSeesWhatTheOneBeforeWrote) {
  constexpr int kBlocks = 40, kCount = kBlocks * 256;
  DeviceArray<uint32_t> values(kCount), out(kCount);
  for (uint32_t round = 0; round < 10; ++round) {
    ProbeOverlap(DeviceOverlapsLaunches(), kBlocks, round * 1000, values.data(), out.data());
    WaitForDevice();
    for (uint32_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(out[i], kCount - 1 - i + round * 1000) << "round " << round;
    }
  }
}

TEST(DeviceProbe, BlocksOfAClusterReadEachOther) {
  if (!DeviceHasClusters()) return;  // compute capability 8
  constexpr int kClusters = 5;
  for (int size = 1; size <= 8; ++size) {
    DeviceArray<float> out(kClusters * size * size * 4);
    ProbeCluster(kClusters, size, /*seed=*/7, out.data());
    WaitForDevice();
    for (int i = 0; i < kClusters * size * size * 4; ++i) {
      const int cluster = i / 4 / size / size, peer = i / 4 % size;
      ASSERT_EQ(out[i], 7 + cluster * 1000 + peer * 4 + i % 4) << size << " blocks, at " << i;
    }
  }
}

TEST(DeviceProbe, AFlagOfTheSystemOrdersWhatWasWritten) {
  DeviceArray<uint64_t> place(std::vector<uint64_t>(1)), clock(2);
  for (uint64_t flag = 0xfedcba9876543210u; flag > 0; flag >>= 5) {
    DeviceArray<uint32_t> words(65), seen(65);
    ProbeSystemFlag(flag, place.data(), words.data(), seen.data(), clock.data());
    WaitForDevice();
    ASSERT_EQ(place[0], flag);
    for (uint32_t i = 0; i < 65; ++i) ASSERT_EQ(seen[i], i + 1);
    ASSERT_LE(clock[0], clock[1]);
    ASSERT_LT(clock[1] - clock[0], uint64_t{60} * 1000000000);
  }
}

TEST(DeviceProbe, WarpSumAndMax) {
  std::vector<float> x(32);
  for (int lane = 0; lane < 32; ++lane) x[lane] = static_cast<float>((lane * 13 + 5) % 32 - 40);
  const DeviceArray<float> of_x(x);
  DeviceArray<float> sum(32), max(32);
  ProbeWarp(of_x.data(), sum.data(), max.data());
  WaitForDevice();
  for (int lane = 0; lane < 32; ++lane) {
    ASSERT_EQ(sum[lane], 31.0f * 16 - 40 * 32);
    ASSERT_EQ(max[lane], -9.0f);
  }
}

TEST(DeviceProbe, DynamicSharedMemoryBelowAndAbove48KiB) {
  for (const int count : {1, 12 << 10, 24 << 10}) {
    DeviceArray<uint32_t> out(count);
    ProbeDynamicShared(count, 0x1000, out.data());
    WaitForDevice();
    for (int i = 0; i < count; ++i) ASSERT_EQ(out[i], 0x1000u + i) << count;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
