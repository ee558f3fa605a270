// The fuzzer of request bodies over its seeds, over valid bodies and random changes of both.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/coordinator/api/body_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace coppice::coordinator {
namespace {

void Feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST(BodyFuzz, SeedsAndRandomChangesOfThem) {
  std::vector<std::string> inputs = ValidBodies();
  for (const auto& entry : std::filesystem::directory_iterator("tests/coordinator/api/seeds")) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_GE(inputs.size(), ValidBodies().size() + 5);
  std::mt19937_64 random(7);
  for (const std::string& input : inputs) {
    Feed(input);
    for (int i = 0; i < 200; ++i) {
      std::string changed = input;
      for (int k = 0; k < 3 && !changed.empty(); ++k)
        changed[random() % changed.size()] = static_cast<char>(random());
      Feed(changed);
    }
  }
}

TEST(BodyFuzz, MutatedBodies) {
  BodyMutator mutator(1);
  for (int i = 0; i < 20000; ++i) Feed(mutator.Next());
}

}  // namespace
}  // namespace coppice::coordinator
