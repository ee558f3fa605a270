// Valid request bodies, and random changes of them.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace coppice::coordinator {

inline const std::vector<std::string>& ValidBodies() {
  static const std::vector<std::string> bodies = {
      R"({"prompt": "hi", "max_tokens": 3, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 1})",
      R"({"prompt": ["a", "b"], "n": 2, "best_of": 2, "max_tokens": 2, "stop": ["x", "yz"], "user": "u"})",
      R"({"prompt": [104, 105], "use_beam_search": true, "beam_width": 3, "n": 2, "max_tokens": 3,
          "length_penalty": 1.5, "early_stopping": "never", "return_token_ids": true})",
      R"({"prompt": "hi", "decoding": "beam_sampling", "num_beams": 2, "max_tokens": 2, "min_p": 0.1,
          "sampling_scope": "row", "speculative": {"method": "dsbd", "draft_width": 4, "draft_depth": "auto"}})",
      R"({"prompt": "hi", "logit_bias": {"104": 1.5, "7": -100}, "stop_token_ids": [10], "ignore_eos": true,
          "min_tokens": 1, "max_tokens": 4, "timeout": 30, "stream": false, "speculative": "auto"})",
      R"({"prompt": "hi", "max_completion_tokens": 2, "stream": true, "stream_options": {"include_usage": true},
          "metadata": {"a": [1, {"b": null}]}, "tools": [], "response_format": {"type": "text"}})",
      R"({"prompt": "hi", "structured_outputs": {"choice": ["a", "b"]}, "guided_json": null, "stop_token_ids": [256]})",
      R"({"prompt": "hi", "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true,
          "schema": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"enum": [1, "x"]}}}}}})",
      R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "reasoning",
          "summary": [{"type": "summary_text", "text": "a"}]}, {"type": "message", "role": "assistant", "content": "b"}],
          "instructions": "c", "max_output_tokens": 3, "include": ["message.output_text.logprobs"], "top_logprobs": 1,
          "text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}, "metadata": {"a": "b"}})",
      R"({"system": [{"type": "text", "text": "a"}], "messages": [{"role": "user", "content": "hi"}, {"role": "assistant",
          "content": [{"type": "thinking", "thinking": "b", "signature": ""}, {"type": "text", "text": "c"}]}],
          "max_tokens": 3, "stop_sequences": ["d"], "thinking": {"type": "enabled", "budget_tokens": 2},
          "tool_choice": {"type": "auto"}, "output_config": {"effort": "low"}})"};
  return bodies;
}

// Changes one to three places of a body: values, names, nesting, or bytes.
class BodyMutator {
 public:
  explicit BodyMutator(uint64_t seed) : random_(seed) {}

  std::string Next() {
    nlohmann::json body = nlohmann::json::parse(ValidBodies()[Below(ValidBodies().size())]);
    const int changes = 1 + static_cast<int>(Below(3));
    for (int i = 0; i < changes; ++i) Change(&body);
    std::string text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    if (Below(5) == 0) text[Below(text.size())] = static_cast<char>(Below(256));
    if (Below(20) == 0) text.resize(Below(text.size()));
    return text;
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }

  nlohmann::json Value(int depth = 0) {
    static const double kNumbers[] = {0,   1,     -1,   2,   4,    64,   65,   1e9, -1e9,
                                      0.5, 1e300, -0.0, 2.5, 1024, 1e18, 3600, 256, 1e-9};
    switch (Below(depth > 2 ? 5 : 8)) {
      case 0:
        return nullptr;
      case 1:
        return Below(2) == 0;
      case 2:
        return kNumbers[Below(std::size(kNumbers))];
      case 3:
        return static_cast<int64_t>(random_());
      case 4:
        return std::vector<std::string>{
            "", "auto", "beam_search", "never", "\xc3\xa9", "dsbd"}[Below(6)];
      case 5:
        return nlohmann::json::array({Value(depth + 1), Value(depth + 1)});
      case 6:
        return nlohmann::json::array();
      default:
        return nlohmann::json{{"104", Value(depth + 1)}, {"method", Value(depth + 1)}};
    }
  }

  void Change(nlohmann::json* body) {
    static const char* const kNames[] = {
        "temperature", "top_k",       "n",          "best_of",  "beam_width",  "decoding",
        "stop",        "seed",        "echo",       "logprobs", "refill",      "timeout",
        "messages",    "speculative", "unheard_of", "regex",    "guided_json", "response_format"};
    nlohmann::json* object = body;
    if (Below(4) == 0 && body->contains("speculative") && (*body)["speculative"].is_object())
      object = &(*body)["speculative"];
    if (object->empty() || Below(3) == 0) {
      (*object)[kNames[Below(std::size(kNames))]] = Value();
      return;
    }
    auto it = object->begin();
    std::advance(it, Below(object->size()));
    if (Below(6) == 0) {
      object->erase(it);
    } else if (it->is_array() && !it->empty() && Below(2) == 0) {
      (*it)[Below(it->size())] = Value();
    } else {
      *it = Value();
    }
  }

  std::mt19937_64 random_;
};

}  // namespace coppice::coordinator
