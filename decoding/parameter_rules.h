// The only check of whether the parameters of a request fit together. The API refuses requests that
// violate a rule and names their fields; MakeBeamDecoder and MakeDrafter refuse what they cannot
// decode. Ranges of single parameters are checked before, by CheckParameters. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "decoding/params.h"

namespace coppice::decoding {

struct Violation {
  enum class Code {
    kInvalidValue,
    kNotServed,    // never served, whatever the other parameters are
    kCombination,  // not served together with the other parameters
    kNoEffect,     // nothing reads the value: a client is told, decoders ignore it
  };
  Code code;
  absl::string_view object;  // object of the request that has the field: "" or "speculative"
  std::string field;         // "draft_width"; "format_spec": the field that asks for the format
  std::string reason;        // what follows the field's name in a message
};

// The violated rules, those of the output's distribution first. The rules of drafts are those of
// the method that ResolveMethod finds. If it finds none, they are left out: its message is the
// error.
std::vector<Violation> Check(const DecodingParams& params);

// The first violation that a decoder cannot ignore, as InvalidArgument "field reason".
absl::Status CheckRules(const DecodingParams& params);
// The same for the rules of drafts only, for the method `row`. Short enough for every draft.
absl::Status CheckDraftRules(const DecodingParams& params, const MethodRow& row);

}  // namespace coppice::decoding
