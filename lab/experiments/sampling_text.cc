#include "lab/experiments/sampling_text.h"

#include <cmath>
#include <limits>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "decoding/parameter.h"

namespace coppice::lab {
namespace {

bool IsNumberOfSampling(const decoding::ParameterRow& row) {
  return row.group == decoding::ParameterGroup::kSampling && row.scalar();
}

// The name of the parameter, or T for the temperature.
absl::string_view Letter(const decoding::ParameterRow& row) {
  return absl::string_view(row.name) == "temperature" ? "T" : row.name;
}

absl::Status SetPart(absl::string_view part, sampling::SamplingParams* sampling) {
  const std::pair<absl::string_view, absl::string_view> field =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  if (field.first == "mode") {
    COPPICE_ASSIGN_OR_RETURN(sampling->mode, sampling::ParseSamplingScope(field.second));
    return absl::OkStatus();
  }
  decoding::DecodingParams params;
  params.sampling = *sampling;
  std::string known;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (!IsNumberOfSampling(row)) continue;
    absl::StrAppend(&known, Letter(row), "=, ");
    double number = 0;
    if (field.first != Letter(row) || !absl::SimpleAtod(field.second, &number)) continue;
    const bool integer = row.member.type == decoding::ParameterType::kInteger;
    if (integer && number != std::floor(number)) continue;
    if (integer && !(std::fabs(number) <= std::numeric_limits<int>::max())) continue;
    const decoding::ParameterValue value =
        integer ? decoding::ParameterValue(static_cast<int64_t>(number))
                : decoding::ParameterValue(number);
    COPPICE_RETURN_IF_ERROR(decoding::SetParameter(row, value, &params));
    *sampling = params.sampling;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "': expected ", known, "each with a number, or mode="));
}

}  // namespace

std::string SamplingText(const sampling::SamplingParams& sampling) {
  decoding::DecodingParams params;
  params.sampling = sampling;
  std::string text;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    const bool first = text.empty();  // the temperature, which is always written
    if (!IsNumberOfSampling(row) || (!first && decoding::IsNeutral(row, params))) continue;
    std::visit(
        [&](auto value) { absl::StrAppend(&text, first ? "" : "/", Letter(row), "=", value); },
        row.member.get(params));
  }
  if (sampling.mode != sampling::SamplingScope::kRow)
    absl::StrAppend(&text, "/mode=", sampling::SamplingScopeName(sampling.mode));
  return text;
}

absl::StatusOr<sampling::SamplingParams> ParseSamplingText(absl::string_view text) {
  sampling::SamplingParams sampling;
  for (absl::string_view part : absl::StrSplit(text, '/')) {
    COPPICE_RETURN_IF_ERROR(SetPart(part, &sampling));
  }
  return sampling;
}

}  // namespace coppice::lab
