#include "lab/answers/answer_json.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace coppice::answers {
namespace {

using Json = nlohmann::json;

// Calls visit(name, member) for every member of a request, for both writing and reading.
template <typename Request, typename Visit>
void VisitFields(Request* request, Visit visit) {
  auto& params = request->params;
  visit("number", &request->number);
  visit("prompt", &request->prompt);
  visit("decoding", &params.kind);
  visit("method", &request->method);
  visit("beam_width", &params.beam_width);
  visit("n", &params.num_hypotheses);
  visit("max_tokens", &params.max_tokens);
  visit("min_tokens", &params.min_tokens);
  visit("seed", &params.seed);
  visit("length_penalty", &params.length_penalty);
  visit("stop_when_full", &params.stop_when_full);
  visit("refill", &params.refill);
  visit("set_semantics", &params.set_semantics);
  visit("stop_ids", &params.stop_ids);
  visit("temperature", &params.sampling.temperature);
  visit("top_k", &params.sampling.top_k);
  visit("top_p", &params.sampling.top_p);
  visit("min_p", &params.sampling.min_p);
  visit("logit_bias", &params.sampling.logit_bias);
  visit("sampling_scope", &params.sampling.mode);
  visit("draft_width", &params.draft_width);
  visit("draft_depth", &params.draft_depth);
  visit("draft_top_k", &params.draft_top_k);
  visit("width_threshold", &params.width_threshold);
  visit("min_width", &params.min_width);
  visit("draft_tree", &params.draft_tree);
  visit("draft_beams", &params.draft_beams);
  visit("mjsd_threshold", &params.mjsd_threshold);
  visit("fallback_threshold", &params.fallback_threshold);
  visit("rollback_threshold", &params.rollback_threshold);
  visit("joint_tokens", &params.joint_tokens);
  visit("forest_width", &request->forest_width);
  visit("forest_depth", &request->forest_depth);
  visit("late", &request->late);
}

template <typename T>
Json ValueToJson(const T& value) {
  return value;
}
Json ValueToJson(sampling::DecodingKind kind) {
  return std::string(sampling::DecodingKindName(kind));
}
Json ValueToJson(sampling::SamplingScope mode) {
  return std::string(sampling::SamplingScopeName(mode));
}
// [[token, nats]]. null bans the token, because JSON has no infinity.
Json ValueToJson(const std::vector<std::pair<TokenId, double>>& bias) {
  Json json = Json::array();
  const double ban = -std::numeric_limits<double>::infinity();
  for (const auto& [token, nats] : bias) json.push_back({token, nats == ban ? Json() : Json(nats)});
  return json;
}

template <typename T>
absl::Status ValueFromJson(const Json& json, T* value) {
  *value = json.get<T>();
  return absl::OkStatus();
}
absl::Status ValueFromJson(const Json& json, sampling::DecodingKind* kind) {
  COPPICE_ASSIGN_OR_RETURN(*kind, sampling::ParseDecodingKind(json.get<std::string>()));
  return absl::OkStatus();
}
absl::Status ValueFromJson(const Json& json, sampling::SamplingScope* mode) {
  COPPICE_ASSIGN_OR_RETURN(*mode, sampling::ParseSamplingScope(json.get<std::string>()));
  return absl::OkStatus();
}
absl::Status ValueFromJson(const Json& json, std::vector<std::pair<TokenId, double>>* bias) {
  const double ban = -std::numeric_limits<double>::infinity();
  for (const Json& entry : json) {
    const Json& nats = entry.at(1);
    bias->emplace_back(entry.at(0).get<TokenId>(), nats.is_null() ? ban : nats.get<double>());
  }
  return absl::OkStatus();
}

std::string ExactText(double value) { return absl::StrFormat("%a", value); }

Json HypothesisToJson(const decoding::Hypothesis& hypothesis) {
  return {{"tokens", hypothesis.tokens},
          {"joint_log_probability", ExactText(hypothesis.joint_log_probability)},
          {"score", ExactText(hypothesis.score)},
          {"finished", hypothesis.finished}};
}

}  // namespace

Json RequestToJson(const AnswerRequest& request) {
  Json json;
  VisitFields(&request,
              [&](const char* name, const auto* member) { json[name] = ValueToJson(*member); });
  const AnswerRequest neutral;
  VisitFields(&neutral, [&](const char* name, const auto* member) {
    if (json[name] == ValueToJson(*member)) json.erase(name);
  });
  return json;
}

absl::StatusOr<AnswerRequest> RequestFromJson(const Json& json) {
  AnswerRequest request;
  absl::Status status;
  size_t known = 0;
  VisitFields(&request, [&](const char* name, auto* member) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    ++known;
    try {
      status.Update(ValueFromJson(*found, member));
    } catch (const Json::exception& error) {
      status.Update(absl::InvalidArgumentError(absl::StrCat(name, ": ", error.what())));
    }
  });
  if (known < json.size()) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat(json.size() - known, " unknown fields in ", json.dump())));
  }
  if (!status.ok()) return status;
  return request;
}

Json AnswerToJson(const Answer& answer) {
  if (!answer.refused.ok()) {
    return {{"refused", absl::StatusCodeToString(answer.refused.code())}};
  }
  Json hypotheses = Json::array();
  for (const decoding::Hypothesis& hypothesis : answer.hypotheses) {
    hypotheses.push_back(HypothesisToJson(hypothesis));
  }
  return {{"hypotheses", std::move(hypotheses)},
          {"layers", answer.layers},
          {"drafted_nodes", answer.drafted_nodes},
          {"accepted_nodes", answer.accepted_nodes},
          {"stable_prefix", answer.stable_prefix}};
}

}  // namespace coppice::answers
