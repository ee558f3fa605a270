// The schemas of /openapi.json for the endpoints in the form of other APIs: their requests, which
// have the fields of a chat besides their own, and their answers. Pure. Called by openapi.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace coppice::coordinator {

// chat: the schema of the request of a chat completion. The schemas by name.
nlohmann::ordered_json FormRequestSchemas(const nlohmann::ordered_json& chat);
nlohmann::ordered_json FormAnswerSchemas();

}  // namespace coppice::coordinator
