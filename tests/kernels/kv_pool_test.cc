#include "kernels/cpu/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace coppice::kernels {
namespace {

using testing::HasSubstr;

TEST(KvPoolTest, IsZeroAlignedAndSizedAsStated) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto pool = cpu::MakeCpuKvPool({2, 3, 10, 7, dtype}).value();
    EXPECT_EQ(pool->bytes, 2u * 2 * 7 * 3 * kBlockSize * 10 * DTypeSize(dtype));
    const auto& host = static_cast<const cpu::CpuKvPool&>(*pool);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host.storage.data()) % 64, 0u);
    for (size_t i = 0; i < pool->bytes; ++i) ASSERT_EQ(host.storage.data()[i], 0) << i;
  }
}

TEST(KvPoolTest, CopiesKAndVOfEveryLayerAndHead) {
  const auto pool = cpu::MakeCpuKvPool({3, 2, 8, 5, DType::kBF16}).value();
  auto* host = static_cast<cpu::CpuKvPool*>(pool.get());
  for (int layer = 0; layer < 3; ++layer) {
    for (const bool value : {false, true}) {
      for (int32_t slot = 0; slot < 5 * kBlockSize; ++slot) {
        for (int head = 0; head < 2; ++head) {
          std::memset(host->Row(layer, value, slot, head),
                      1 + slot + head * 100 + layer * 7 + value * 3, host->row_bytes());
        }
      }
    }
  }
  cpu::CopyKv({{20, 70}, {21, 33}}, host);
  for (int layer = 0; layer < 3; ++layer) {
    for (const bool value : {false, true}) {
      for (int head = 0; head < 2; ++head) {
        for (int32_t slot = 0; slot < 5 * kBlockSize; ++slot) {
          const int32_t source = slot == 70 ? 20 : slot == 33 ? 21 : slot;
          const auto want = static_cast<uint8_t>(1 + source + head * 100 + layer * 7 + value * 3);
          for (size_t i = 0; i < host->row_bytes(); ++i)
            ASSERT_EQ(host->Row(layer, value, slot, head)[i], want);
        }
      }
    }
  }
}

TEST(KvPoolTest, RefusesAPoolLargerThanMemory) {
  const auto pool = cpu::MakeCpuKvPool({80, 8, 128, 1 << 26, DType::kF32});
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()), HasSubstr("67108864 blocks"));
  EXPECT_THAT(std::string(pool.status().message()), HasSubstr("MiB"));
  // Sizes that overflow are refused with the same status.
  EXPECT_EQ(cpu::MakeCpuKvPool({80, 8, 128, INT64_MAX / 2, DType::kF32}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(KvPoolTest, RefusesBadShapes) {
  for (const KvPoolShape& shape :
       {KvPoolShape{0, 1, 8, 2, DType::kF32}, KvPoolShape{1, 0, 8, 2, DType::kF32},
        KvPoolShape{1, 1, 0, 2, DType::kF32}, KvPoolShape{1, 1, 8, 0, DType::kF32},
        KvPoolShape{1, 1, 8, 2, DType::kF16}}) {
    EXPECT_EQ(cpu::MakeCpuKvPool(shape).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace coppice::kernels
