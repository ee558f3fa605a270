// How byte-level tokenizers cut a text into words, by the name that a GGUF file gives it
// (tokenizer.ggml.pre), as parts of a tokenizer.json. Pure.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace coppice::model_files {

struct SplitPattern {
  std::vector<const char*> patterns;  // cut one after the other; empty: that of GPT-2
  bool each_digit = false;            // first, each digit is a word
  bool composes = false;              // the text is normalised first (NFC)
  bool ignores_merges = false;        // a word that is a token is that token
  bool begins_with_bos = false;       // if the file does not say
};

// Null: no such name.
const SplitPattern* FindSplitPattern(const std::string& name);
std::string SplitPatternNames();  // for messages

// The pre_tokenizer of a tokenizer.json. space_first: a space is put before a text.
nlohmann::json PreTokenizerJson(const SplitPattern& pattern, bool space_first);

}  // namespace coppice::model_files
