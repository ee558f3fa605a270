#include "worker/admission.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decoding/decision_cost.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "tokenizer/stop_strings.h"

namespace coppice::worker {
namespace {

Refusal Refuse(const char* code, const absl::Status& status) {
  return {code, std::string(status.message())};
}

// Sets the decoding parameters, the method and the values that follow from them.
std::optional<Refusal> SetDecoding(const proto::Decoding& message, const model::ModelConfig& model,
                                   Sequence* sequence) {
  auto params = proto::DecodingFromMessage(message);
  if (!params.ok()) return Refuse("invalid_value", params.status());
  sequence->params = *std::move(params);
  const decoding::MethodRow& method = *sequence->params.method;
  if (auto status = decoding::CheckServes(method, sequence->params); !status.ok()) {
    return Refuse("unsupported_combination", status);
  }
  if (auto status = decoding::CheckDecisionCost(sequence->params, model.vocab_size); !status.ok()) {
    return Refuse("unsupported_combination", status);
  }
  sequence->draft = decoding::DraftSizeOf(sequence->params);
  sequence->stats.method = std::string(method.name);
  sequence->stats.lossless = method.lossless && (sequence->params.width_threshold == 0 ||
                                                 !method.reads("width_threshold"));
  return std::nullopt;
}

// Sets which log-probabilities of the tokens are reported.
std::optional<Refusal> SetScores(const proto::StartSequence& start, Sequence* sequence) {
  if (start.has_logprobs()) {
    if (start.logprobs() < 0 || start.logprobs() > kMostAlternatives) {
      return Refusal{"invalid_value", absl::StrCat("logprobs: must be between 0 and ",
                                                   kMostAlternatives, ", got ", start.logprobs())};
    }
    sequence->scores.top = start.logprobs();
  }
  sequence->scores.of_prompt = start.score_prompt();
  if (start.score_prompt() && !start.has_logprobs()) {
    return Refusal{"invalid_value", "score_prompt: needs logprobs"};
  }
  sequence->score_only = start.score_only();
  if (sequence->score_only) sequence->draft = decoding::DraftSize();
  return std::nullopt;
}

std::optional<Refusal> CheckPrompt(const Sequence& sequence, const model::ModelConfig& model) {
  if (sequence.prompt.empty()) return Refusal{"invalid_value", "prompt: no tokens"};
  if (auto status = proto::CheckTokens(sequence.prompt, model.vocab_size, "prompt"); !status.ok()) {
    return Refuse("invalid_value", status);
  }
  const int64_t longest = static_cast<int64_t>(sequence.prompt.size()) +
                          (sequence.score_only ? 0 : sequence.params.max_tokens);
  if (longest <= model.max_positions) return std::nullopt;
  return Refusal{"context_length_exceeded",
                 absl::StrCat("prompt and max_tokens are ", longest, " tokens, the model has ",
                              model.max_positions)};
}

// Whether spaces of the output would be lost, as those at the beginning of a whole text are.
bool LosesSpaces(const tokenizer::Vocabulary& vocabulary, absl::Span<const TokenId> prompt) {
  if (vocabulary.leading_spaces_dropped() == 0) return false;
  return std::all_of(prompt.begin(), prompt.end(), [&vocabulary](TokenId token) {
    const absl::string_view bytes = vocabulary.Bytes(token, /*skip_special=*/true);
    return bytes.find_first_not_of(' ') == absl::string_view::npos;
  });
}

// Gives the decoder what it needs from the prompt and the vocabulary.
std::optional<Refusal> SetText(grammar::FormatStore* formats, Sequence* sequence) {
  decoding::DecodingParams& params = sequence->params;
  decoding::SetPrompt(sequence->prompt, &params);
  if (params.format_spec.kind != FormatSpec::Kind::kNone) {
    auto format = formats->Find(params.format_spec, params.stop_ids);
    if (absl::IsFailedPrecondition(format.status()))
      return Refuse("unsupported_combination", format.status());
    if (!format.ok()) return Refuse("invalid_value", format.status());
    const bool text = params.format_spec.kind != FormatSpec::Kind::kCatalogue;
    if (text && LosesSpaces(*formats->vocabulary(), sequence->prompt)) {
      return Refusal{
          "unsupported_combination",
          "structured_outputs: the tokenizer drops spaces at the beginning of a text, and "
          "the prompt has none before it"};
    }
    params.format = *std::move(format);
  }
  if (params.stop_strings.empty()) return std::nullopt;
  if (formats->vocabulary() == nullptr) {
    return Refusal{"unsupported_combination",
                   "stop: the replica found no tokenizer in the folder of its model"};
  }
  params.stop_text = std::make_shared<tokenizer::StopStrings>(
      formats->vocabulary(), params.stop_strings, !params.show_special_tokens, sequence->prompt);
  return std::nullopt;
}

std::optional<Refusal> Fill(const proto::StartSequence& start, const model::ModelConfig& model,
                            grammar::FormatStore* formats, const Scheduler& scheduler,
                            Sequence* sequence) {
  if (auto refusal = SetDecoding(start.decoding(), model, sequence)) return refusal;
  if (auto refusal = SetScores(start, sequence)) return refusal;
  if (auto refusal = CheckPrompt(*sequence, model)) return refusal;
  if (auto status = scheduler.CheckFits(*sequence); !status.ok()) {
    return Refuse("kv_capacity_exceeded", status);
  }
  const int64_t bound = scheduler.BlocksBound(*sequence);
  const auto expected = static_cast<int64_t>(start.expected_kv_blocks());
  sequence->expected_blocks = expected > 0 ? std::min(expected, bound) : bound;
  if (auto refusal = SetText(formats, sequence)) return refusal;
  auto decoder = decoding::MakeBeamDecoder(sequence->params);
  if (!decoder.ok()) return Refuse("unsupported_combination", decoder.status());
  sequence->decoder = *std::move(decoder);
  return std::nullopt;
}

}  // namespace

StartedSequence StartSequence(const proto::StartSequence& start, const model::ModelConfig& model,
                              grammar::FormatStore* formats, const Scheduler& scheduler,
                              double now_s) {
  StartedSequence started;
  started.sequence = std::make_unique<Sequence>();
  started.sequence->id = start.sequence_id();
  started.sequence->prompt.assign(start.prompt().begin(), start.prompt().end());
  started.sequence->quiet = start.quiet();
  started.sequence->timeline = start.timeline();
  started.sequence->shows_rounds = start.forests();
  started.sequence->trace = proto::TraceFromMessage(start.trace());
  started.sequence->client = start.client();
  started.sequence->priority = start.priority();
  if (start.client_weight() > 0 && std::isfinite(start.client_weight()))
    started.sequence->client_weight = start.client_weight();
  started.sequence->arrival_s = now_s;
  started.refusal = Fill(start, model, formats, scheduler, started.sequence.get());
  return started;
}

}  // namespace coppice::worker
