#include "coordinator/response_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

Json Optional(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

double Rounded(double milliseconds) { return std::round(milliseconds * 1000) / 1000; }

Json Head(const AnswerIdentity& identity) {
  Json head;
  head["id"] = identity.id;
  head["object"] = "text_completion";
  head["created"] = identity.created;
  head["model"] = identity.model;
  head["system_fingerprint"] = identity.fingerprint;
  return head;
}

Json ChoiceJson(const Choice& choice) {
  const bool finished = !choice.finish_reason.empty();
  Json json;
  json["index"] = choice.index;
  json["text"] = choice.text;
  json["finish_reason"] = finished ? Json(choice.finish_reason) : Json();
  json["stop_reason"] = choice.stop_string  ? Json(*choice.stop_string)
                        : choice.stop_token ? Json(*choice.stop_token)
                                            : Json();
  if (finished) {
    json["seed"] = choice.seed;
    json["score"] = Optional(choice.score);
    json["joint_logprob"] = Optional(choice.joint_logprob);
  }
  json["logprobs"] = Json();
  if (choice.prompt_token_ids) json["prompt_token_ids"] = *choice.prompt_token_ids;
  if (choice.token_ids) json["token_ids"] = *choice.token_ids;
  return json;
}

Json ChoicesJson(const std::vector<Choice>& choices) {
  Json list = Json::array();
  for (const Choice& choice : choices) list.push_back(ChoiceJson(choice));
  return list;
}

Json SpeculationJson(const Usage& usage) {
  Json json;
  json["method"] = usage.method;
  json["lossless"] = usage.lossless;
  json["rounds"] = usage.rounds;
  json["plain_rounds"] = usage.plain_rounds;
  json["target_passes"] = usage.target_passes;
  json["layers"] = usage.layers;
  json["layers_per_pass"] = usage.target_passes > 0
                                ? Json(static_cast<double>(usage.layers) / usage.target_passes)
                                : Json();
  json["beam_tokens"] = usage.beam_tokens;
  json["drafted_nodes"] = usage.drafted_nodes;
  json["accepted_nodes"] = usage.accepted_nodes;
  json["accepted_by_layer"] = usage.accepted_by_layer;
  json["accepted_width"] = Optional(usage.accepted_width);
  json["overlap"] = Optional(usage.overlap);
  json["draft_width"] = Optional(usage.draft_width);
  json["draft_depth"] = Optional(usage.draft_depth);
  json["energy_joules"] = Json();
  return json;
}

Json UsageJson(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  json["speculation"] = SpeculationJson(usage);
  return json;
}

Json TimingsJson(const Timings& timings) {
  Json json;
  json["queue_ms"] = Rounded(timings.queue_ms);
  json["prefill_ms"] = Rounded(timings.prefill_ms);
  json["first_token_ms"] = Rounded(timings.first_token_ms);
  json["draft_ms"] = Rounded(timings.draft_ms);
  json["draft_wait_ms"] = Rounded(timings.draft_wait_ms);
  json["verify_ms"] = Rounded(timings.verify_ms);
  json["total_ms"] = Rounded(timings.total_ms);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string CompletionBody(const AnswerIdentity& identity, const std::vector<Choice>& choices,
                           const Usage& usage, const Timings& timings) {
  Json json = Head(identity);
  json["choices"] = ChoicesJson(choices);
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(timings);
  return Dump(json);
}

std::string CompletionEvent(const AnswerIdentity& identity, const std::vector<Choice>& choices,
                            bool usage_null) {
  Json json = Head(identity);
  json["choices"] = ChoicesJson(choices);
  if (usage_null) json["usage"] = Json();
  return Dump(json);
}

std::string UsageEvent(const AnswerIdentity& identity, const Usage& usage, const Timings& timings) {
  Json json = Head(identity);
  json["choices"] = Json::array();
  json["usage"] = UsageJson(usage);
  json["timings"] = TimingsJson(timings);
  return Dump(json);
}

}  // namespace coppice
