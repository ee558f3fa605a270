#include "kernels/cuda/ops/read_memory.h"

#include <numeric>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

// Powers of two and their neighbours in units, so that the last piece of a block is short or whole.
TEST(CudaReadMemory, EveryWordOnce) {
  for (const int64_t units : {1, 31, 255, 256, 1023, 1024, 1025, 5000, 16384, 20001}) {
    for (const int multiprocessors : {1, 4}) {
      std::mt19937 generator(static_cast<uint32_t>(units));
      std::vector<uint32_t> words(units * kReadUnit / sizeof(uint32_t));
      for (uint32_t& word : words) word = generator();
      const DeviceArray<uint32_t> data(words);
      const int blocks = ReadBlocks(units * kReadUnit, multiprocessors);
      DeviceArray<uint32_t> sums(static_cast<size_t>(blocks) * kReadWarps);
      ReadMemory({data.data(), units * kReadUnit, sums.data()}, blocks, nullptr);
      WaitForDevice();
      const auto exclusive_or = [](const std::vector<uint32_t>& values) {
        return std::accumulate(values.begin(), values.end(), 0u, std::bit_xor<>());
      };
      EXPECT_EQ(exclusive_or(sums.Copy()), exclusive_or(words)) << units << " units";
    }
  }
}

TEST(CudaReadMemory, NoMoreBlocksThanWork) {
  EXPECT_EQ(ReadBlocks(kReadUnit, 132), 1);
  EXPECT_EQ(ReadBlocks(int64_t{3} << 14, 132), 3);
  EXPECT_EQ(ReadBlocks(int64_t{1} << 31, 132), 8 * 132);
}

}  // namespace
}  // namespace coppice::kernels::cuda
