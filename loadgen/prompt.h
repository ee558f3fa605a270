// One row of a dataset: what a request asks, before the flags are added. Made by the readers of
// datasets, read by request_source. Plain data.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice::loadgen {

struct Prompt {
  nlohmann::json text;      // a string, or a list of token ids
  nlohmann::json messages;  // messages of a chat, instead of text; null = not given
  int input_len = 0;        // without text and messages: a prompt of this many tokens
  int output_tokens = 0;    // max_tokens; 0 = not given
  int64_t seed = -1;        // -1 = not given
  nlohmann::json body = nlohmann::json::object();  // fields that override all others
  std::vector<std::string> later_turns;  // user messages; each is sent after the answer before it
  double at_s = 0;                       // traces: seconds after the first row
};

}  // namespace coppice::loadgen
