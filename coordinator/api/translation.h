// Requests of other APIs as chat completions: /v1/responses and /v1/messages are read by
// translating their body to that of a chat completion, so that one set of rules checks both. What a
// translation does not know is passed on as it is: all fields of Coppice. Called through
// request/pending_body, by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/api/api.h"
#include "coordinator/api/client_fields.h"
#include "coordinator/api/json_fields.h"
#include "coordinator/api/json_text.h"

namespace coppice::coordinator {

struct ChatTranslation {
  std::string body;    // of the chat completion
  FieldPlaces places;  // of its messages, tools and added fields, in the client's request
  IgnoredFields ignored;
  std::string repeated_fields;  // see GenerateRequest
};

// What the translations share: the parts of the new body.
class Translator {
 public:
  // text: of the body. object: its value. Both must outlive this. refuse: unknown fields are
  // errors.
  Translator(const std::string& text, const nlohmann::json& object, bool refuse);

  JsonFields& fields() { return fields_; }
  const nlohmann::json* Given(const char* name) { return fields_.FindGiven({name}); }
  // The text of a member of the request, as it is written; "": there is none.
  absl::string_view Text(const char* name) const;
  // Adds a field of the chat completion. place: where the client has it; the client may have given
  // the field by this name, too, with the same value.
  void Set(const char* name, std::string text, const char* place);
  // Adds a member to chat_template_kwargs.
  void SetVariable(const char* name, const nlohmann::json& value, const char* place);
  void Place(std::string chat, std::string client);
  // Adds a message; returns its path in the chat completion.
  std::string AddMessage(const ObjectText& message, const std::string& place);
  // Calls read for each tool of the request: its value, its text and its place, until an error.
  void EachTool(void (*read)(const nlohmann::json& tool, absl::string_view text,
                             const std::string& path, Translator* translator));
  void AddTool(const ObjectText& function, const std::string& place, const char* parameters);
  // Refuses fields whose effect could not be shown in the answer, and more than one choice.
  void RefuseUnshown(std::initializer_list<const char*> names);
  // stream_options: the last event always has the usage, and no other one has.
  void ReadStreamOptions();
  // A list of parts with text, or a text, as content of a message; "" with an error in *fields.
  // types: of parts with a text, and the member that has it.
  struct PartType {
    const char* type;
    const char* member;
  };
  std::string Content(const nlohmann::json& content, absl::string_view text,
                      const std::string& path, std::initializer_list<PartType> types);

  std::variant<ChatTranslation, ApiError> Finish();
  std::string repeated_fields;

 private:
  IgnoredFields ignored_;
  JsonFields fields_;
  const nlohmann::json& object_;
  std::map<std::string, absl::string_view> members_;
  std::map<std::string, std::pair<std::string, std::string>> set_;  // name -> {text, place}
  ObjectText out_;
  ListText messages_, tools_;
  FieldPlaces places_;
};

// A text alone, or several in a list, as one.
std::string PartTexts(const nlohmann::json& list, const char* member);

std::variant<ChatTranslation, ApiError> TranslateResponse(const std::string& body,
                                                          const ApiLimits& limits);
std::variant<ChatTranslation, ApiError> TranslateMessage(const std::string& body,
                                                         const ApiLimits& limits);

std::variant<GenerateRequest, ApiError> ParseResponse(const std::string& body,
                                                      const std::string& timeout_header,
                                                      const ApiContext& context, int64_t now_unix);
std::variant<GenerateRequest, ApiError> ParseMessage(const std::string& body,
                                                     const std::string& timeout_header,
                                                     const ApiContext& context, int64_t now_unix);

// The place of an error of the chat completion in the client's request.
ApiError ForClient(const ChatTranslation& translation, AnswerForm form, ApiError error);
// The ignored fields of the chat completion, by their names in the client's request, with those of
// the translation.
IgnoredFields IgnoredByClient(const ChatTranslation& translation, AnswerForm form,
                              const IgnoredFields& of_chat);

}  // namespace coppice::coordinator
