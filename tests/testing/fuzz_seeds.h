// Replays a fuzz target without libFuzzer: its seeds and random changes of them. A test links the
// *_fuzz.cc that defines the target.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace coppice::test {

// The files of the folders, in the order of their names.
inline std::vector<std::string> ReadSeeds(std::initializer_list<const char*> folders) {
  std::vector<std::filesystem::path> paths;
  for (const char* folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Makes inputs from seeds by one to four changes each.
class SeedMutator {
 public:
  SeedMutator(std::vector<std::string> seeds, uint64_t random_seed)
      : seeds_(std::move(seeds)), random_(random_seed) {}

  std::string Next() {
    std::string input = Any();
    for (size_t changes = 1 + Below(4); changes > 0 && !input.empty(); --changes) Change(&input);
    return input;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }
  const std::string& Any() { return seeds_[Below(seeds_.size())]; }
  std::string Part(const std::string& of) {
    return of.empty() ? "" : of.substr(Below(of.size()), Below(80));
  }
  void Change(std::string* input) {
    const size_t at = Below(input->size());
    switch (Below(6)) {
      case 0:
        input->at(0) = static_cast<char>(random_());  // many targets choose by it what to do
        break;
      case 1:
        input->at(at) = static_cast<char>(random_());
        break;
      case 2:
        input->erase(at, 1 + Below(8));
        break;
      case 3:
        input->insert(at, Part(*input));
        break;
      case 4:
        input->insert(at, Part(Any()));
        break;
      default:
        if (Below(4) == 0) input->resize(at);
    }
  }

  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

// The copy ends where the input does, so that the address sanitizer sees a read past it.
inline void RunTarget(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
}

inline void RunSeedsAndChanges(const std::vector<std::string>& seeds, int changed) {
  for (const std::string& seed : seeds) RunTarget(seed);
  SeedMutator mutator(seeds, 5);
  for (int i = 0; i < changed; ++i) RunTarget(mutator.Next());
}

}  // namespace coppice::test
