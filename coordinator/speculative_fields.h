// The `speculative` field: bool, "auto" or an object; method, draft shape, dynamic width
// (docs/api.md 2, 2.2). Pure.
#pragma once

#include "coordinator/api.h"
#include "coordinator/json_fields.h"

namespace coppice {

// Reads `speculative` of *fields into request->params, whose decoding must be set already. Errors
// go to *fields.
void ApplySpeculative(const ApiLimits& limits, JsonFields* fields, GenerateRequest* request);

}  // namespace coppice
