// What the text of an answer consists of. While an answer grows, each string grows at its end only,
// and calls are added at the end only, so that a stream can send what is new. Value type.
#pragma once

#include <string>
#include <vector>

namespace coppice::coordinator {

struct ToolCall {
  std::string id;    // "call_...", or what the model's template demands
  std::string name;  // of a tool of the request
  // The text of a JSON object; of an answer that ended early, as far as the model wrote it.
  std::string arguments;
};

struct MessageParts {
  std::string reasoning;  // without its marks
  std::string content;
  std::vector<ToolCall> calls;
};

}  // namespace coppice::coordinator
