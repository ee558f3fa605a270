#include "coordinator/request/response_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tokenizer/utf8.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kImpossibleJson = -9999;  // a log-probability of -infinity

Json Optional(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

double Rounded(double milliseconds) { return std::round(milliseconds * 1000) / 1000; }

// Whether the JSON is a whole answer or an event of a stream.
enum class Form { kAnswer, kEvent };

const char* ObjectName(const AnswerIdentity& identity, Form form) {
  if (!identity.chat) return "text_completion";
  return form == Form::kAnswer ? "chat.completion" : "chat.completion.chunk";
}

Json Head(const AnswerIdentity& identity, Form form) {
  Json head;
  head["id"] = identity.id;
  head["object"] = ObjectName(identity, form);
  head["created"] = identity.created;
  head["model"] = identity.model;
  head["system_fingerprint"] = identity.fingerprint;
  return head;
}

// The text of a choice: `text`, or the `message` of a chat, or what an event adds to it as `delta`.
void AddText(const Choice& choice, const AnswerIdentity& identity, Form form, Json* json) {
  if (!identity.chat) {
    (*json)["text"] = choice.text;
    return;
  }
  Json message = Json::object();
  const bool whole = form == Form::kAnswer || choice.first;
  if (whole) message["role"] = "assistant";
  if (whole || !choice.text.empty()) message["content"] = choice.text;
  (*json)[form == Form::kAnswer ? "message" : "delta"] = std::move(message);
}

double LogProbJson(double log_prob) { return std::max(log_prob, kImpossibleJson); }

// A token's bytes as JSON can have them, in the way that OpenAI writes those of a part of a
// character; or the name that was asked for.
std::string TokenText(const ShownToken& token) {
  const std::string& bytes = token.bytes;
  if (!token.name.empty()) return token.name;
  if (tokenizer::ValidUtf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes)
    absl::StrAppend(&text, "\\x", absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
  return text;
}

// As of /v1/completions. The alternatives are an object, so of tokens with the same text only the
// most likely one is there. The token itself is added to them.
Json LogprobsJson(const std::vector<TokenLogprob>& tokens) {
  Json json;
  for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    json[name] = Json::array();
  for (const TokenLogprob& token : tokens) {
    const std::string text = TokenText(token.token);
    json["tokens"].push_back(text);
    json["text_offset"].push_back(token.offset);
    if (!token.log_prob) {
      json["token_logprobs"].push_back(Json());
      json["top_logprobs"].push_back(Json());
      continue;
    }
    json["token_logprobs"].push_back(LogProbJson(*token.log_prob));
    Json top = Json::object();
    for (const auto& [other, log_prob] : token.top)
      top.emplace(TokenText(other), LogProbJson(log_prob));
    top.emplace(text, LogProbJson(*token.log_prob));
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

Json ChatTokenJson(const ShownToken& token, double log_prob) {
  Json json;
  json["token"] = TokenText(token);
  json["logprob"] = LogProbJson(log_prob);
  json["bytes"] = Json::array();
  for (const char byte : token.bytes) json["bytes"].push_back(static_cast<uint8_t>(byte));
  return json;
}

// As of /v1/chat/completions.
Json ChatLogprobsJson(const std::vector<TokenLogprob>& tokens) {
  Json content = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json entry = ChatTokenJson(token.token, token.log_prob.value_or(0));
    entry["top_logprobs"] = Json::array();
    for (const auto& [other, other_log_prob] : token.top)
      entry["top_logprobs"].push_back(ChatTokenJson(other, other_log_prob));
    content.push_back(std::move(entry));
  }
  Json json;
  json["content"] = std::move(content);
  json["refusal"] = Json();
  return json;
}

Json ChoiceJson(const Choice& choice, const AnswerIdentity& identity, Form form) {
  const bool finished = !choice.finish_reason.empty();
  Json json;
  json["index"] = choice.index;
  AddText(choice, identity, form, &json);
  json["finish_reason"] = finished ? Json(choice.finish_reason) : Json();
  json["stop_reason"] = choice.stop_string  ? Json(*choice.stop_string)
                        : choice.stop_token ? Json(*choice.stop_token)
                                            : Json();
  if (finished) {
    json["seed"] = choice.seed;
    json["score"] = Optional(choice.score);
    json["joint_logprob"] = Optional(choice.joint_logprob);
  }
  json["logprobs"] = !choice.logprobs ? Json()
                     : identity.chat  ? ChatLogprobsJson(*choice.logprobs)
                                      : LogprobsJson(*choice.logprobs);
  if (choice.prompt_token_ids) json["prompt_token_ids"] = *choice.prompt_token_ids;
  if (choice.token_ids) json["token_ids"] = *choice.token_ids;
  return json;
}

Json ChoicesJson(const std::vector<Choice>& choices, const AnswerIdentity& identity, Form form) {
  Json list = Json::array();
  for (const Choice& choice : choices) list.push_back(ChoiceJson(choice, identity, form));
  return list;
}

Json SpeculationJson(const DecodingStats& stats) {
  Json json;
  json["method"] = stats.method;
  json["lossless"] = stats.lossless;
  json["rounds"] = stats.rounds;
  json["plain_rounds"] = stats.plain_rounds;
  json["target_passes"] = stats.target_passes;
  json["layers"] = stats.layers;
  json["layers_per_pass"] = Optional(stats.layers_per_pass());
  json["beam_tokens"] = stats.beam_tokens;
  json["drafted_nodes"] = stats.drafted_nodes;
  json["accepted_nodes"] = stats.accepted_nodes;
  json["accepted_by_layer"] = stats.accepted_by_layer;
  json["accepted_width"] = Optional(stats.accepted_width());
  json["overlap"] = Optional(stats.overlap());
  json["draft_width"] = Optional(stats.draft_width());
  json["draft_depth"] = Optional(stats.draft_depth());
  return json;
}

Json UsageJson(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.decoding.cached_tokens;
  if (usage.energy_joules) json["energy_joules"] = *usage.energy_joules;
  json["speculation"] = SpeculationJson(usage.decoding);
  return json;
}

Json TimingsJson(const Usage& usage) {
  Json json;
  json["queue_ms"] = Rounded(usage.decoding.queue_ms);
  json["prefill_ms"] = Rounded(usage.decoding.prefill_ms);
  json["first_token_ms"] = Rounded(usage.first_token_ms);
  json["draft_ms"] = Rounded(usage.decoding.draft_ms);
  json["draft_wait_ms"] = Rounded(usage.decoding.draft_wait_ms);
  json["verify_ms"] = Rounded(usage.decoding.verify_ms);
  json["total_ms"] = Rounded(usage.total_ms);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string CompletionBody(const AnswerIdentity& identity, const std::vector<Choice>& choices,
                           const std::vector<double>& beam_mass, const Usage& usage) {
  Json json = Head(identity, Form::kAnswer);
  json["choices"] = ChoicesJson(choices, identity, Form::kAnswer);
  if (beam_mass.size() == 1) json["beam_mass"] = beam_mass[0];
  if (beam_mass.size() > 1) json["beam_mass"] = beam_mass;
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(usage);
  return Dump(json);
}

std::string CompletionEvent(const AnswerIdentity& identity, const std::vector<Choice>& choices,
                            std::optional<double> beam_mass, bool usage_null) {
  Json json = Head(identity, Form::kEvent);
  json["choices"] = ChoicesJson(choices, identity, Form::kEvent);
  if (beam_mass) json["beam_mass"] = *beam_mass;
  if (usage_null) json["usage"] = Json();
  return Dump(json);
}

std::string UsageEvent(const AnswerIdentity& identity, const Usage& usage) {
  Json json = Head(identity, Form::kEvent);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(usage);
  return Dump(json);
}

}  // namespace coppice::coordinator
