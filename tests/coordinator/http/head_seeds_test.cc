// The fuzzer of HTTP heads over its seeds and random changes of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace coppice::coordinator {
namespace {

TEST(HeadFuzz, SeedsAndRandomChangesOfThem) {
  std::mt19937_64 random(7);
  int seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/coordinator/http/seeds")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string seed{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    ++seeds;
    for (int i = 0; i < 5000; ++i) {
      std::string input = seed;
      for (int k = 0; k < i % 4; ++k) input[random() % input.size()] = static_cast<char>(random());
      if (i % 7 == 0) input.resize(random() % input.size());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
  }
  EXPECT_GE(seeds, 5);
}

}  // namespace
}  // namespace coppice::coordinator
