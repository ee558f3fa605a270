// The answers of /openapi.json: the schemas of their bodies, and for each endpoint every status with
// which it answers. Pure. Called by openapi.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "coordinator/api/endpoints.h"

namespace coppice::coordinator {

// The schemas of the bodies by name, Error included.
nlohmann::ordered_json AnswerSchemas();
// The errors that endpoints share, by name.
nlohmann::ordered_json ErrorResponses();
// The responses of an endpoint by status.
nlohmann::ordered_json ResponsesOf(const Endpoint& endpoint);

}  // namespace coppice::coordinator
