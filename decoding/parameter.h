// The table of request parameters: name, member of DecodingParams, range, default, aliases,
// readers. The API parses and refuses by it, messages carry its scalars, and GET /v1/models and
// docs/parameters.md list it. To add a scalar, add a member, a row of parameter_table.cc and the
// code that reads it. Pure; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/params.h"

namespace coppice::decoding {

enum class ParameterType {
  kInteger,
  kNumber,
  kFlag,
  kSeed,
  kStructured,  // not a scalar: the API and the messages have their own code for it
};
absl::string_view ParameterTypeName(ParameterType type);  // "integer", "number", "boolean", ...

// A value of type kInteger, kNumber, kFlag or kSeed, in this order.
using ParameterValue = std::variant<int64_t, double, bool, uint64_t>;

struct ParameterMember {
  ParameterType type = ParameterType::kStructured;
  ParameterValue (*get)(const DecodingParams& params) = nullptr;
  void (*put)(ParameterValue value, DecodingParams* params) = nullptr;  // a checked value
};

struct ParameterRange {
  double low = 0;
  double high = std::numeric_limits<double>::max();
  bool open_low = false;  // low itself is refused
  bool or_zero = false;   // 0 is served too, although it is below low

  bool Has(double value) const;  // false for NaN
};

// What further limits the upper end of a request's range: a flag of the coordinator, the model, or
// another field.
enum class ParameterLimit {
  kNone,
  kMaxBeamWidth,
  kMaxDraftWidth,
  kMaxDraftDepth,
  kVocabulary,
  kBeamWidth,  // beam width of the request
};

enum class ParameterGroup { kDecoding, kLength, kSampling, kDraft };

enum class ReadBy {
  kEvery,
  kSampling,  // every decoding but beam search, which takes only neutral values
  kRows,      // every decoding that processes each row by itself: sampling scopes row and row_raw
  kBeams,     // the beam decodings
  kDrafting,  // every method that drafts
  kOption,    // the methods whose row lists the field (MethodRow::options)
};

struct ParameterRow {
  const char* name;                 // name of the member, also in messages: "stop_when_full"
  std::vector<const char*> fields;  // in a request: the field, then aliases; empty = the name
  const char* object = "";          // object of the request that has the field: "", "speculative"
  ParameterMember member;
  ParameterRange range;                  // what the algorithms accept
  std::optional<ParameterRange> served;  // range of a request; absent = `range`
  ParameterLimit limit = ParameterLimit::kNone;
  const char* zero_word = nullptr;    // the word for 0 in a request: "auto"; numbers start at 1
  const char* own_syntax = nullptr;   // if the API has its own code to read it: values, in words
  const char* own_default = nullptr;  // if the default is not the member's: the default, in words
  ParameterGroup group = ParameterGroup::kDecoding;
  ReadBy read_by = ReadBy::kEvery;
  const char* text;  // a paragraph for the reference page

  const char* field() const { return fields[0]; }
  bool scalar() const { return member.type != ParameterType::kStructured; }
  ParameterRange served_range() const { return served.value_or(range); }
};

absl::Span<const ParameterRow> Parameters();  // parameter_table.cc
// By name; nullptr: unknown.
const ParameterRow* FindParameter(absl::string_view name);

// For scalar rows. InvalidArgument names the row: the value has the wrong type or is out of range.
absl::Status SetParameter(const ParameterRow& row, ParameterValue value, DecodingParams* params);
// Checks that every scalar is in its range. Factories check what depends on other parameters.
absl::Status CheckParameters(const DecodingParams& params);

bool IsDefault(const ParameterRow& row, const DecodingParams& params);
// Why a format could not end: no id ends a text. "": one does.
absl::string_view NoEndOfFormat(const DecodingParams& params);
// Whether one of the sampling parameters has no effect: its value is the default, or 0. Temperature
// 0 counts as neutral, because beam search, which has no sampling parameters, ranks the same with
// it.
bool IsNeutral(const ParameterRow& row, const DecodingParams& params);

}  // namespace coppice::decoding
