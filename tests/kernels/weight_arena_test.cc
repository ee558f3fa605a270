#include "kernels/cpu/weight_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace coppice::kernels::cpu {
namespace {

constexpr size_t kRegion = WeightArena::kRegionBytes;

// Odd sizes over several regions, each part filled with a byte of its own. They outlive the arena.
TEST(WeightArena, PartsAreZeroedAlignedAndTheirOwn) {
  std::vector<WeightMemory> parts;
  std::vector<size_t> sizes;
  {
    WeightArena arena;
    for (size_t i = 0; i < 100; ++i) {
      const size_t bytes = 1 + i * 7919 * 151 % (i % 10 == 0 ? 2 * kRegion : size_t{3} << 20);
      parts.push_back(arena.Allocate(bytes, "a weight").value());
      sizes.push_back(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(parts[i].data) % 64, 0u);
      EXPECT_EQ(parts[i].data[0] | parts[i].data[bytes / 2] | parts[i].data[bytes - 1], 0);
      // Only the ends, so that the test needs little memory.
      const size_t end = std::min<size_t>(bytes, 64);
      std::memset(parts[i].data, static_cast<int>(i + 1), end);
      std::memset(parts[i].data + bytes - end, static_cast<int>(i + 1), end);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].data[0], i + 1);
    EXPECT_EQ(parts[i].data[sizes[i] - 1], i + 1);
  }
}

TEST(WeightArena, SmallPartsShareARegionAndLargeOnesDoNot) {
  WeightArena arena;
  const WeightMemory first = arena.Allocate(1000, "a weight").value();
  const WeightMemory large = arena.Allocate(kRegion / 2, "a weight").value();
  const WeightMemory second = arena.Allocate(1000, "a weight").value();
  EXPECT_EQ(second.region, first.region);
  EXPECT_EQ(second.data, first.data + 1024);
  EXPECT_NE(large.region, first.region);
  EXPECT_EQ(large.region->size(), kRegion / 2);
}

TEST(WeightArena, WhatTheMachineLacksIsRefused) {
  WeightArena arena;
  const auto memory = arena.Allocate(MemoryLimitBytes() + 1, "a weight of 5 x 7 BF16");
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.status().message().find("a weight of 5 x 7 BF16 needs"), 0u);
}

}  // namespace
}  // namespace coppice::kernels::cpu
