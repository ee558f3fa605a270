// Derives the decoding from the fields of a request and refuses bad combinations (docs/api.md 2.1).
// decoding/parameter_rules checks what a decoder demands of its parameters; the rules of the other
// fields are here. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "coordinator/api/generate_request.h"
#include "coordinator/api/json_fields.h"
#include "coordinator/api/parameter_fields.h"

namespace coppice::coordinator {

struct ApiContext;

// Fields that are not scalars of the parameter table. Absent ones are nullopt.
struct DecodingFields {
  std::optional<std::string> decoding;
  std::optional<bool> use_beam_search, do_sample;
  std::optional<int64_t> n, best_of;
  std::optional<bool> stop_when_full;  // early_stopping: false for false and "never"
  std::optional<std::string> sampling_scope;
  std::optional<std::string> beam_duplicates;  // "count" or "once"
  bool stream = false;
  GivenParameters parameters;  // already read into the request's params
};

// Fills kind, widths, counts, sampling scope and ranking of *request, whose scalars are already
// read, and refuses bad combinations. Errors go to *fields.
// A sampled decoding takes the sampling defaults of the checkpoint where the request gives none.
void ApplyDecoding(const DecodingFields& given, const ApiContext& context, JsonFields* fields,
                   GenerateRequest* request);

// Reports to *fields, which reads `object` ("" or "speculative"), what its parameters violate. A
// value that nothing reads is ignored and named, or refused as IgnoredFields says.
void RefuseViolations(const GenerateRequest& request, absl::string_view object, JsonFields* fields);

}  // namespace coppice::coordinator
