#include "coordinator/decoding_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"

namespace coppice {
namespace {

constexpr char kCombination[] = "unsupported_combination";

// The names of the fields, as written in messages about combinations.
struct Refuser {
  JsonFields* fields;
  std::string decoding;  // "decoding beam_search"
  void operator()(const char* field, absl::string_view why) const {
    fields->Fail(kCombination, field,
                 absl::StrCat("cannot be combined with ", decoding, ": ", why));
  }
};

DecodingKind DeriveKind(const DecodingFields& given, JsonFields* fields) {
  if (given.decoding) {
    const absl::StatusOr<DecodingKind> kind = ParseDecodingKind(*given.decoding);
    if (kind.ok()) return *kind;
    fields->Fail("invalid_value", "decoding",
                 "must be one of multinomial, beam_sampling, beam_sampling_without_replacement, "
                 "beam_search");
    return DecodingKind::kMultinomial;
  }
  if (given.use_beam_search.value_or(false)) return DecodingKind::kBeamSearch;
  if (given.beam_width.value_or(1) > 1) {
    return given.do_sample.value_or(false) ? DecodingKind::kBeamSampling
                                           : DecodingKind::kBeamSearch;
  }
  return DecodingKind::kMultinomial;
}

void CheckHints(const DecodingFields& given, DecodingKind kind, const Refuser& refuse) {
  const bool search = kind == DecodingKind::kBeamSearch;
  if (given.use_beam_search && *given.use_beam_search != search) {
    refuse("use_beam_search", "it says otherwise");
  }
  if (!given.do_sample) return;
  const bool sampling_beams = !search && kind != DecodingKind::kMultinomial;
  if ((*given.do_sample && search) || (!*given.do_sample && sampling_beams))
    refuse("do_sample", "it says otherwise");
  const bool multinomial = kind == DecodingKind::kMultinomial;
  if (multinomial && given.temperature && *given.do_sample != (*given.temperature > 0)) {
    refuse("do_sample", "temperature says otherwise");
  }
}

void ApplyMultinomial(const DecodingFields& given, const Refuser& refuse,
                      GenerateRequest* request) {
  request->n = static_cast<int>(given.n.value_or(1));
  request->samples = static_cast<int>(given.best_of.value_or(request->n));
  if (request->samples < request->n) {
    refuse.fields->Fail("invalid_value", "best_of",
                        absl::StrCat("must be at least n, which is ", request->n));
  }
  const bool ranked = request->samples > request->n;
  if (given.beam_width.value_or(1) > 1) refuse("beam_width", "it has one path per sample");
  if (ranked && given.stream) {
    refuse.fields->Fail(kCombination, "best_of",
                        "above n cannot be combined with stream: samples are ranked at the end");
  }
  if (ranked && given.has_stop) {
    refuse.fields->Fail(
        kCombination, "stop",
        "cannot be combined with best_of above n: a sample cut inside a token has no score");
  }
  if (given.length_penalty.value_or(1) != 1 && !ranked)
    refuse("length_penalty", "it only ranks samples when best_of > n");
  if (!given.stop_when_full.value_or(true)) refuse("early_stopping", "there are no beams to stop");
  if (!given.refill.value_or(true)) refuse("refill", "there are no beams to refill");
  request->params.beam_width = 1;
  request->params.num_hypotheses = 1;
  if (!given.temperature && given.do_sample.has_value() && !*given.do_sample)
    request->params.warp.temperature = 0;
}

void ApplyBeams(const DecodingFields& given, int max_beam_width, const Refuser& refuse,
                GenerateRequest* request) {
  JsonFields* fields = refuse.fields;
  const DecodingKind kind = request->params.kind;
  if (given.beam_width && given.best_of && *given.beam_width != *given.best_of) {
    fields->Fail("conflicting_fields", "best_of",
                 "and beam_width mean the same with a beam decoding but differ");
  }
  const int64_t n = given.n.value_or(1);
  const int64_t width = given.beam_width ? *given.beam_width
                        : given.best_of  ? *given.best_of
                        : n > 1          ? n
                                         : 4;
  if (n > width) {
    fields->Fail(kCombination, "n",
                 absl::StrCat("is ", n, " but must not exceed beam_width, which is ", width));
  }
  if (width > max_beam_width) {
    fields->Fail(
        "invalid_value",
        given.beam_width ? "beam_width"
        : given.best_of  ? "best_of"
                         : "n",
        absl::StrCat("gives a beam width of ", width, ", at most ", max_beam_width, " is served"));
  }
  if (given.has_stop) refuse("stop", "stop strings are served for multinomial only");
  if (!given.refill.value_or(true) && kind != DecodingKind::kBeamSampling)
    refuse("refill", "only beam_sampling refills");
  if (kind == DecodingKind::kBeamSearch) {
    const double temperature = given.temperature.value_or(1);
    if (temperature != 0 && temperature != 1)
      refuse("temperature", "scores are raw log-probabilities");
    if (given.top_k.value_or(0) > 0) refuse("top_k", "scores are raw log-probabilities");
    if (given.top_p.value_or(1) != 1) refuse("top_p", "scores are raw log-probabilities");
    if (given.min_p.value_or(0) != 0) refuse("min_p", "scores are raw log-probabilities");
    if (given.warp_mode.value_or("row") != "row") refuse("warp_mode", "there is no warp");
    request->params.warp.temperature = 1;
  } else if (given.temperature && *given.temperature == 0) {
    refuse("temperature", "at 0 all slots would be one path");
  }
  request->n = static_cast<int>(n);
  request->samples = 1;
  request->params.beam_width = static_cast<int>(width);
  request->params.num_hypotheses = static_cast<int>(n);
}

// "once": equal paths are one beam of weight 1 (3.3, set semantics).
void ApplyDuplicates(const std::string& duplicates, const Refuser& refuse, DecodingParams* params) {
  if (duplicates != "count" && duplicates != "once") {
    refuse.fields->Fail("invalid_value", "beam_duplicates", "must be count or once");
    return;
  }
  params->set_semantics = duplicates == "once";
  if (!params->set_semantics) return;
  if (params->kind != DecodingKind::kBeamSampling) {
    refuse("beam_duplicates", "only beams of beam_sampling can be equal");
  } else if (!ResolveMethod("auto", *params).ok()) {
    refuse("beam_duplicates", "once is not served");
  }
}

}  // namespace

bool IsServed(DecodingKind kind, WarpMode mode) {
  DecodingParams params;
  params.kind = kind;
  params.warp.mode = mode;
  return ResolveMethod("auto", params).ok();
}

void ApplyDecoding(const DecodingFields& given, int max_beam_width, JsonFields* fields,
                   GenerateRequest* request) {
  DecodingParams& params = request->params;
  params.kind = DeriveKind(given, fields);
  if (!IsServed(params.kind)) {
    fields->Fail("unsupported_field", "decoding",
                 absl::StrCat(DecodingKindName(params.kind), " is not served"));
  }
  const Refuser refuse{fields, absl::StrCat("decoding ", DecodingKindName(params.kind))};
  CheckHints(given, params.kind, refuse);
  params.length_penalty = given.length_penalty.value_or(1);
  params.stop_when_full = given.stop_when_full.value_or(true);
  params.refill = given.refill.value_or(true);
  params.warp.temperature = given.temperature.value_or(1);
  params.warp.top_k = static_cast<int>(std::max<int64_t>(0, given.top_k.value_or(0)));
  params.warp.top_p = given.top_p.value_or(1);
  params.warp.min_p = given.min_p.value_or(0);
  if (given.warp_mode) {
    const absl::StatusOr<WarpMode> mode = ParseWarpMode(*given.warp_mode);
    if (!mode.ok()) {
      fields->Fail("invalid_value", "warp_mode", "must be one of row, row_raw, joint, rowcut");
    } else {
      params.warp.mode = *mode;
      if (!IsServed(params.kind, *mode)) {
        refuse("warp_mode", absl::StrCat(*given.warp_mode, " is not served"));
      }
    }
  }
  if (given.beam_duplicates) ApplyDuplicates(*given.beam_duplicates, refuse, &params);
  if (params.kind == DecodingKind::kMultinomial) {
    ApplyMultinomial(given, refuse, request);
  } else {
    ApplyBeams(given, max_beam_width, refuse, request);
  }
}

}  // namespace coppice
