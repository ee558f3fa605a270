#include "coordinator/api/api.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/api/answer_format.h"
#include "coordinator/api/catalogue_fields.h"
#include "coordinator/api/chat_fields.h"
#include "coordinator/api/decoding_rules.h"
#include "coordinator/api/format_fields.h"
#include "coordinator/api/json_fields.h"
#include "coordinator/api/prompt_fields.h"
#include "coordinator/api/renamed.h"
#include "coordinator/api/served_models.h"
#include "coordinator/api/speculative_fields.h"
#include "coordinator/api/unserved_fields.h"
#include "decoding/decision_cost.h"
#include "decoding/parameter.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxStopIds = 64;
constexpr size_t kMaxBiases = 1024;
constexpr int64_t kMostScores = 2'000'000;  // scores of one answer, so that it can be held and sent
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

uint64_t DrawSeed() {
  thread_local std::mt19937_64 engine(std::random_device{}());
  return engine() >> 11;  // uniform below 2^53
}

// Both endpoints read everything except the prompt in the same way.
class RequestParser {
 public:
  // text: of the body. prompt: reads the fields of the endpoint's prompt, and makes the prompts
  // once all other fields are known to be right.
  RequestParser(const std::string& text, const json& body, const ApiContext& context,
                PromptFields* prompt)
      : text_(text),
        context_(context),
        limits_(context.limits),
        vocab_(context.vocab_size()),
        ignored_(context.limits.refuse_unknown_fields),
        fields_(body, "", &ignored_),
        prompt_(prompt) {}

  std::variant<GenerateRequest, ApiError> Parse(const std::string& timeout_header) {
    ReadModel();
    ReadScalars();
    ReadDecoding();
    ReadStops();
    ReadBias();
    ReadOutput();
    ReadPriority();
    ReadTimeout(timeout_header);
    ReadUnservedFields(prompt_->chat(), &fields_);
    ReadCatalogue(context_, &fields_, &request_);
    ReadFormatFields(text_, limits_, &fields_, &request_);
    prompt_->Read(&fields_);
    ApplyDecoding(given_, context_, &fields_, &request_);
    ApplySpeculative(limits_, &fields_, &request_);
    RefuseRenamed(&fields_);
    fields_.IgnoreUnknown();
    if (!fields_.error()) prompt_->MakePrompts(&fields_, &request_);
    if (!fields_.error()) BindAnswer(context_, &fields_, &request_);
    if (!fields_.error()) CheckFormatFields(context_, &fields_, request_);
    CheckScoreOnly();
    CheckFormatCopies(limits_, &fields_, request_);
    CheckNames();
    if (fields_.error()) return *fields_.error();
    request_.ignored = std::move(ignored_);
    return std::move(request_);
  }

 private:
  void ReadModel() {
    request_.model = fields_.String({"model"}).value_or(context_.model_names.at(0));
    if (auto error = CheckModelName(request_.model, context_.model_names))
      fields_.set_error(*std::move(error));
  }

  void ReadScalars() {
    request_.params.max_tokens = limits_.default_max_tokens;
    const std::optional<int64_t> most = MaxTokens();
    request_.score_only = most == 0;
    request_.max_tokens_given = most.value_or(-1) >= 0;
    // A decoder generates at least one token.
    if (request_.score_only) request_.params.max_tokens = 1;
    ReadParameters(/*object=*/"", limits_, vocab_, &fields_, &request_.params, &given_.parameters,
                   /*except=*/most.value_or(1) <= 0 ? "max_tokens" : "");
    if (request_.max_tokens_given && request_.params.min_tokens > request_.max_tokens()) {
      fields_.Fail("invalid_value", "min_tokens",
                   absl::StrCat("must be between 0 and max_tokens, which is ",
                                request_.max_tokens(), ", got ", request_.params.min_tokens));
    }
  }

  // -1 means that it is not given. nullopt: absent, or not an integer.
  std::optional<int64_t> MaxTokens() {
    const json* value = fields_.FindValue(MaxTokensNames());
    const std::optional<int64_t> number = value == nullptr ? std::nullopt : AsInteger(*value);
    return number.value_or(0) < -1 ? std::nullopt : number;
  }

  static JsonFields::Names MaxTokensNames() {
    return decoding::FindParameter("max_tokens")->fields;
  }

  // max_tokens 0 scores the prompt, and does nothing else.
  void CheckScoreOnly() {
    if (!request_.score_only) return;
    if (!request_.echo) {
      fields_.Fail(kUnsupportedCombination, fields_.Spelling(MaxTokensNames()),
                   "must be at least 1; 0 only scores a prompt, with echo: true");
    }
    if (request_.stream) {
      fields_.Fail(kUnsupportedCombination, fields_.Spelling(MaxTokensNames()),
                   "0 cannot be combined with stream");
    }
    request_.samples = 1;  // all choices are the same
  }

  // The field changes nothing unless the other one is given.
  void NoEffect(const char* name, absl::string_view without) {
    fields_.IgnoreField(name, kUnsupportedCombination,
                        absl::StrCat("has no effect without ", without));
  }

  void CheckNames() {
    if (request_.names_are_ids && !request_.logprobs)
      NoEffect("return_tokens_as_token_ids", "logprobs");
  }

  void ReadDecoding() {
    given_.decoding = fields_.String({"decoding"});
    given_.use_beam_search = fields_.Bool({"use_beam_search"});
    given_.do_sample = fields_.Bool({"do_sample"});
    given_.n = fields_.Integer({"n", "num_return_sequences"}, 1, limits_.max_n);
    given_.best_of = fields_.Integer({"best_of"}, 1, limits_.max_n);
    given_.sampling_scope = fields_.String({"sampling_scope"});
    given_.beam_duplicates = fields_.String({"beam_duplicates"});
    if (const json* early = fields_.Find({"early_stopping"}); early != nullptr) {
      if (early->is_boolean() || *early == "never") {
        given_.stop_when_full = *early == true;
      } else {
        fields_.Fail(early->is_string() ? "invalid_value" : "invalid_type", "early_stopping",
                     "must be true, false or \"never\"");
      }
    }
    const std::optional<int64_t> seed = fields_.Integer({"seed"}, kInt64Min, kInt64Max);
    request_.params.seed = seed ? static_cast<uint64_t>(*seed) : DrawSeed();
  }

  void ReadStops() {
    ReadStopStrings();
    request_.include_stop = fields_.Bool({"include_stop_str_in_output"}).value_or(false);
    if (request_.include_stop && request_.params.stop_strings.empty())
      NoEffect("include_stop_str_in_output", "stop");
    for (const int64_t id : fields_.Integers({"stop_token_ids"}, 0, vocab_ - 1, kMaxStopIds)) {
      request_.own_stop_ids.push_back(static_cast<TokenId>(id));
    }
    request_.ignore_eos = fields_.Bool({"ignore_eos"}).value_or(false);
  }

  void ReadStopStrings() {
    const json* stop = fields_.FindValue({"stop"});
    if (stop == nullptr) return;
    const json list = stop->is_string() ? json::array({*stop}) : *stop;
    if (!list.is_array() || !AllOf(list, &json::is_string)) {
      return fields_.Fail("invalid_type", "stop", "must be a string or a list of strings");
    }
    if (list.size() > kMaxStops) {
      return fields_.Fail("invalid_value", "stop",
                          absl::StrCat("has at most ", kMaxStops, " strings, got ", list.size()));
    }
    for (const json& entry : list) {
      std::string text = entry.get<std::string>();
      if (text.empty() || text.size() > kMaxStopBytes) {
        return fields_.Fail("invalid_value", "stop",
                            absl::StrCat("has strings of 1 to ", kMaxStopBytes,
                                         " bytes, got one of ", text.size()));
      }
      request_.params.stop_strings.push_back(std::move(text));
    }
  }

  void ReadBias() {
    const json* bias = fields_.Object("logit_bias");
    if (bias == nullptr) return;
    if (bias->size() > kMaxBiases) {
      return fields_.Fail("invalid_value", "logit_bias",
                          absl::StrCat("has at most ", kMaxBiases, " entries"));
    }
    for (const auto& item : bias->items()) {
      int id = -1;
      // "05" would be a second key of token 5.
      if (!absl::SimpleAtoi(item.key(), &id) || id < 0 || id >= vocab_ ||
          absl::StrCat(id) != item.key()) {
        return fields_.Fail("invalid_value", "logit_bias",
                            absl::StrCat("has keys between 0 and ", vocab_ - 1));
      }
      if (!item.value().is_number())
        return fields_.Fail("invalid_type", "logit_bias", "has numbers as values");
      const double value = item.value().get<double>();
      if (!(value >= -100 && value <= 100)) {
        return fields_.Fail("invalid_value", "logit_bias", "has values between -100 and 100");
      }
      if (value != 0) request_.params.sampling.logit_bias.emplace_back(id, value);
    }
    std::sort(request_.params.sampling.logit_bias.begin(),
              request_.params.sampling.logit_bias.end());
  }

  void ReadOutput() {
    request_.stream = fields_.Bool({"stream"}).value_or(false);
    given_.stream = request_.stream;
    request_.return_token_ids = fields_.Bool({"return_token_ids"}).value_or(false);
    request_.trace = fields_.Bool({"trace"}).value_or(false);
    request_.names_are_ids = fields_.Bool({"return_tokens_as_token_ids"}).value_or(false);
    request_.skip_special_tokens = fields_.Bool({"skip_special_tokens"}).value_or(true);
    request_.params.show_special_tokens = !request_.skip_special_tokens;
    const json* options = fields_.Object("stream_options");
    if (options == nullptr) return;
    if (!request_.stream) return NoEffect("stream_options", "stream: true");
    JsonFields inner(*options, "stream_options", &ignored_);
    request_.include_usage = inner.Bool({"include_usage"}).value_or(false);
    request_.continuous_usage = inner.Bool({"continuous_usage_stats"}).value_or(false);
    if (request_.continuous_usage && !request_.include_usage) {
      inner.IgnoreField("continuous_usage_stats", kUnsupportedCombination,
                        "has no effect without include_usage");
      request_.continuous_usage = false;
    }
    inner.Ignore({"include_obfuscation"});
    inner.IgnoreUnknown();
    if (inner.error()) fields_.set_error(*inner.error());
  }

  void ReadPriority() {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    const int64_t given = fields_.Integer({"priority"}, -kMost, kMost).value_or(0);
    request_.priority = std::max(static_cast<int>(given), limits_.least_priority);
  }

  void ReadTimeout(const std::string& header) {
    const std::optional<double> given =
        fields_.Number({"timeout"}, 0, limits_.max_timeout_s, /*open_low=*/true);
    request_.timeout_s = given.value_or(limits_.default_timeout_s);
    if (header.empty()) return;
    double seconds = 0;
    if (!absl::SimpleAtod(header, &seconds) || !(seconds > 0 && seconds <= limits_.max_timeout_s)) {
      fields_.set_error({400, "invalid_header",
                         absl::StrCat("X-Request-Timeout must be seconds above 0 and at most ",
                                      limits_.max_timeout_s)});
      return;
    }
    request_.timeout_s = given ? std::min(*given, seconds) : seconds;
  }

  const std::string& text_;
  const ApiContext& context_;
  const ApiLimits& limits_;
  const int vocab_;
  IgnoredFields ignored_;
  JsonFields fields_;
  PromptFields* const prompt_;
  DecodingFields given_;
  GenerateRequest request_;
};

std::variant<GenerateRequest, ApiError> Parse(const std::string& body,
                                              const std::string& timeout_header,
                                              const ApiContext& context, PromptFields* prompt) {
  json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, context.limits.max_json_depth, &object))
    return *error;
  return RequestParser(body, object, context, prompt).Parse(timeout_header);
}

}  // namespace

std::variant<GenerateRequest, ApiError> ParseCompletion(const std::string& body,
                                                        const std::string& timeout_header,
                                                        const ApiContext& context) {
  TextPromptFields prompt({context.tokenizer, context.max_model_len}, context.vocab_size());
  return Parse(body, timeout_header, context, &prompt);
}

std::variant<GenerateRequest, ApiError> ParseChatCompletion(const std::string& body,
                                                            const std::string& timeout_header,
                                                            const ApiContext& context,
                                                            int64_t now_unix) {
  ChatFields prompt(context, now_unix, body, {context.tokenizer, context.max_model_len});
  return Parse(body, timeout_header, context, &prompt);
}

namespace {

// The most log-probabilities that the answer can have, those of alternatives included.
int64_t ScoresOf(const GenerateRequest& request, int64_t max_tokens) {
  if (!request.logprobs) return 0;
  int64_t tokens = 0;
  for (const auto& prompt : request.prompts) {
    const int64_t echoed = request.score_prompt() ? static_cast<int64_t>(prompt.size()) : 0;
    tokens += std::max(request.n, request.samples) * (max_tokens + echoed);
  }
  return tokens * (*request.logprobs + 1);
}

// Of a request that gives none, with `room` tokens left in the context.
int DefaultMaxTokens(const GenerateRequest& request, const ApiLimits& limits, int64_t room) {
  int64_t most = request.chat() ? limits.default_chat_max_tokens : limits.default_max_tokens;
  if (most == 0) most = room;
  if (request.logprobs) {  // they must fit into an answer, with those of the prompts
    const int64_t of_prompts = ScoresOf(request, 0);
    const int64_t of_token = ScoresOf(request, 1) - of_prompts;
    most = std::min(most, std::max<int64_t>(1, (kMostScores - of_prompts) / of_token));
  }
  return static_cast<int>(std::max<int64_t>(0, std::min(room, most)));
}

// Returns the KV blocks that the request may need. If it gives no max_tokens, it gets one with which
// it fits into a replica, where there is such a number.
int64_t FitToKv(const ModelLimits& model, int64_t prompt_tokens, GenerateRequest* request) {
  decoding::DecodingParams& params = request->params;
  const auto needed = [&](int max_tokens) {
    params.max_tokens = max_tokens;
    return decoding::KvPagesBound(params, prompt_tokens, model.kv_storage);
  };
  int fits = params.max_tokens;
  if (needed(fits) > model.kv_blocks_total && !request->max_tokens_given) {
    int low = 1, high = fits;  // the largest that fits is in [low, high), or none does
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (needed(middle) <= model.kv_blocks_total ? low : high) = middle;
    }
    fits = low;
  }
  return needed(fits);
}

}  // namespace

std::optional<ApiError> FitToModel(const ModelLimits& model, const ApiLimits& limits,
                                   GenerateRequest* request) {
  size_t longest = 0;
  for (const auto& prompt : request->prompts) {
    longest = std::max(longest, prompt.size());
    // The model may have come after the prompt was read.
    if (*std::max_element(prompt.begin(), prompt.end()) >= model.vocab_size) {
      return ApiError{400, "invalid_value",
                      absl::StrCat("prompt has token ids between 0 and ", model.vocab_size - 1),
                      "prompt"};
    }
  }
  decoding::DecodingParams& params = request->params;
  const int64_t room = static_cast<int64_t>(model.max_model_len) - static_cast<int64_t>(longest);
  if (!request->max_tokens_given) params.max_tokens = DefaultMaxTokens(*request, limits, room);
  if (room < (request->score_only ? 0 : std::max(1, params.max_tokens)))
    return ContextLengthError(*request, model.max_model_len, longest);
  if (const int64_t scores = ScoresOf(*request, request->max_tokens()); scores > kMostScores) {
    return ApiError{400, "invalid_value",
                    absl::StrCat("logprobs gives up to ", scores,
                                 " log-probabilities, counting those of alternatives; at most ",
                                 kMostScores, " are served"),
                    "logprobs"};
  }
  if (const absl::Status cost = decoding::CheckDecisionCost(params, model.vocab_size); !cost.ok()) {
    return ApiError{400, kUnsupportedCombination, std::string(cost.message()), "beam_width"};
  }
  if (model.kv_blocks_total > 0) {
    const int64_t needed = FitToKv(model, static_cast<int64_t>(longest), request);
    if (needed > model.kv_blocks_total) {
      return ApiError{400, "kv_capacity_exceeded",
                      absl::StrCat("the request needs up to ", needed, " KV blocks, a replica has ",
                                   model.kv_blocks_total),
                      request->max_tokens_given ? "max_tokens" : PromptField(*request)};
    }
  }
  if (params.min_tokens > request->max_tokens()) {
    return ApiError{400, "invalid_value",
                    absl::StrCat("min_tokens must be between 0 and max_tokens, which is ",
                                 request->max_tokens(), ", got ", params.min_tokens),
                    "min_tokens"};
  }
  params.stop_ids = request->own_stop_ids;
  request->vocab_size = model.vocab_size;
  if (!request->ignore_eos) request->eos_ids = model.eos_ids;
  if (!request->ignore_eos) {
    request->eos_ids.insert(request->eos_ids.end(), request->turn_end_ids.begin(),
                            request->turn_end_ids.end());
  }
  params.stop_ids.insert(params.stop_ids.end(), request->eos_ids.begin(), request->eos_ids.end());
  std::sort(params.stop_ids.begin(), params.stop_ids.end());
  params.stop_ids.erase(std::unique(params.stop_ids.begin(), params.stop_ids.end()),
                        params.stop_ids.end());
  if (const absl::string_view why = decoding::NoEndOfFormat(params);
      !request->format_field.empty() && !why.empty() && !request->catalogue.ends_items()) {
    return ApiError{400, kUnsupportedCombination, absl::StrCat(request->format_field, " ", why),
                    request->format_field};
  }
  return std::nullopt;
}

}  // namespace coppice::coordinator
