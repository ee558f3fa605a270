#include "coordinator/request/response_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

Json CallJson(const CallDelta& call, Form form) {
  Json json;
  if (form == Form::kEvent) json["index"] = call.index;
  if (call.first) {
    json["id"] = call.id;
    json["type"] = "function";
    json["function"]["name"] = call.name;
  }
  json["function"]["arguments"] = call.arguments;
  return json;
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
  const bool calls_only = choice.text.empty() && !choice.calls.empty();
  if (whole || !choice.text.empty()) message["content"] = calls_only ? Json() : Json(choice.text);
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  for (const CallDelta& call : choice.calls) message["tool_calls"].push_back(CallJson(call, form));
  (*json)[form == Form::kAnswer ? "message" : "delta"] = std::move(message);
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Answers may have a million scores, so these are written directly as text: a tree of JSON values
// takes ten times as long, and ten times the memory.
void AppendText(const std::string& text, std::string* out) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  plain ? absl::StrAppend(out, "\"", text, "\"") : absl::StrAppend(out, Dump(text));
}

// The shortest form that reads back equal, with a point, so that it is not taken for an integer.
void AppendLogProb(double log_prob, std::string* out) {
  char text[32];
  const auto end =
      std::to_chars(std::begin(text), std::end(text), std::max(log_prob, kImpossibleJson)).ptr;
  out->append(text, end);
  if (std::find_if(text, end, [](char c) { return c == '.' || c == 'e'; }) == end) *out += ".0";
}

void AppendIds(const std::vector<TokenId>& ids, std::string* out) {
  absl::StrAppend(out, "[", absl::StrJoin(ids, ","), "]");
}

// The format of /v1/completions. The alternatives are an object, so of tokens with the same text it
// has only the most likely one. The token itself is added to them.
void AppendTop(const TokenLogprob& token, const std::string& own_text, std::string* out) {
  std::vector<std::string> names;
  const auto add = [&](std::string name, double log_prob) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    *out += names.empty() ? '{' : ',';
    AppendText(name, out);
    *out += ':';
    AppendLogProb(log_prob, out);
    names.push_back(std::move(name));
  };
  for (const auto& [other, log_prob] : token.top) add(TokenText(other), log_prob);
  add(own_text, *token.log_prob);
  *out += '}';
}

void AppendLogprobs(const std::vector<TokenLogprob>& tokens, std::string* out) {
  std::string log_probs, top, offsets;
  *out += "{\"tokens\":[";
  for (const TokenLogprob& token : tokens) {
    if (&token != &tokens.front()) {
      for (std::string* list : {out, &log_probs, &top, &offsets}) *list += ',';
    }
    const std::string text = TokenText(token.token);
    AppendText(text, out);
    absl::StrAppend(&offsets, token.offset);
    if (token.log_prob) {
      AppendLogProb(*token.log_prob, &log_probs);
      AppendTop(token, text, &top);
    } else {
      log_probs += "null";
      top += "null";
    }
  }
  absl::StrAppend(out, "],\"token_logprobs\":[", log_probs, "],\"top_logprobs\":[", top,
                  "],\"text_offset\":[", offsets, "]}");
}

// The fields of a token, without the closing brace.
void AppendChatToken(const ShownToken& token, double log_prob, std::string* out) {
  *out += "{\"token\":";
  AppendText(TokenText(token), out);
  *out += ",\"logprob\":";
  AppendLogProb(log_prob, out);
  *out += ",\"bytes\":[";
  for (size_t i = 0; i < token.bytes.size(); ++i)
    absl::StrAppend(out, i == 0 ? "" : ",", static_cast<uint8_t>(token.bytes[i]));
  *out += ']';
}

// The format of /v1/chat/completions.
void AppendChatTokens(const std::vector<TokenLogprob>& tokens, std::string* out) {
  for (const TokenLogprob& token : tokens) {
    if (&token != &tokens.front()) *out += ',';
    AppendChatToken(token.token, token.log_prob.value_or(0), out);
    *out += ",\"top_logprobs\":[";
    for (const auto& other : token.top) {
      if (&other != &token.top.front()) *out += ',';
      AppendChatToken(other.first, other.second, out);
      *out += '}';
    }
    *out += "]}";
  }
}

void AppendChatLogprobs(const std::vector<TokenLogprob>& tokens, std::string* out) {
  *out += "{\"content\":[";
  AppendChatTokens(tokens, out);
  *out += "],\"refusal\":null}";
}

void AppendChoice(const Choice& choice, const AnswerIdentity& identity, Form form,
                  std::string* out) {
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
  *out += Dump(json);
  out->back() = ',';  // replaces the brace
  *out += "\"logprobs\":";
  if (!choice.logprobs) {
    *out += "null";
  } else {
    identity.chat ? AppendChatLogprobs(*choice.logprobs, out)
                  : AppendLogprobs(*choice.logprobs, out);
  }
  if (choice.prompt_token_ids) {
    *out += ",\"prompt_token_ids\":";
    AppendIds(*choice.prompt_token_ids, out);
  }
  if (choice.token_ids) {
    *out += ",\"token_ids\":";
    AppendIds(*choice.token_ids, out);
  }
  *out += '}';
}

// The start of an object: these members, and the list of choices up to the first.
std::string BeforeChoices(const Json& members) {
  std::string text = Dump(members);
  text.back() = ',';  // replaces the brace
  return text + "\"choices\":[";
}

// The end of the list and of the object, with these members.
void AppendAfterChoices(const Json& members, std::string* text) {
  *text += ']';
  if (members.empty()) {
    *text += '}';
  } else {
    absl::StrAppend(text, ",", Dump(members).substr(1));
  }
}

// Adds the member `trace` to an object.
void AppendRounds(absl::Span<const std::string> rounds, std::string* text) {
  text->pop_back();  // the brace
  absl::StrAppend(text, ",\"trace\":[", absl::StrJoin(rounds, ","), "]}");
}

Json SpeculationJson(const DecodingStats& stats) {
  Json json;
  json["method"] = stats.method;
  json["lossless"] = stats.lossless;
  json["rounds"] = stats.rounds;
  json["plain_rounds"] = stats.plain_rounds;
  json["target_passes"] = stats.target_passes;
  json["layers"] = stats.layers;
  json["block_efficiency"] = Optional(stats.block_efficiency());
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
  if (usage.reasoning_tokens)
    json["completion_tokens_details"]["reasoning_tokens"] = *usage.reasoning_tokens;
  if (usage.energy_joules) json["energy_joules"] = *usage.energy_joules;
  json["speculation"] = SpeculationJson(usage.decoding);
  return json;
}

Json EventUsageJson(const EventUsage& usage) {
  if (!usage.completion_tokens) return Json();
  Json json;
  json["prompt_tokens"] = *usage.prompt_tokens;
  json["completion_tokens"] = *usage.completion_tokens;
  json["total_tokens"] = *usage.prompt_tokens + *usage.completion_tokens;
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

}  // namespace

std::string TokenText(const ShownToken& token) {
  const std::string& bytes = token.bytes;
  if (!token.name.empty()) return token.name;
  if (tokenizer::ValidUtf8(bytes) == bytes) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes)
    absl::StrAppend(&text, "\\x", absl::Hex(static_cast<uint8_t>(byte), absl::kZeroPad2));
  return text;
}

std::string CompletionBody(const AnswerIdentity& identity, std::vector<Choice> choices,
                           absl::FunctionRef<void(Choice*)> show,
                           const std::vector<double>& beam_mass, const Usage& usage,
                           const std::optional<std::vector<std::string>>& rounds) {
  std::string text = BeforeChoices(Head(identity, Form::kAnswer));
  for (Choice& choice : choices) {
    if (&choice != &choices.front()) text += ',';
    show(&choice);
    AppendChoice(choice, identity, Form::kAnswer, &text);
    choice = {};
  }
  Json tail;
  if (beam_mass.size() == 1) tail["beam_mass"] = beam_mass[0];
  if (beam_mass.size() > 1) tail["beam_mass"] = beam_mass;
  tail["usage"] = UsageJson(usage);
  tail["timings"] = TimingsJson(usage);
  AppendAfterChoices(tail, &text);
  if (rounds) AppendRounds(*rounds, &text);
  return text;
}

std::string CompletionEvent(const AnswerIdentity& identity, const std::vector<Choice>& choices,
                            std::optional<double> beam_mass, const EventUsage& usage) {
  std::string text = BeforeChoices(Head(identity, Form::kEvent));
  for (const Choice& choice : choices) {
    if (&choice != &choices.front()) text += ',';
    AppendChoice(choice, identity, Form::kEvent, &text);
  }
  Json tail;
  if (beam_mass) tail["beam_mass"] = *beam_mass;
  if (usage.shown) tail["usage"] = EventUsageJson(usage);
  AppendAfterChoices(tail, &text);
  return text;
}

std::string RoundsEvent(const AnswerIdentity& identity, absl::Span<const std::string> rounds,
                        const EventUsage& usage) {
  std::string text = CompletionEvent(identity, {}, std::nullopt, usage);
  AppendRounds(rounds, &text);
  return text;
}

std::string UsageEvent(const AnswerIdentity& identity, const Usage& usage) {
  Json json = Head(identity, Form::kEvent);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(usage);
  return Dump(json);
}

nlohmann::ordered_json SpeculationPart(const Usage& usage) {
  return SpeculationJson(usage.decoding);
}

nlohmann::ordered_json TimingsPart(const Usage& usage) { return TimingsJson(usage); }

nlohmann::ordered_json ScorePart(const std::optional<double>& score) { return Optional(score); }

std::string TokenEntries(const std::vector<TokenLogprob>& tokens) {
  std::string entries;
  AppendChatTokens(tokens, &entries);
  return entries;
}

}  // namespace coppice::coordinator
