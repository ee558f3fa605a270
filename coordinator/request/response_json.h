// Answers as JSON text (docs/api.md 3, 3.2): whole completions and chat completions, stream events,
// usage, timings. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/decoding_stats.h"
#include "base/types.h"
#include "coordinator/request/token_logprobs.h"

namespace coppice::coordinator {

// An item of a catalogue.
struct ShownItem {
  std::string id, name;
};

struct AnswerIdentity {
  bool chat = false;        // choices have messages instead of texts
  std::string id;           // "cmpl-...", "chatcmpl-..."
  int64_t created = 0;      // unix seconds
  std::string model;        // served name
  std::string fingerprint;  // "cop-..."
  std::string catalogue;    // the member `catalogue` as JSON text; "": there is none
};

// What an event adds to a call; in a whole answer, all of the call.
struct CallDelta {
  size_t index = 0;   // among the calls of the choice
  bool first = true;  // the first one of this call: id and name are shown
  std::string id, name, arguments;
};

struct Choice {
  // Where its text comes from: which sequence of the request, which of its hypotheses.
  size_t sequence = 0, hypothesis = 0;
  int index = 0;
  std::string text;  // in an event: the new text
  // Of a chat, beside its text, which is the content. In an event: what is new.
  std::string reasoning;
  std::vector<CallDelta> calls;
  bool first = true;          // in an event: the first one of this index
  std::string finish_reason;  // "" = not finished: null
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token;
  int64_t seed = 0;
  std::optional<double> score, joint_logprob;
  size_t num_tokens = 0;                          // tokens of the whole choice
  size_t reasoning_tokens = 0;                    // of them up to the end of the reasoning
  std::optional<std::vector<TokenId>> token_ids;  // in an event: the new ones
  std::optional<std::vector<TokenId>> prompt_token_ids;
  std::optional<std::vector<TokenLogprob>> logprobs;  // in an event: of the new tokens
  // Of a request with a catalogue, once the choice is finished; nullopt in it: it is no item.
  std::optional<std::optional<ShownItem>> item;
  // The probability of a hypothesis that has ended, else 0: its part of `beam_mass`.
  double mass = 0;
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // of completion_tokens; nullopt: none is looked for
  DecodingStats decoding;  // sum over all sequences; queue_ms includes the coordinator's queue
  double first_token_ms = 0, total_ms = 0;  // since the request's arrival
  std::optional<double> energy_joules;      // nullopt: some of it was not measured
};

// show: adds the text, scores and ids of a choice. Choices are shown one after the other, so that
// no more than one is in memory twice. beam_mass: of each prompt, with a beam decoding.
// rounds: JSON texts (round_json.h), if they are to be shown.
std::string CompletionBody(const AnswerIdentity& identity, std::vector<Choice> choices,
                           absl::FunctionRef<void(Choice*)> show,
                           const std::vector<double>& beam_mass, const Usage& usage,
                           const std::optional<std::vector<std::string>>& rounds);
// `usage` of a stream event. With include_usage it is null, or has the counts so far.
struct EventUsage {
  bool shown = false;
  std::optional<int64_t> prompt_tokens, completion_tokens;
};

// What all events of a stream begin with, up to their choices.
std::string EventHead(const AnswerIdentity& identity);
// A stream event. head: of EventHead. chat: as in the identity. beam_mass: in the event that ends
// the choices of a prompt, with a beam decoding.
std::string CompletionEvent(absl::string_view head, bool chat, absl::Span<const Choice> choices,
                            std::optional<double> beam_mass, const EventUsage& usage);
// The event after the last choice: no choices, usage and timings.
std::string UsageEvent(const AnswerIdentity& identity, const Usage& usage);

// The event that shows rounds (round_json.h): no choices.
std::string RoundsEvent(absl::string_view head, absl::Span<const std::string> rounds,
                        const EventUsage& usage);

// A token's bytes as text that JSON can hold: a part of a character is written as OpenAI does. Or
// the name, if it was requested.
std::string TokenText(const ShownToken& token);
// Parts of answers in other forms: `usage.speculation`, `timings`, a score (null if it is not
// finite), and the entries of a list of tokens as chats have it, without its brackets.
nlohmann::ordered_json SpeculationPart(const Usage& usage);
nlohmann::ordered_json TimingsPart(const Usage& usage);
nlohmann::ordered_json ScorePart(const std::optional<double>& score);
std::string TokenEntries(const std::vector<TokenLogprob>& tokens);

}  // namespace coppice::coordinator
