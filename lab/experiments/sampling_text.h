// Sampling parameters in the notation of the laboratory's flags and tables: "T=0.7",
// "T=1/top_k=10/top_p=0.8", "T=1/mode=joint". Pure functions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "decoding/params.h"

namespace coppice::lab {

std::string SamplingText(const sampling::SamplingParams& sampling);
// InvalidArgument names the part that is wrong.
absl::StatusOr<sampling::SamplingParams> ParseSamplingText(absl::string_view text);

}  // namespace coppice::lab
