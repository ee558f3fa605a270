// The prompts of a run and the JSON bodies made from them. Called by main before the run. Pure,
// except for reading the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace coppice::loadgen {

struct Prompt {
  nlohmann::json text;                             // a string, or a list of token ids
  nlohmann::json messages;                         // of a chat, instead of text; null = not given
  int output_tokens = 0;                           // max_tokens; 0 = not given
  int64_t seed = -1;                               // -1 = not given
  nlohmann::json body = nlohmann::json::object();  // fields that override all others
};

// Reads a file of JSON lines {prompt or messages, output_tokens?, seed?, body?}; other fields are
// ignored. Errors name path and line.
absl::StatusOr<std::vector<Prompt>> ReadCustomDataset(const std::string& path);

// `count` prompts of input_len random token ids, from the seed. Ids are from 259 to 511: valid in
// every usual vocabulary, and neither special nor byte tokens there.
std::vector<Prompt> RandomDataset(int count, int input_len, uint64_t seed);

struct BodySettings {
  bool chat = false;  // messages instead of prompt
  std::string model;
  int output_len = 128;                              // for prompts that give none
  uint64_t seed = 0;                                 // request k: seed + k
  nlohmann::json fields = nlohmann::json::object();  // sampling flags and --extra-body
};

// The body of request k as it is sent: streamed, with usage.
nlohmann::json RequestBody(const Prompt& prompt, int k, const BodySettings& settings);

}  // namespace coppice::loadgen
