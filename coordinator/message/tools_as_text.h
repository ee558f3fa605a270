// Tools for a chat template that knows none: a system message describes them, and the calls and
// results of earlier turns become texts, all in the hermes format. Pure.
#pragma once

#include <nlohmann/json.hpp>

namespace coppice::coordinator {

// messages: as ReadToolCalls and ChatFields make them. tools: as the client sent them; null: none.
nlohmann::ordered_json ToolsAsText(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& tools);

}  // namespace coppice::coordinator
