#include "coordinator/api/chat_fields.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/api/api.h"
#include "coordinator/api/ordered_text.h"
#include "coordinator/message/reasoning_marks.h"
#include "coordinator/message/tools_as_text.h"
#include "plan/token_score.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr size_t kMaxMessages = 4096;
constexpr size_t kMaxShownText = 300;
constexpr char kUnread[] = "is not read by the chat template of the model";
constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

// Different for every request.
std::string NewIdSeed() {
  thread_local std::mt19937_64 engine(std::random_device{}());
  return absl::StrCat(engine());
}

bool CheckOrder(const json& value, const char* name, JsonFields* fields) {
  if (FitsInOrder(value)) return true;
  fields->Fail("invalid_value", name,
               absl::StrCat("has an object of more than ", kMostOrderedMembers, " members"));
  return false;
}

}  // namespace

ChatFields::ChatFields(const ApiContext& context, int64_t now_unix, const std::string& body,
                       const ContextLimit& limit)
    : context_(context), chat_(context.chat), body_(body), limit_(limit), tools_(body) {
  options_.now_unix = now_unix;
}

void ChatFields::Read(JsonFields* fields) {
  json_ = fields->FindGiven({"messages"});
  const std::optional<bool> prompt = fields->Bool({"add_generation_prompt"});
  options_.continue_final_message = fields->Bool({"continue_final_message"}).value_or(false);
  options_.add_generation_prompt = prompt.value_or(!options_.continue_final_message);
  if (options_.continue_final_message && options_.add_generation_prompt) {
    fields->Fail(kUnsupportedCombination, "continue_final_message",
                 "cannot be combined with add_generation_prompt: true: the final message is "
                 "continued, and no other one is begun");
  }
  options_.add_special_tokens = fields->Bool({"add_special_tokens"}).value_or(false);
  const bool logprobs = fields->Bool({"logprobs"}).value_or(false);
  const std::optional<int64_t> top = fields->Integer({"top_logprobs"}, 0, kMostAlternatives);
  if (logprobs) logprobs_ = static_cast<int>(top.value_or(0));
  if (!logprobs && top.value_or(0) > 0) {
    fields->Fail(kUnsupportedCombination, "top_logprobs", "needs logprobs: true");
  }
  ReadTemplateFields(fields);
  ReadReasoning(fields);
  tools_.Read(fields);
}

// What the template sees beside the messages.
void ChatFields::ReadTemplateFields(JsonFields* fields) {
  if (fields->Object("chat_template_kwargs") != nullptr) ReadVariables(fields);
  const json* documents = fields->FindValue({"documents"});
  if (documents != nullptr && !(documents->is_array() && AllOf(*documents, &json::is_object))) {
    fields->Fail("invalid_type", "documents", "must be a list of objects");
  } else if (documents != nullptr && !Reads("documents")) {
    fields->Fail("unsupported_field", "documents", kUnread);
  } else if (documents != nullptr && CheckOrder(*documents, "documents", fields)) {
    input_.documents = Ordered("documents");
  }
  if (const std::optional<std::string> effort = fields->String({"reasoning_effort"}))
    ReadVariable("reasoning_effort", *effort, fields);
  if (const std::optional<bool> thinks = fields->Bool({"enable_thinking"}))
    ReadVariable("enable_thinking", *thinks, fields);
}

// A field that stands for a variable of the template.
void ChatFields::ReadVariable(const char* name, const json& value, JsonFields* fields) {
  if (!Reads(name)) return fields->IgnoreField(name, "unsupported_field", kUnread);
  const auto [variable, added] = input_.variables.emplace(name, value);
  if (!added && *variable != nlohmann::ordered_json(value))
    fields->Fail("conflicting_fields", name, "and chat_template_kwargs differ");
}

// Whether the reasoning stands apart from the content, and whether it is shown: `include_reasoning`
// of vLLM, `separate_reasoning` of SGLang, `reasoning_format` of llama.cpp.
void ChatFields::ReadReasoning(JsonFields* fields) {
  shows_reasoning_ = fields->Bool({"include_reasoning"}).value_or(true);
  splits_reasoning_ = fields->Bool({"separate_reasoning"}).value_or(true);
  fields->Ignore({"stream_reasoning"});
  if (fields->String({"reasoning_format"}).value_or("auto") == "none") splits_reasoning_ = false;
}

void ChatFields::ReadVariables(JsonFields* fields) {
  constexpr char kName[] = "chat_template_kwargs";
  if (!CheckOrder(*fields->Find({kName}), kName, fields)) return;
  input_.variables = Ordered(kName);
  const absl::Status status = tokenizer::ChatPrompt::CheckVariables(input_.variables);
  if (!status.ok()) fields->Fail("invalid_value", kName, absl::StrCat("has: ", status.message()));
  for (const auto& variable : input_.variables.items()) {
    if (!Reads(variable.key()))
      fields->IgnoreField(absl::StrCat(kName, ".", variable.key()), "unsupported_field", kUnread);
  }
}

// Without a template the request is refused later.
bool ChatFields::Reads(absl::string_view variable) const {
  return chat_ == nullptr || chat_->Reads(variable);
}

// The members of the field's value in the order that the client wrote.
nlohmann::ordered_json ChatFields::Ordered(const char* name) const {
  return nlohmann::ordered_json::parse(OrderedText(body_, {name}));
}

void ChatFields::MakePrompts(JsonFields* fields, GenerateRequest* request) {
  request->form = AnswerForm::kChat;
  if (json_ == nullptr) return fields->Fail("missing_field", "messages", "is required");
  if (!json_->is_array()) {
    return fields->Fail("invalid_type", "messages", "must be a list of messages");
  }
  if (json_->empty()) return fields->Fail("invalid_value", "messages", "is empty");
  if (json_->size() > kMaxMessages) {
    return fields->Fail(
        "invalid_value", "messages",
        absl::StrCat("has at most ", kMaxMessages, " messages, got ", json_->size()));
  }
  for (size_t i = 0; i < json_->size() && !fields->error(); ++i)
    ReadMessage((*json_)[i], absl::StrCat("messages[", i, "]"), fields);
  if (fields->error()) return;
  if (chat_ == nullptr) {
    return fields->set_error(
        {400, "no_chat_template",
         "messages cannot be served: the model has no chat template. Start coppice-coordinator "
         "with --chat_template=FILE or the name of a family, or use /v1/completions",
         "messages"});
  }
  if (options_.continue_final_message && input_.messages.back()["role"] != "assistant") {
    return fields->Fail(kUnsupportedCombination, "continue_final_message",
                        "needs messages whose last role is assistant");
  }
  if (context_.tool_format == nullptr && tools_.choice() != ToolChoice::kAuto) {
    return fields->Fail("unsupported_field", "tool_choice",
                        "must be auto or none: the server runs with --tool_format=none");
  }
  input_.tools = tools_.shown();
  if (!chat_->Reads("tools")) {
    input_.messages = ToolsAsText(input_.messages, input_.tools);
    input_.tools = nlohmann::ordered_json();
  }
  const absl::StatusOr<tokenizer::ChatText> text = chat_->Write(input_, options_);
  if (!text.ok()) {
    const bool refuses = text.status().code() == absl::StatusCode::kFailedPrecondition;
    const bool shows = text.status().code() != absl::StatusCode::kOutOfRange;
    return fields->Fail("invalid_value", shows ? "messages" : "continue_final_message",
                        absl::StrCat(refuses ? "are refused by the chat template: "
                                     : shows ? "cannot be put into the chat template: "
                                             : "is not possible: ",
                                     text.status().message().substr(0, kMaxShownText)));
  }
  // A template may leave out parts of the messages, so only the text that it makes is checked.
  if (!limit_.MayFit(text->text, *request, fields)) return;
  std::vector<TokenId> ids = chat_->Tokens(*text, options_);
  if (ids.empty()) return fields->Fail("invalid_value", "messages", "have no tokens");
  request->prompts.push_back(std::move(ids));
  request->turn_end_ids = chat_->end_ids();
  request->logprobs = logprobs_;
  request->shows_reasoning = shows_reasoning_;
  request->syntax = Syntax(text->text);
}

std::shared_ptr<MessageSyntax> ChatFields::Syntax(absl::string_view prompt) const {
  auto syntax = std::make_shared<MessageSyntax>();
  if (splits_reasoning_ && context_.reasoning) {
    syntax->reasoning = *context_.reasoning;
    syntax->reasoning_begun = ReasoningBegun(syntax->reasoning, prompt);
  }
  if (!tools_.tools().empty() && context_.tool_format != nullptr) {
    syntax->tool_format = context_.tool_format;
    syntax->tools = tools_.tools();
    syntax->choice = tools_.choice();
    syntax->parallel = tools_.parallel();
    syntax->id_seed = NewIdSeed();
  }
  if (syntax->reasoning.open.empty() && syntax->tools.empty()) return nullptr;
  return syntax;
}

void ChatFields::ReadMessage(const json& object, const std::string& path, JsonFields* fields) {
  if (!object.is_object()) {
    return fields->Fail("invalid_type", path,
                        absl::StrCat("must be an object, got ", object.type_name()));
  }
  JsonFields inner(object, path, fields->ignored());
  nlohmann::ordered_json message;
  const std::optional<std::string> role = inner.String({"role"});
  if (!role) {
    inner.Fail("missing_field", "role", "is required");
  } else if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
    inner.Fail("invalid_value", "role", "must be one of system, developer, user, assistant, tool");
  }
  message["role"] = role.value_or("") == "function" ? "tool" : role.value_or("");
  message["content"] = ReadContent(path, role.value_or(""), &inner);
  for (const char* name : {"name", "reasoning_content", "reasoning", "tool_call_id"}) {
    if (const std::optional<std::string> text = inner.String({name})) message[name] = *text;
  }
  if (const json* calls = inner.FindValue({"tool_calls"}))
    message["tool_calls"] = ReadToolCalls(*calls, path, &inner);
  for (const char* name : {"function_call", "audio"}) inner.Neutral(name, json::array());
  // What an answer of another server has beside its text.
  for (const char* name : {"annotations", "refusal"}) inner.Hint(name, json::array());
  inner.IgnoreUnknown();
  if (inner.error()) return fields->set_error(*inner.error());
  input_.messages.push_back(std::move(message));
}

// Absent content is an empty text in a message of the assistant or of a tool, which may have had none.
nlohmann::ordered_json ChatFields::ReadContent(const std::string& path, absl::string_view role,
                                               JsonFields* fields) {
  const json* content = fields->FindGiven({"content"});
  if (content == nullptr && role != "assistant" && role != "tool" && role != "function")
    fields->Fail("missing_field", "content", "is required");
  if (content == nullptr) return "";
  if (content->is_string()) return *content;
  if (content->is_array() && content->empty()) return "";
  if (!content->is_array()) {
    fields->Fail("invalid_type", "content", "must be a text or a list of parts");
    return "";
  }
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (size_t i = 0; i < content->size() && !fields->error(); ++i) {
    std::string text = ReadPart((*content)[i], absl::StrCat(path, ".content[", i, "]"), fields);
    parts.push_back({{"type", "text"}, {"text", std::move(text)}});
  }
  return parts;
}

// A part is a text, or an object with one.
std::string ChatFields::ReadPart(const json& part, const std::string& path, JsonFields* fields) {
  if (part.is_string()) return part.get<std::string>();
  if (!part.is_object()) {
    fields->set_error({400, "invalid_type",
                       absl::StrCat(path, " must be an object, got ", part.type_name()), path});
    return "";
  }
  JsonFields inner(part, path, fields->ignored());
  const std::optional<std::string> type = inner.String({"type"});
  if (!type) {
    inner.Fail("missing_field", "type", "is required");
  } else if (*type != "text" && *type != "input_text" && *type != "output_text") {
    inner.Fail("unsupported_field", "type", "must be text: no other content is supported");
  }
  const json* text = inner.FindGiven({"text"});
  if (text == nullptr) {
    inner.Fail("missing_field", "text", "is required");
  } else if (!text->is_string()) {
    inner.Fail("invalid_type", "text", absl::StrCat("must be a string, got ", text->type_name()));
  }
  inner.Hint("cache_control", json::array());
  inner.Hint("annotations", json::array());
  inner.IgnoreUnknown();
  if (inner.error()) fields->set_error(*inner.error());
  return inner.error() ? "" : text->get<std::string>();
}

}  // namespace coppice::coordinator
