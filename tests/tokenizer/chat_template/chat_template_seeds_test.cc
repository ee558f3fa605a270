// The seeds of the fuzzer, every template of the fixtures, and random changes of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace coppice::tokenizer {
namespace {

std::vector<std::string> SeedInputs() {
  std::vector<std::string> inputs;
  for (const char* folder :
       {"tests/tokenizer/chat_template/seeds", "tests/tokenizer/chat_template/fixtures/templates",
        "tokenizer/chat_template/families"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      inputs.push_back(text.str());
    }
  }
  return inputs;
}

void RunInput(const std::string& input) {
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
            0);
}

TEST(ChatTemplateSeeds, EverySeedEnds) {
  const std::vector<std::string> inputs = SeedInputs();
  ASSERT_GT(inputs.size(), 25u);
  for (const std::string& input : inputs) RunInput(input);
}

TEST(ChatTemplateSeeds, RandomChangesEnd) {
  const std::vector<std::string> inputs = SeedInputs();
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string input = inputs[random() % inputs.size()];
    for (uint32_t changes = 1 + random() % 4; changes > 0 && !input.empty(); --changes) {
      const size_t at = random() % input.size();
      const std::string& other = inputs[random() % inputs.size()];
      switch (random() % 4) {
        case 0:
          input[at] = static_cast<char>(random());
          break;
        case 1:
          input.erase(at, 1 + random() % 8);
          break;
        case 2:
          input.insert(at, input.substr(random() % input.size(), random() % 20));
          break;
        default:
          if (!other.empty())
            input.insert(at, other.substr(random() % other.size(), random() % 40));
      }
    }
    RunInput(input);
  }
}

}  // namespace
}  // namespace coppice::tokenizer
