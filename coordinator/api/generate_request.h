// A validated request. Made from the JSON by api, run by request. Value type.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "catalogue/catalogue.h"
#include "coordinator/api/answer_form.h"
#include "coordinator/api/ignored_fields.h"
#include "coordinator/message/message_syntax.h"
#include "decoding/params.h"

namespace coppice::coordinator {

// The catalogue that a request names. The content is that of its arrival, also after a reload.
struct AskedCatalogue {
  std::string name;
  std::shared_ptr<const catalogue::Catalogue> content;  // nullptr: the request names none
  std::vector<TokenId> prefix;  // tokens of an item that stand before the answer
  int64_t items = 0;            // that the answer can be

  // Hypotheses end with the last token of an item, without a stop id.
  bool ends_items() const {
    return content != nullptr && content->end() == catalogue::ItemEnd::kNone;
  }
};

struct GenerateRequest {
  std::string model;  // the served name that the request gives, else the first
  AnswerForm form = AnswerForm::kCompletion;
  std::vector<std::vector<TokenId>> prompts;  // each at least one token
  // The parameters of sample 0 of every prompt. params.stop_ids holds only the request's own ids
  // until FitToModel adds the model's.
  decoding::DecodingParams params;
  int n = 1;  // choices per prompt
  // Sequences of a prompt: best_of for multinomial, 1 for beam decodings. Sample i has seed + i.
  int samples = 1;
  // Path of the field that asks for params.format_spec; "": there is none.
  std::string format_field;
  // Where params.format_spec is that of a whole answer, with calls and reasoning (answer_format.h):
  // what the request asks for, and the field.
  FormatSpec asked_format;
  std::string asked_field;
  AskedCatalogue catalogue;
  bool max_tokens_given = false;
  bool ignore_eos = false;
  std::vector<TokenId> own_stop_ids;
  std::vector<TokenId> turn_end_ids;  // stop ids of a chat, in addition to the model's eos_ids
  int vocab_size = 0;                 // vocabulary of the model; FitToModel fills it
  std::vector<TokenId> eos_ids;       // stop ids of the model; FitToModel fills it
  bool include_stop = false;          // the text ends after a stop string, not before it
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // each event has the counts so far
  bool return_token_ids = false;
  bool trace = false;           // shows the draft forest and the outcome of every round
  bool names_are_ids = false;   // `logprobs` names tokens by their ids
  std::optional<int> logprobs;  // scores of all tokens, each with this many alternatives
  bool echo = false;            // puts the prompt before each choice
  bool score_only = false;      // max_tokens 0: choices have no tokens; params.max_tokens is 1
  bool skip_special_tokens = true;
  double timeout_s = 600;
  int priority = 0;  // lower values are served first
  // kResponse: the members of the request that its answer repeats, as JSON text without braces.
  std::string repeated_fields;
  std::string question;  // kPage: the text that the page repeats
  // Of a chat: what its answers consist of beside their content. nullptr: of nothing else.
  std::shared_ptr<const MessageSyntax> syntax;
  bool shows_reasoning = true;
  IgnoredFields ignored;

  // The prompt is made of messages.
  bool chat() const { return form != AnswerForm::kCompletion; }
  // The scores of the prompt's tokens are shown.
  bool score_prompt() const { return echo && logprobs.has_value(); }
  int max_tokens() const { return score_only ? 0 : params.max_tokens; }
  bool beams() const { return params.kind != sampling::DecodingKind::kMultinomial; }
  // Choices are ordered by score instead of sample number.
  bool ranked() const { return beams() || samples > n; }
  int sequences() const { return static_cast<int>(prompts.size()) * samples; }
};

}  // namespace coppice::coordinator
