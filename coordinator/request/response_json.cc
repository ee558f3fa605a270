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
#include "coordinator/api/json_text.h"
#include "tokenizer/utf8.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kImpossibleJson = -9999;  // a log-probability of -infinity
constexpr size_t kUsualEvent = 256;        // bytes of an event behind its head, mostly

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

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Choices are written directly as text, since a server may send a hundred thousand events in a
// second, and an answer may have a million scores: a tree of JSON values takes ten times as long,
// and ten times the memory.

// The message of a chat, or what an event adds to it.
void AppendMessage(const Choice& choice, Form form, std::string* out) {
  const bool whole = form == Form::kAnswer || choice.first;
  const char* separator = "";
  const auto name = [&](const char* member) {
    absl::StrAppend(out, separator, "\"", member, "\":");
    separator = ",";
  };
  *out += '{';
  if (whole) {
    name("role");
    *out += "\"assistant\"";
  }
  if (whole || !choice.text.empty()) {
    name("content");
    const bool calls_only = choice.text.empty() && !choice.calls.empty();
    calls_only ? void(*out += "null") : AppendQuoted(choice.text, out);
  }
  if (!choice.reasoning.empty()) {
    name("reasoning_content");
    AppendQuoted(choice.reasoning, out);
  }
  if (!choice.calls.empty()) {
    name("tool_calls");
    for (const CallDelta& call : choice.calls)
      absl::StrAppend(out, &call == &choice.calls.front() ? "[" : ",", Dump(CallJson(call, form)));
    *out += ']';
  }
  *out += '}';
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
    AppendQuoted(name, out);
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
    AppendQuoted(text, out);
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
  AppendQuoted(TokenText(token), out);
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

void AppendItem(const std::optional<ShownItem>& item, std::string* out) {
  *out += ",\"item\":";
  if (!item) {
    *out += "null";
    return;
  }
  *out += "{\"id\":";
  AppendQuoted(item->id, out);
  *out += ",\"name\":";
  AppendQuoted(item->name, out);
  *out += '}';
}

void AppendChoice(const Choice& choice, bool chat, Form form, std::string* out) {
  absl::StrAppend(out, "{\"index\":", choice.index, ",");
  if (chat) {
    *out += form == Form::kAnswer ? "\"message\":" : "\"delta\":";
    AppendMessage(choice, form, out);
  } else {
    *out += "\"text\":";
    AppendQuoted(choice.text, out);
  }
  const bool finished = !choice.finish_reason.empty();
  *out += ",\"finish_reason\":";
  finished ? AppendQuoted(choice.finish_reason, out) : void(*out += "null");
  *out += ",\"stop_reason\":";
  if (choice.stop_string) {
    AppendQuoted(*choice.stop_string, out);
  } else if (choice.stop_token) {
    absl::StrAppend(out, *choice.stop_token);
  } else {
    *out += "null";
  }
  if (finished) {
    absl::StrAppend(out, ",\"seed\":", choice.seed, ",\"score\":", Dump(Optional(choice.score)),
                    ",\"joint_logprob\":", Dump(Optional(choice.joint_logprob)));
  }
  if (choice.item) AppendItem(*choice.item, out);
  *out += ",\"logprobs\":";
  if (!choice.logprobs) {
    *out += "null";
  } else {
    chat ? AppendChatLogprobs(*choice.logprobs, out) : AppendLogprobs(*choice.logprobs, out);
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
  json["suffix_rounds"] = stats.suffix_rounds;
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

void AppendEventUsage(const EventUsage& usage, std::string* out) {
  if (!usage.completion_tokens) {
    *out += "null";
    return;
  }
  absl::StrAppend(out, "{\"prompt_tokens\":", *usage.prompt_tokens,
                  ",\"completion_tokens\":", *usage.completion_tokens,
                  ",\"total_tokens\":", *usage.prompt_tokens + *usage.completion_tokens, "}");
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
    AppendChoice(choice, identity.chat, Form::kAnswer, &text);
    choice = {};
  }
  Json tail;
  if (beam_mass.size() == 1) tail["beam_mass"] = beam_mass[0];
  if (beam_mass.size() > 1) tail["beam_mass"] = beam_mass;
  if (!identity.catalogue.empty()) tail["catalogue"] = Json::parse(identity.catalogue);
  tail["usage"] = UsageJson(usage);
  tail["timings"] = TimingsJson(usage);
  AppendAfterChoices(tail, &text);
  if (rounds) AppendRounds(*rounds, &text);
  return text;
}

std::string EventHead(const AnswerIdentity& identity) {
  return BeforeChoices(Head(identity, Form::kEvent));
}

std::string CompletionEvent(absl::string_view head, bool chat, absl::Span<const Choice> choices,
                            std::optional<double> beam_mass, const EventUsage& usage) {
  std::string text;
  text.reserve(head.size() + kUsualEvent);
  text.append(head.data(), head.size());
  for (const Choice& choice : choices) {
    if (&choice != &choices.front()) text += ',';
    AppendChoice(choice, chat, Form::kEvent, &text);
  }
  text += ']';
  if (beam_mass) absl::StrAppend(&text, ",\"beam_mass\":", Dump(*beam_mass));
  if (usage.shown) {
    text += ",\"usage\":";
    AppendEventUsage(usage, &text);
  }
  text += '}';
  return text;
}

std::string RoundsEvent(absl::string_view head, absl::Span<const std::string> rounds,
                        const EventUsage& usage) {
  std::string text = CompletionEvent(head, /*chat=*/false, {}, std::nullopt, usage);
  AppendRounds(rounds, &text);
  return text;
}

std::string UsageEvent(const AnswerIdentity& identity, const Usage& usage) {
  Json json = Head(identity, Form::kEvent);
  json["choices"] = Json::array();
  if (!identity.catalogue.empty()) json["catalogue"] = Json::parse(identity.catalogue);
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
