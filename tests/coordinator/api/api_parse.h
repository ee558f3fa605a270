// Parses requests of the completions API from text, with a server's context. Shared by the tests of
// coordinator/api/api.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace coppice::coordinator::api_text {

inline const ByteTokenizer& Tokens() {
  static const ByteTokenizer tokenizer;
  return tokenizer;
}

// strict: as with --unknown_fields=refuse.
inline ApiContext Context(bool strict = false) {
  ApiContext context;
  context.limits.refuse_unknown_fields = strict;
  context.limits.max_beam_width = 8;
  context.model_name = "demo";
  context.tokenizer = &Tokens();
  return context;
}

using Parsed = std::variant<GenerateRequest, ApiError>;

inline Parsed ParseText(const std::string& body, const std::string& timeout = "",
                        bool strict = false) {
  const ApiContext context = Context(strict);
  return ParseCompletion(body, timeout, context);
}

// Parses a request of these fields and a prompt.
inline Parsed Parse(const std::string& fields, bool strict = false) {
  return ParseText(absl::StrCat(R"({"prompt": "hi")", fields.empty() ? "" : ", ", fields, "}"), "",
                   strict);
}

inline GenerateRequest Good(const std::string& fields) {
  const Parsed parsed = Parse(fields);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<GenerateRequest>(parsed);
}

inline ApiError Bad(const Parsed& parsed) {
  const ApiError* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? ApiError{200, "accepted", "", ""} : *error;
}

struct Refusal {
  const char* fields;
  const char* code;
  const char* param;
};

inline void ExpectRefused(const std::vector<Refusal>& cases, bool strict = false) {
  for (const Refusal& refusal : cases) {
    const ApiError error = Bad(Parse(refusal.fields, strict));
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
    EXPECT_THAT(error.message, ::testing::HasSubstr(refusal.param)) << refusal.fields;
  }
}

// Refused by a strict server. Another one ignores the field and names it.
inline void ExpectIgnored(const std::vector<Refusal>& cases) {
  ExpectRefused(cases, /*strict=*/true);
  for (const Refusal& refusal : cases)
    EXPECT_THAT(Good(refusal.fields).ignored.names(), ::testing::ElementsAre(refusal.param));
}

}  // namespace coppice::coordinator::api_text
