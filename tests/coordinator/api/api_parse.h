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

inline ApiContext Context() {
  ApiContext context;
  context.limits.max_beam_width = 8;
  context.model_names = {"demo"};
  context.tokenizer = &Tokens();
  return context;
}

using Parsed = std::variant<GenerateRequest, ApiError>;

inline Parsed ParseText(const std::string& body, const std::string& timeout = "") {
  const ApiContext context = Context();
  return ParseCompletion(body, timeout, context);
}

// Parses a request of these fields and a prompt.
inline Parsed Parse(const std::string& fields) {
  return ParseText(absl::StrCat(R"({"prompt": "hi")", fields.empty() ? "" : ", ", fields, "}"));
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

inline void ExpectRefused(const std::vector<Refusal>& cases) {
  for (const Refusal& refusal : cases) {
    const ApiError error = Bad(Parse(refusal.fields));
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
    EXPECT_THAT(error.message, ::testing::HasSubstr(refusal.param)) << refusal.fields;
  }
}

}  // namespace coppice::coordinator::api_text
