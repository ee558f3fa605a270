// The one table of speculation methods: name -> drafter, verifier, law, what it admits. The API
// validates against it and GET /v1/models lists it; MakeBeamDecoder and MakeDrafter dispatch on it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "decoding/params.h"

namespace coppice {

struct MethodRow {
  absl::string_view name;  // "pf_gumbel"
  std::vector<DecodingKind> serves;
  bool lossless;        // at fixed width
  bool reproducible;    // same text as plain at equal seed
  bool ships_proposal;  // the draft node must ship q
  bool uses_width_threshold;
  absl::string_view source;  // "A 5.7"
};

absl::Span<const MethodRow> Methods();                // "none" is not listed
const MethodRow* FindMethod(absl::string_view name);  // nullptr when unknown

// "auto" -> the method that serves the kind; "none" stays. InvalidArgument: unknown, or does not
// serve the kind.
absl::StatusOr<std::string> ResolveMethod(absl::string_view method, const DecodingParams& params);

}  // namespace coppice
