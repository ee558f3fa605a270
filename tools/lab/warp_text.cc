#include "tools/lab/warp_text.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace coppice {
namespace {

absl::Status SetPart(absl::string_view part, WarpParams* warp) {
  const std::pair<absl::string_view, absl::string_view> field =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  bool ok = false;
  if (field.first == "T") ok = absl::SimpleAtod(field.second, &warp->temperature);
  if (field.first == "top_k") ok = absl::SimpleAtoi(field.second, &warp->top_k);
  if (field.first == "top_p") ok = absl::SimpleAtod(field.second, &warp->top_p);
  if (field.first == "min_p") ok = absl::SimpleAtod(field.second, &warp->min_p);
  if (field.first == "mode") {
    COPPICE_ASSIGN_OR_RETURN(warp->mode, ParseWarpMode(field.second));
    ok = true;
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "': expected T=, top_k=, top_p= or min_p= and a number, or mode="));
}

}  // namespace

std::string WarpText(const WarpParams& warp) {
  std::string text = absl::StrCat("T=", warp.temperature);
  if (warp.top_k > 0) absl::StrAppend(&text, "/top_k=", warp.top_k);
  if (warp.top_p > 0 && warp.top_p < 1) absl::StrAppend(&text, "/top_p=", warp.top_p);
  if (warp.min_p > 0) absl::StrAppend(&text, "/min_p=", warp.min_p);
  if (warp.mode != WarpMode::kRow) absl::StrAppend(&text, "/mode=", WarpModeName(warp.mode));
  return text;
}

absl::StatusOr<WarpParams> ParseWarpText(absl::string_view text) {
  WarpParams warp;
  for (absl::string_view part : absl::StrSplit(text, '/')) {
    COPPICE_RETURN_IF_ERROR(SetPart(part, &warp));
  }
  return warp;
}

}  // namespace coppice
