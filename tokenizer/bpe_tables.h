// The tables of a BPE model, read from tokenizer.json or vocab.json without a JSON tree of them: a
// vocabulary of 262,144 tokens has half a million merges. Called at start-up by the BPE tokenizer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"

namespace coppice::tokenizer {

// In the order of the file.
struct BpeTables {
  static constexpr TokenId kMaxVocab = 1 << 24;

  std::vector<std::pair<std::string, TokenId>> vocab;  // ids in [0, kMaxVocab)
  std::vector<std::pair<std::string, std::string>> merges;
};

struct TokenizerFile {
  nlohmann::json json;  // the tables in it are empty
  BpeTables tables;
};

// text: the content of a tokenizer.json. Errors name the field and, for a merge, its number.
absl::StatusOr<TokenizerFile> ParseTokenizerJson(absl::string_view text);
// text: the content of a vocab.json, an object of token to id.
absl::StatusOr<BpeTables> ParseVocabJson(absl::string_view text);

}  // namespace coppice::tokenizer
