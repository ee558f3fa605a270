// The seeds of the fuzzer, and random changes of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace coppice::comm {
namespace {

std::vector<std::string> SeedInputs() {
  std::vector<std::string> inputs;
  for (const auto& entry : std::filesystem::directory_iterator("tests/comm/seeds")) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    inputs.push_back(bytes.str());
  }
  return inputs;
}

void RunInput(const std::string& input) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
            0);
}

TEST(SecureLinkSeeds, NoSeedIsTrusted) {
  const std::vector<std::string> inputs = SeedInputs();
  ASSERT_GE(inputs.size(), 10u);
  for (const std::string& input : inputs) RunInput(input);
}

TEST(SecureLinkSeeds, RandomChangesAreNotTrusted) {
  const std::vector<std::string> inputs = SeedInputs();
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string input = inputs[random() % inputs.size()];
    for (uint32_t changes = 1 + random() % 3; changes > 0 && !input.empty(); --changes) {
      const size_t at = random() % input.size();
      const std::string& other = inputs[random() % inputs.size()];
      switch (random() % 4) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input[0] = static_cast<char>(random());  // another stage of the handshake
          break;
        case 2:
          input.erase(at, 1 + random() % 8);
          break;
        default:
          input.insert(at, other.substr(random() % other.size(), random() % 80));
      }
    }
    RunInput(input);
  }
}

}  // namespace
}  // namespace coppice::comm
