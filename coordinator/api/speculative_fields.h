// The `speculative` field: bool, "auto" or an object; method, draft shape, dynamic width
// (docs/api.md 2, 2.2). Pure.
#pragma once

#include "coordinator/api/api.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

// Reads `speculative` of *fields into request->params, whose decoding must already be set. Reports
// errors to *fields.
void ApplySpeculative(const ApiLimits& limits, JsonFields* fields, GenerateRequest* request);

}  // namespace coppice::coordinator
