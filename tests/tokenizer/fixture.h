// Fixtures made by tests/tokenizer/make_tokenizer_fixtures.py. Tests run in the root of the source tree.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice::tokenizer {

inline const std::string kFixtures = "tests/tokenizer/fixtures/";
inline const std::vector<std::string> kFixtureNames = {
    "byte_level_gpt2",       "byte_level_llama3",       "byte_level_qwen2",
    "byte_fallback_prepend", "byte_fallback_metaspace", "unknown_fused",
    "sentencepiece_prefix",  "sentencepiece_no_prefix", "sentencepiece_unknown"};

inline nlohmann::json ReadFixture(const std::string& name) {
  std::ifstream file(kFixtures + name);
  return nlohmann::json::parse(file);
}

}  // namespace coppice::tokenizer
