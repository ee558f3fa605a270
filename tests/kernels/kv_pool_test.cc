#include "kernels/cpu/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/kv_pool_shape.h"

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

// Codes and scales of a pool in 8 bits take all of its memory, and none lies on another.
TEST(KvPoolTest, CodesAndScalesHavePlacesOfTheirOwn) {
  for (const int head_dim : {1, 10, 64}) {
    const auto pool = cpu::MakeCpuKvPool({2, 3, head_dim, 5, DType::kI8}).value();
    EXPECT_EQ(pool->bytes, 2u * 2 * 5 * 3 * kBlockSize * (head_dim + 4));
    EXPECT_EQ(pool->bytes, KvPoolBytes(pool->shape).value());
    const auto& host = static_cast<const cpu::CpuKvPool&>(*pool);
    std::vector<int> owners(pool->bytes, 0);
    const auto own = [&](const void* place, size_t bytes) {
      const auto at = static_cast<const uint8_t*>(place) - host.storage.data();
      for (size_t i = 0; i < bytes; ++i) ++owners.at(at + i);
    };
    for (int layer = 0; layer < 2; ++layer) {
      for (const bool value : {false, true}) {
        for (int head = 0; head < 3; ++head) {
          for (int32_t slot = 0; slot < 5 * kBlockSize; ++slot) {
            own(host.Row(layer, value, slot, head), host.row_bytes());
            const float* const scale = host.Scale(layer, value, slot, head);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(scale) % sizeof(float), 0u);
            EXPECT_EQ(scale,
                      host.Scales(layer, value, slot / kBlockSize, head) + slot % kBlockSize);
            own(scale, sizeof(float));
          }
        }
      }
    }
    for (const int count : owners) ASSERT_EQ(count, 1);
  }
}

TEST(KvPoolTest, CopiesTheScalesOfCodes) {
  const auto pool = cpu::MakeCpuKvPool({2, 2, 8, 4, DType::kI8}).value();
  auto* host = static_cast<cpu::CpuKvPool*>(pool.get());
  const auto code = [](int32_t slot, int place) { return static_cast<uint8_t>(slot * 8 + place); };
  const auto each = [&](auto f) {
    for (int place = 0; place < 8; ++place) {
      for (int32_t slot = 0; slot < 4 * kBlockSize; ++slot)
        f(place / 4, place / 2 % 2 != 0, slot, place % 2, place);
    }
  };
  each([&](int layer, bool value, int32_t slot, int head, int place) {
    std::memset(host->Row(layer, value, slot, head), code(slot, place), 8);
    *host->Scale(layer, value, slot, head) = static_cast<float>(slot * 8 + place);
  });
  cpu::CopyKv({{20, 60}, {21, 33}}, host);
  each([&](int layer, bool value, int32_t slot, int head, int place) {
    const int32_t source = slot == 60 ? 20 : slot == 33 ? 21 : slot;
    EXPECT_EQ(host->Row(layer, value, slot, head)[7], code(source, place));
    EXPECT_EQ(*host->Scale(layer, value, slot, head), static_cast<float>(source * 8 + place));
  });
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
  for (const DType dtype : {DType::kF32, DType::kI8}) {
    EXPECT_EQ(cpu::MakeCpuKvPool({80, 8, 128, INT64_MAX / 2, dtype}).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
}

TEST(KvPoolTest, RefusesBadShapes) {
  for (const KvPoolShape& shape :
       {KvPoolShape{0, 1, 8, 2, DType::kF32}, KvPoolShape{1, 0, 8, 2, DType::kF32},
        KvPoolShape{1, 1, 0, 2, DType::kF32}, KvPoolShape{1, 1, 8, 0, DType::kF32},
        KvPoolShape{1, 1, 8, 2, DType::kF16}, KvPoolShape{1, 1, 8, 2, DType::kQ4_0}}) {
    EXPECT_EQ(cpu::MakeCpuKvPool(shape).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace coppice::kernels
