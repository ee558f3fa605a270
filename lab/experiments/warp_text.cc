#include "lab/experiments/warp_text.h"

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

bool IsNumberOfWarp(const decoding::ParameterRow& row) {
  return row.group == decoding::ParameterGroup::kWarp && row.scalar();
}

// The name of the parameter, or T for the temperature.
absl::string_view Letter(const decoding::ParameterRow& row) {
  return absl::string_view(row.name) == "temperature" ? "T" : row.name;
}

absl::Status SetPart(absl::string_view part, sampling::WarpParams* warp) {
  const std::pair<absl::string_view, absl::string_view> field =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  if (field.first == "mode") {
    COPPICE_ASSIGN_OR_RETURN(warp->mode, sampling::ParseWarpMode(field.second));
    return absl::OkStatus();
  }
  decoding::DecodingParams params;
  params.warp = *warp;
  std::string known;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (!IsNumberOfWarp(row)) continue;
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
    *warp = params.warp;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "': expected ", known, "each with a number, or mode="));
}

}  // namespace

std::string WarpText(const sampling::WarpParams& warp) {
  decoding::DecodingParams params;
  params.warp = warp;
  std::string text;
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    const bool first = text.empty();  // the temperature, which is always written
    if (!IsNumberOfWarp(row) || (!first && decoding::IsNeutral(row, params))) continue;
    std::visit(
        [&](auto value) { absl::StrAppend(&text, first ? "" : "/", Letter(row), "=", value); },
        row.member.get(params));
  }
  if (warp.mode != sampling::WarpMode::kRow)
    absl::StrAppend(&text, "/mode=", sampling::WarpModeName(warp.mode));
  return text;
}

absl::StatusOr<sampling::WarpParams> ParseWarpText(absl::string_view text) {
  sampling::WarpParams warp;
  for (absl::string_view part : absl::StrSplit(text, '/')) {
    COPPICE_RETURN_IF_ERROR(SetPart(part, &warp));
  }
  return warp;
}

}  // namespace coppice::lab
