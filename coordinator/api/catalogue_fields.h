// `catalogue` of a request: the served catalogue whose items its answers are, and which of them
// (docs/api.md 2.11).
#pragma once

#include "coordinator/api/api.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {

// Reads the field into request->catalogue and the format of its answers. Called after max_tokens
// was read, before other formats are.
void ReadCatalogue(const ApiContext& context, JsonFields* fields, GenerateRequest* request);

}  // namespace coppice::coordinator
