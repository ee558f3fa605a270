// The fields of other servers that are known but not served: one row for each, from which reading,
// /openapi.json and the table of docs/api.md 2 follow. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

struct UnservedField {
  enum class Effect {
    kNone,    // asks for nothing that an answer could show: accepted
    kHint,    // may be ignored: the answer is right without it. Named in X-Coppice-Ignored
    kAnswer,  // an answer without it would be wrong: refused
  };
  enum class Endpoints { kBoth, kCompletions, kChat };
  const char* name;
  Effect effect;
  // A JSON list of the values that mean the same as the field's absence, beside false and empty
  // values.
  const char* neutral = "[]";
  Endpoints endpoints = Endpoints::kBoth;
};

absl::Span<const UnservedField> UnservedFields();

// The table of docs/api.md 2, in Markdown.
std::string UnservedFieldTable();

// Whether the endpoint of chats, or of completions, knows the field.
bool IsOf(const UnservedField& field, bool chat);

// Reads those of one endpoint.
void ReadUnservedFields(bool chat, JsonFields* fields);

}  // namespace coppice::coordinator
