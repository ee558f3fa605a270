#include "decoding/method.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace coppice {

// "certified" on multinomial means greedy: at temperature 0 every row is one-hot, and the verifier
// of 5.7 at width 1 is then the argmax chain (MakeBeamDecoder).
absl::Span<const MethodRow> Methods() {
  static const auto* rows = new std::vector<MethodRow>{
      {"pf_gumbel",
       {DecodingKind::kMultinomial, DecodingKind::kBeamSampling},
       true,
       true,
       false,
       false,
       "A 5.7"},
      {"hg_wor",
       {DecodingKind::kBeamSamplingWithoutReplacement},
       true,
       true,
       false,
       false,
       "A 5.8"},
      {"certified",
       {DecodingKind::kBeamSearch, DecodingKind::kMultinomial},
       true,
       true,
       false,
       false,
       "A 5.9"},
      {"dsbd", {DecodingKind::kBeamSampling}, true, false, true, true, "A 5.1, 5.2 rule E, 5.3"},
  };
  return *rows;
}

const MethodRow* FindMethod(absl::string_view name) {
  for (const MethodRow& row : Methods()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

absl::StatusOr<std::string> ResolveMethod(absl::string_view method, const DecodingParams& params) {
  if (method == "none") return std::string(method);
  const auto serves = [&](const MethodRow& row) {
    return std::find(row.serves.begin(), row.serves.end(), params.kind) != row.serves.end();
  };
  if (method == "auto") {
    for (const MethodRow& row : Methods()) {
      if (serves(row)) return std::string(row.name);
    }
  }
  const MethodRow* row = FindMethod(method);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculative.method: unknown method '", method, "'"));
  }
  if (!serves(*row)) {
    return absl::InvalidArgumentError(absl::StrCat("speculative.method: '", method,
                                                   "' does not serve decoding '",
                                                   DecodingKindName(params.kind), "'"));
  }
  if (row->name == "certified" && params.kind == DecodingKind::kMultinomial &&
      params.warp.temperature != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculative.method: 'certified' serves multinomial only at temperature 0 "
                     "(greedy), got temperature ",
                     params.warp.temperature));
  }
  return std::string(method);
}

}  // namespace coppice
