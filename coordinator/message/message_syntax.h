// How the answer of a model writes its reasoning and its calls of tools: what a request knows of it
// before the model answers. Value types.
#pragma once

#include <string>
#include <vector>

namespace coppice::coordinator {

struct ToolFormat;  // tool_format.h

struct Tool {
  std::string name;
  std::string parameters;  // text of the JSON schema of its arguments; "": any object
};

enum class ToolChoice {
  kAuto,      // text, calls, or text and then calls
  kRequired,  // one or more calls
  kNamed,     // calls of the only tool of the list
};

struct ReasoningMarks {
  std::string open, close;  // "<think>", "</think>"
};

struct MessageSyntax {
  // The marks between which a model may reason before it answers; "": it does not.
  ReasoningMarks reasoning;
  bool reasoning_begun = false;             // the prompt has ended inside of the reasoning
  const ToolFormat* tool_format = nullptr;  // nullptr: no calls are recognised
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kAuto;
  bool parallel = true;  // more than one call
  std::string id_seed;   // ids of calls follow from it
};

}  // namespace coppice::coordinator
