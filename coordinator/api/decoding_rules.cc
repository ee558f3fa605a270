#include "coordinator/api/decoding_rules.h"

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"
#include "decoding/parameter_rules.h"

namespace coppice::coordinator {
namespace {

// The names of the fields, as written in messages about combinations.
struct Refuser {
  JsonFields* fields;
  std::string decoding;  // "decoding beam_search"
  void operator()(const char* field, absl::string_view why) const {
    fields->Fail(kUnsupportedCombination, field,
                 absl::StrCat("cannot be combined with ", decoding, ": ", why));
  }
};

sampling::DecodingKind DeriveKind(const DecodingFields& given, int beam_width, JsonFields* fields) {
  if (given.decoding) {
    const absl::StatusOr<sampling::DecodingKind> kind =
        sampling::ParseDecodingKind(*given.decoding);
    if (kind.ok()) return *kind;
    fields->Fail("invalid_value", "decoding",
                 "must be one of multinomial, beam_sampling, beam_sampling_without_replacement, "
                 "beam_search");
    return sampling::DecodingKind::kMultinomial;
  }
  if (given.use_beam_search.value_or(false)) return sampling::DecodingKind::kBeamSearch;
  if (beam_width > 1) {
    return given.do_sample.value_or(false) ? sampling::DecodingKind::kBeamSampling
                                           : sampling::DecodingKind::kBeamSearch;
  }
  return sampling::DecodingKind::kMultinomial;
}

void CheckHints(const DecodingFields& given, const decoding::DecodingParams& params,
                const Refuser& refuse) {
  const sampling::DecodingKind kind = params.kind;
  const bool search = kind == sampling::DecodingKind::kBeamSearch;
  if (given.use_beam_search && *given.use_beam_search != search) {
    refuse("use_beam_search", "it says otherwise");
  }
  if (!given.do_sample) return;
  const bool sampling_beams = !search && kind != sampling::DecodingKind::kMultinomial;
  if ((*given.do_sample && search) || (!*given.do_sample && sampling_beams))
    refuse("do_sample", "it says otherwise");
  const bool multinomial = kind == sampling::DecodingKind::kMultinomial;
  const bool sampled = params.sampling.temperature > 0;
  if (multinomial && given.parameters.Has("temperature") && *given.do_sample != sampled) {
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
  decoding::DecodingParams& params = request->params;
  if (ranked && given.stream) {
    refuse.fields->Fail(kUnsupportedCombination, "best_of",
                        "above n cannot be combined with stream: samples are ranked at the end");
  }
  if (params.length_penalty != 1 && !ranked) {
    refuse.fields->IgnoreField("length_penalty", kUnsupportedCombination,
                               absl::StrCat("cannot be combined with ", refuse.decoding,
                                            ": it only ranks samples when best_of > n"));
  }
  params.num_hypotheses = 1;
  RefuseViolations(*request, /*object=*/"", refuse.fields);
  params.beam_width = 1;
  if (!given.parameters.Has("temperature") && given.do_sample.has_value() && !*given.do_sample)
    params.sampling.temperature = 0;
}

void ApplyBeams(const DecodingFields& given, int max_beam_width, const Refuser& refuse,
                GenerateRequest* request) {
  JsonFields* fields = refuse.fields;
  decoding::DecodingParams& params = request->params;
  const bool names_width = given.parameters.Has("beam_width");
  if (names_width && given.best_of && params.beam_width != *given.best_of) {
    fields->Fail("conflicting_fields", "best_of",
                 "and beam_width mean the same with a beam decoding but differ");
  }
  const int64_t n = given.n.value_or(1);
  const int64_t width = names_width     ? params.beam_width
                        : given.best_of ? *given.best_of
                        : n > 1         ? n
                                        : 4;
  if (width > max_beam_width) {
    fields->Fail(
        "invalid_value",
        names_width     ? "beam_width"
        : given.best_of ? "best_of"
                        : "n",
        absl::StrCat("gives a beam width of ", width, ", at most ", max_beam_width, " is served"));
  }
  request->n = static_cast<int>(n);
  request->samples = 1;
  params.beam_width = static_cast<int>(width);
  params.num_hypotheses = static_cast<int>(n);
  RefuseViolations(*request, /*object=*/"", fields);
  if (params.kind == sampling::DecodingKind::kBeamSearch) params.sampling.temperature = 1;
}

// "once": equal paths are one beam of weight 1 (3.3, set semantics).
void ReadDuplicates(const std::string& duplicates, JsonFields* fields,
                    decoding::DecodingParams* params) {
  if (duplicates != "count" && duplicates != "once") {
    fields->Fail("invalid_value", "beam_duplicates", "must be count or once");
  }
  params->set_semantics = duplicates == "once";
}

void ReadScope(const std::string& scope, JsonFields* fields, decoding::DecodingParams* params) {
  const absl::StatusOr<sampling::SamplingScope> mode = sampling::ParseSamplingScope(scope);
  if (!mode.ok()) {
    fields->Fail("invalid_value", "sampling_scope", "must be one of row, row_raw, joint, rowcut");
  } else {
    params->sampling.mode = *mode;
  }
}

const char* CodeOf(const decoding::Violation& violation) {
  switch (violation.code) {
    case decoding::Violation::Code::kInvalidValue:
      return "invalid_value";
    case decoding::Violation::Code::kNotServed:
      return "unsupported_field";
    case decoding::Violation::Code::kCombination:
    case decoding::Violation::Code::kNoEffect:
      break;
  }
  return kUnsupportedCombination;
}

// The sampling defaults of the checkpoint, if the decoding samples from rows.
void ApplyDefaults(const DecodingFields& given, const ApiContext& context,
                   decoding::DecodingParams* params) {
  if (context.sampling_defaults == nullptr) return;
  if (params->kind == sampling::DecodingKind::kBeamSearch) return;
  if (sampling::IsJoint(params->sampling.mode)) return;
  context.sampling_defaults->Apply(given.parameters, params);
}

}  // namespace

void RefuseViolations(const GenerateRequest& request, absl::string_view object,
                      JsonFields* fields) {
  for (const decoding::Violation& violation : decoding::Check(request.params)) {
    if (violation.object != object) continue;
    if (violation.code == decoding::Violation::Code::kNoEffect) {
      fields->IgnoreField(violation.field, CodeOf(violation), violation.reason);
      continue;
    }
    const bool format = violation.field == "format_spec";
    fields->Fail(CodeOf(violation), format ? request.format_field : violation.field,
                 violation.reason);
  }
}

void ApplyDecoding(const DecodingFields& given, const ApiContext& context, JsonFields* fields,
                   GenerateRequest* request) {
  decoding::DecodingParams& params = request->params;
  params.kind = DeriveKind(given, params.beam_width, fields);
  const Refuser refuse{fields, absl::StrCat("decoding ", sampling::DecodingKindName(params.kind))};
  CheckHints(given, params, refuse);
  params.stop_when_full = given.stop_when_full.value_or(true);
  if (given.sampling_scope) ReadScope(*given.sampling_scope, fields, &params);
  if (given.beam_duplicates) ReadDuplicates(*given.beam_duplicates, fields, &params);
  ApplyDefaults(given, context, &params);
  if (!request->format_field.empty() && request->ignore_eos && !request->catalogue.ends_items()) {
    fields->Fail(kUnsupportedCombination, request->format_field,
                 "cannot be combined with ignore_eos: a text ends where it has the format");
  }
  if (params.kind == sampling::DecodingKind::kMultinomial) {
    ApplyMultinomial(given, refuse, request);
  } else {
    ApplyBeams(given, context.limits.max_beam_width, refuse, request);
  }
}

}  // namespace coppice::coordinator
