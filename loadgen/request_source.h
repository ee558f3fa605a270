// The bodies of a run's requests, made from prompts and flags when each is sent. Asked by the
// client. Thread-compatible.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loadgen/prompt.h"

namespace coppice::loadgen {

struct BodySettings {
  bool chat = false;  // messages instead of prompt
  std::string model;
  int output_len = 128;                              // for prompts that give none
  uint64_t seed = 0;                                 // request k: seed + k
  nlohmann::json fields = nlohmann::json::object();  // sampling flags and --extra-body
};

// The body of request k as it is sent: streamed, with usage. prompt has a text or messages.
nlohmann::json RequestBody(const Prompt& prompt, int64_t k, const BodySettings& settings);

// `count` random token ids of the seed. They are from 259 to 511: valid in every usual vocabulary,
// and neither special nor byte tokens there.
nlohmann::json RandomIds(int count, uint64_t seed);

struct PreparedRequest {
  std::string body;
  int choices = 1;            // n
  int64_t prompt_tokens = 0;  // if it is a list of ids
};

class RequestSource {
 public:
  // prompts: at least one. Conversation c is that of prompt c modulo their number.
  RequestSource(std::vector<Prompt> prompts, BodySettings settings)
      : prompts_(std::move(prompts)), settings_(std::move(settings)) {}

  int64_t size() const { return static_cast<int64_t>(prompts_.size()); }
  // Requests of conversation c, each after the answer to the one before it.
  int Turns(int64_t c) const { return 1 + static_cast<int>(at(c).later_turns.size()); }
  bool has_later_turns() const;
  // Request k of the run: the turn of conversation c that follows these answers.
  PreparedRequest Prepare(int64_t c, int64_t k, const std::vector<std::string>& answers) const;

 private:
  const Prompt& at(int64_t c) const { return prompts_[c % size()]; }

  std::vector<Prompt> prompts_;
  BodySettings settings_;
};

}  // namespace coppice::loadgen
