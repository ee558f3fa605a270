// POST /v1/completions and /v1/chat/completions: JSON -> GenerateRequest, or the error that names
// the field (docs/api.md 2). Called through request/pending_body, by any thread. Their prompts are
// read by prompt_fields and chat_fields. The rules of 2.1 are in decoding_rules, those of
// `speculative` in speculative_fields, those of formats in format_fields.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "catalogue/catalogue_store.h"
#include "coordinator/api/generate_request.h"
#include "coordinator/api/known_formats.h"
#include "coordinator/api/sampling_defaults.h"
#include "coordinator/http/api_error.h"
#include "coordinator/message/message_syntax.h"
#include "plan/kv_storage.h"
#include "tokenizer/chat_template/chat_prompt.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// Limits of a request, and the defaults of fields that it leaves out. Each is a flag of
// coppice-coordinator, except max_json_depth.
struct ApiLimits {
  // Largest `n` and `best_of`. Without beams, each choice is a sequence of its own.
  int max_n = 512;

  // Largest beam_width. Each beam is a row of every step and needs its own KV, so this bounds the
  // cost of one request.
  int max_beam_width = 512;

  // Largest draft_width (nodes of a drafted layer) and draft_depth (layers). Their product bounds
  // the rows that a request can add to a step.
  int max_draft_width = 512;
  int max_draft_depth = 16;

  // max_tokens of a completion and of a chat that give none. For a chat 0 means the rest of the
  // context.
  int default_max_tokens = 256;
  int default_chat_max_tokens = 4096;

  // Deadline of a request that gives none, and the longest that it may ask for. Seconds.
  double default_timeout_s = 600;
  double max_timeout_s = 3600;

  // The least `priority` that counts; a request that gives a smaller one has this.
  int least_priority = std::numeric_limits<int>::min();

  // Whether unknown fields and hints that are not served are refused, instead of being ignored and
  // named in the header X-Coppice-Ignored.
  bool refuse_unknown_fields = false;

  // Bytes of a format, times the sequences of its request.
  size_t max_format_copies = size_t{16} << 20;

  // Nesting of a request's JSON. Protects the parser.
  int max_json_depth = 32;
};

struct ApiContext {
  ApiLimits limits;
  std::vector<std::string> model_names;  // that requests may give as `model`; the first by default
  // Must outlive the context.
  const tokenizer::Tokenizer* tokenizer = nullptr;
  const tokenizer::ChatPrompt* chat = nullptr;  // nullptr: the model has no chat template
  // How the model writes calls of tools and its reasoning; nullptr, nullopt: it does not.
  const ToolFormat* tool_format = nullptr;
  std::optional<ReasoningMarks> reasoning;
  int max_model_len = 0;  // tokens of a prompt and its completion, at most; 0: not known yet
  KnownFormats* known_formats = nullptr;                  // nullptr: every format is compiled
  const catalogue::CatalogueStore* catalogues = nullptr;  // nullptr: none is served
  const SamplingDefaults* sampling_defaults = nullptr;    // nullptr: none
  int model_vocab = 0;  // ids of the model, some of which may have no token; 0: not known yet
  // The ids that requests may name are [0, vocab_size).
  int vocab_size() const { return std::max(model_vocab, tokenizer->vocab_size()); }
  std::bitset<256> own_bytes = std::bitset<256>().set();  // tokenizer::OwnBytes
};

std::variant<GenerateRequest, ApiError> ParseCompletion(const std::string& body,
                                                        const std::string& timeout_header,
                                                        const ApiContext& context);
// now_unix: the time that a chat template may show.
std::variant<GenerateRequest, ApiError> ParseChatCompletion(const std::string& body,
                                                            const std::string& timeout_header,
                                                            const ApiContext& context,
                                                            int64_t now_unix);

// The limits of the model, from a replica's registration and the flags.
struct ModelLimits {
  int max_model_len = 0;  // tokens, prompt and completion
  std::vector<TokenId> eos_ids;
  int vocab_size = 0;
  int64_t kv_blocks_total = 0;  // of one replica
  KvStorage kv_storage = {};
};

// Fills the fields that depend on the model (vocabulary, stop ids, default max_tokens) and checks
// context length and KV need. Called when the model is known, before sequences are made.
std::optional<ApiError> FitToModel(const ModelLimits& model, const ApiLimits& limits,
                                   GenerateRequest* request);

}  // namespace coppice::coordinator
