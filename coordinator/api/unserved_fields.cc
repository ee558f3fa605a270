#include "coordinator/api/unserved_fields.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using Effect = UnservedField::Effect;
using Of = UnservedField::Endpoints;

constexpr UnservedField kUnserved[] = {
    {"user", Effect::kNone},
    {"safety_identifier", Effect::kNone},
    {"metadata", Effect::kNone},
    {"parallel_tool_calls", Effect::kNone, "[]", Of::kCompletions},

    // Of OpenAI.
    {"store", Effect::kHint},
    {"service_tier", Effect::kHint, R"(["auto", "default"])"},
    {"prompt_cache_key", Effect::kHint},
    {"prompt_cache_retention", Effect::kHint},
    {"prediction", Effect::kHint, "[]", Of::kChat},
    {"verbosity", Effect::kHint, "[]", Of::kChat},
    {"audio", Effect::kHint, "[]", Of::kChat},  // how to speak, if `modalities` asks for speech
    // Of vLLM, SGLang and llama.cpp.
    {"request_id", Effect::kHint},
    {"kv_transfer_params", Effect::kHint},
    {"mm_processor_kwargs", Effect::kHint},
    {"guided_decoding_backend", Effect::kHint},
    {"spaces_between_special_tokens", Effect::kHint, "[true]"},
    {"cache_prompt", Effect::kHint, "[true]"},
    {"id_slot", Effect::kHint, "[-1]"},
    {"top_logprobs", Effect::kHint, "[0]", Of::kCompletions},

    // They change the tokens.
    {"tools", Effect::kAnswer, "[]", Of::kCompletions},
    {"functions", Effect::kAnswer, "[]", Of::kChat},
    {"function_call", Effect::kAnswer, R"(["none", "auto"])", Of::kChat},
    {"modalities", Effect::kAnswer, R"([["text"]])", Of::kChat},
    {"web_search_options", Effect::kAnswer, "[]", Of::kChat},
    {"chat_template", Effect::kAnswer, "[]", Of::kChat},
    {"echo", Effect::kAnswer, "[]", Of::kChat},
    {"suffix", Effect::kAnswer, "[]", Of::kCompletions},
    {"prompt_embeds", Effect::kAnswer, "[]", Of::kCompletions},
    {"truncate_prompt_tokens", Effect::kAnswer},
    {"prompt_logprobs", Effect::kAnswer},
    {"guided_whitespace_pattern", Effect::kAnswer},
    {"structural_tag", Effect::kAnswer},
    {"stop_regex", Effect::kAnswer},
    {"no_stop_trim", Effect::kAnswer},
    {"bad_words", Effect::kAnswer},
    {"allowed_token_ids", Effect::kAnswer},
    {"logits_processors", Effect::kAnswer},
    {"lora", Effect::kAnswer},
    {"lora_path", Effect::kAnswer},
    {"typical_p", Effect::kAnswer, "[1]"},
    {"tfs_z", Effect::kAnswer, "[1]"},
    {"top_a", Effect::kAnswer, "[0]"},
    {"top_n_sigma", Effect::kAnswer, "[-1, 0]"},
    {"epsilon_cutoff", Effect::kAnswer, "[0]"},
    {"eta_cutoff", Effect::kAnswer, "[0]"},
    {"xtc_probability", Effect::kAnswer, "[0]"},
    {"dry_multiplier", Effect::kAnswer, "[0]"},
    {"dynatemp_range", Effect::kAnswer, "[0]"},
    {"mirostat", Effect::kAnswer, "[0]"},
    {"mirostat_mode", Effect::kAnswer, "[0]"},
    // It keeps the cached prefixes of one user from another.
    {"cache_salt", Effect::kAnswer},
};

}  // namespace

absl::Span<const UnservedField> UnservedFields() { return kUnserved; }

std::string UnservedFieldTable() {
  const std::pair<Effect, const char*> rows[] = {
      {Effect::kNone, "accepted without effect"},
      {Effect::kHint, "hints: ignored and named"},
      {Effect::kAnswer, "refused unless neutral, because they change the answer"}};
  std::string table = "| fields of other servers | |\n|---|---|\n";
  for (const auto& [effect, what] : rows) {
    std::string names;
    for (const UnservedField& field : kUnserved) {
      if (field.effect != effect) continue;
      absl::StrAppend(&names, names.empty() ? "`" : ", `", field.name, "`");
    }
    absl::StrAppend(&table, "| ", what, " | ", names, " |\n");
  }
  return table;
}

bool IsOf(const UnservedField& field, bool chat) {
  return field.endpoints == Of::kBoth || (field.endpoints == Of::kChat) == chat;
}

void ReadUnservedFields(bool chat, JsonFields* fields) {
  for (const UnservedField& field : kUnserved) {
    if (!IsOf(field, chat) || fields->Find({field.name}) == nullptr) continue;
    const nlohmann::json neutral = nlohmann::json::parse(field.neutral);
    switch (field.effect) {
      case Effect::kNone:
        fields->Ignore({field.name});
        break;
      case Effect::kHint:
        fields->Hint(field.name, neutral);
        break;
      case Effect::kAnswer:
        fields->Neutral(field.name, neutral);
        break;
    }
  }
}

}  // namespace coppice::coordinator
