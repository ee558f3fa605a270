// The API as an OpenAPI 3.1 document (GET /openapi.json) and as the table of docs/api.md, from the
// table of endpoints and the table of parameters. Pure.
#pragma once

#include <string>

#include "coordinator/api/api.h"

namespace coppice::coordinator {

std::string OpenApiJson(const ApiLimits& limits, const std::string& version);
// The rows of section 1 of docs/api.md, in Markdown.
std::string EndpointTable();

}  // namespace coppice::coordinator
