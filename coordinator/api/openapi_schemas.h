// The schemas of the requests of /openapi.json. Fields that the table of parameters describes come from it; the
// others are listed here. Pure. Called by openapi.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "coordinator/api/api.h"

namespace coppice::coordinator {

// The schemas by name.
nlohmann::ordered_json RequestSchemas(const ApiLimits& limits);

}  // namespace coppice::coordinator
