#include "model_files/split_patterns.h"

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace coppice::model_files {
namespace {

using Json = nlohmann::json;

// Each as the tokenizer.json of the models that the name stands for has it.
constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4o[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt2[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

struct Row {
  std::vector<const char*> names;
  SplitPattern pattern;
};

const std::vector<Row>& Rows() {
  static const auto* const kRows = new std::vector<Row>{
      {{"gpt-2", "phi-2", "olmo", "mpt"}, {}},
      {{"smollm", "starcoder", "refact", "codeshell", "minerva-7b"}, {.each_digit = true}},
      {{"llama-bpe", "llama3", "llama-v3"},
       {.patterns = {kLlama3}, .ignores_merges = true, .begins_with_bos = true}},
      {{"dbrx", "smaug-bpe"}, {.patterns = {kLlama3}}},
      {{"qwen2", "deepseek-r1-qwen"}, {.patterns = {kQwen2}, .composes = true}},
      {{"gpt-4o"}, {.patterns = {kGpt4o}}},
      {{"tekken"}, {.patterns = {kTekken}, .ignores_merges = true, .begins_with_bos = true}},
      // Of files that were written before there were names.
      {{"default"},
       {.patterns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"}}},
  };
  return *kRows;
}

Json ByteLevel(bool space_first, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", space_first},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

}  // namespace

const SplitPattern* FindSplitPattern(const std::string& name) {
  for (const Row& row : Rows()) {
    for (const char* own : row.names) {
      if (name == own) return &row.pattern;
    }
  }
  return nullptr;
}

std::string SplitPatternNames() {
  std::vector<const char*> names;
  for (const Row& row : Rows()) names.insert(names.end(), row.names.begin(), row.names.end());
  return absl::StrJoin(names, ", ");
}

Json PreTokenizerJson(const SplitPattern& pattern, bool space_first) {
  Json steps = Json::array();
  if (pattern.each_digit) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  for (const char* text : pattern.patterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", text}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(ByteLevel(space_first, /*use_regex=*/pattern.patterns.empty()));
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

}  // namespace coppice::model_files
