// The tools of a chat: `tools`, `tool_choice`, `parallel_tool_calls`, and the calls in its messages.
// Called by chat_fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coordinator/api/json_fields.h"
#include "coordinator/message/message_syntax.h"

namespace coppice::coordinator {

class ToolFields {
 public:
  // body: text of the request; must outlive this.
  explicit ToolFields(const std::string& body) : body_(body) {}
  // Errors go to *fields.
  void Read(JsonFields* fields);

  // The template sees these; null if there are none, or if none may be called.
  const nlohmann::ordered_json& shown() const { return shown_; }
  // Those that may be called, in the order of the request.
  const std::vector<Tool>& tools() const { return tools_; }
  ToolChoice choice() const { return choice_; }
  bool parallel() const { return parallel_; }

 private:
  void ReadTool(const nlohmann::ordered_json& tool, const std::string& path, JsonFields* fields);
  void ReadChoice(const nlohmann::json& choice, JsonFields* fields);
  void ReadAllowed(const nlohmann::json& choice, JsonFields* fields);
  // Leaves only these.
  void Keep(const std::vector<std::string>& names, JsonFields* fields);
  void KeepNone();

  const std::string& body_;
  nlohmann::ordered_json shown_;
  std::vector<Tool> tools_;
  ToolChoice choice_ = ToolChoice::kAuto;
  bool parallel_ = true;
};

// `tool_calls` of a message, as templates expect them: arguments are the object of which the client
// sends the text. message: the object at `path`, a place in the body such as "messages[2]".
nlohmann::ordered_json ReadToolCalls(const nlohmann::json& calls, const std::string& path,
                                     JsonFields* fields);

}  // namespace coppice::coordinator
