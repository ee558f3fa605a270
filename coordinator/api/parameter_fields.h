// Reads the scalars of the parameter table (decoding/parameter.h) from a request's JSON, and lists
// the table for clients. Fields with their own syntax are read by api, decoding_rules and
// speculative_fields. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/api/json_fields.h"
#include "decoding/parameter.h"

namespace coppice::coordinator {

struct ApiLimits;

// The parameters that a request gives, whatever their values.
class GivenParameters {
 public:
  bool Has(absl::string_view name) const { return names_.count(name) > 0; }
  void Add(const decoding::ParameterRow& row) { names_.insert(row.name); }

 private:
  std::set<absl::string_view> names_;  // names of parameter rows
};

// Reads the scalars whose fields belong to `object` ("" or "speculative") of a request into *params
// and *given. Absent ones stay unchanged, and so do the rows named in `except`. *fields reads that
// object and receives the errors.
void ReadParameters(absl::string_view object, const ApiLimits& limits, int vocab_size,
                    JsonFields* fields, decoding::DecodingParams* params, GivenParameters* given,
                    absl::Span<const absl::string_view> except = {});

// Every row for GET /v1/models: name, aliases, object, type, range, default, who reads it.
nlohmann::ordered_json ParametersJson(const ApiLimits& limits);

}  // namespace coppice::coordinator
