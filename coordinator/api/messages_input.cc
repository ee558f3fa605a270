#include "coordinator/api/messages_input.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

// Reads the blocks of one message.
class BlockReader {
 public:
  BlockReader(const std::string& role, const std::string& path, Translator* translator)
      : role_(role), path_(path), translator_(*translator), fields_(translator->fields()) {}

  void Read(const json& block, absl::string_view text, const std::string& path) {
    if (!block.is_object()) {
      return fields_.Fail("invalid_type", path,
                          absl::StrCat("must be an object, got ", block.type_name()));
    }
    JsonFields inner(block, path, fields_.ignored());
    const std::string type = inner.String({"type"}).value_or("");
    const bool assistant = role_ == "assistant";
    if (type.empty()) {
      inner.Fail("missing_field", "type", "is required");
    } else if (type == "text") {
      if (const json* value = TextOf("text", &inner); value != nullptr)
        parts_.push_back(std::string(MemberText(text, "text")));
      inner.Ignore({"citations"});
    } else if (type == "tool_use" && assistant) {
      ReadToolUse(text, path, &inner);
    } else if (type == "thinking" && assistant) {
      if (const json* value = TextOf("thinking", &inner); value != nullptr) {
        absl::StrAppend(&reasoning_, reasoning_.empty() ? "" : "\n",
                        value->get_ref<const std::string&>());
      }
      inner.Ignore({"signature"});
    } else if (type == "redacted_thinking" && assistant) {
      inner.Hint("data", json::array());
    } else if (type == "tool_result" && !assistant) {
      ReadToolResult(text, path, &inner);
    } else {
      inner.Fail(
          "unsupported_field", "type",
          absl::StrCat("is ", PrintableName(type), ", which is not supported in a message of the ",
                       role_, ": the model reads texts only"));
    }
    inner.Hint("cache_control", json::array());
    inner.IgnoreUnknown();
    if (inner.error()) fields_.set_error(*inner.error());
  }

  // Adds what is left as a message. always: even if it is empty.
  void Flush(bool always) {
    if (!always && parts_.empty()) return;
    ObjectText message;
    message.Add("role", role_);
    if (!reasoning_.empty()) message.AddText("reasoning_content", QuotedText(reasoning_));
    message.AddText("content", parts_.empty() && !calls_.empty() ? "null" : PartsText());
    if (!calls_.empty()) message.AddText("tool_calls", calls_.text());
    const std::string chat = translator_.AddMessage(message, path_);
    for (size_t i = 0; i < call_places_.size(); ++i) {
      const std::string call = absl::StrCat(chat, ".tool_calls[", i, "]");
      translator_.Place(call, call_places_[i]);
      translator_.Place(call + ".function", call_places_[i]);
      translator_.Place(call + ".function.arguments", call_places_[i] + ".input");
    }
    parts_.clear();
  }
  bool calls() const { return !calls_.empty(); }
  bool results() const { return results_; }

 private:
  const json* TextOf(const char* name, JsonFields* inner) {
    const json* value = inner->FindGiven({name});
    if (value == nullptr) {
      inner->Fail("missing_field", name, "is required");
    } else if (!value->is_string()) {
      inner->Fail("invalid_type", name, absl::StrCat("must be a text, got ", value->type_name()));
    }
    return inner->error() ? nullptr : value;
  }

  // One text, or a list of parts.
  std::string PartsText() const {
    if (parts_.empty()) return "\"\"";
    if (parts_.size() == 1) return parts_[0];
    ListText list;
    for (const std::string& part : parts_)
      list.Add(ObjectText().Add("type", "text").AddText("text", part).text());
    return list.text();
  }

  void ReadToolUse(absl::string_view text, const std::string& path, JsonFields* inner) {
    if (TextOf("id", inner) == nullptr || TextOf("name", inner) == nullptr) return;
    const json* input = inner->FindGiven({"input"});
    if (input != nullptr && !input->is_object())
      return inner->Fail("invalid_type", "input", "must be an object");
    for (const char* hint : {"caller", "toolset_name"}) inner->Hint(hint, json::array());
    const std::string arguments = input == nullptr ? "{}" : CompactText(MemberText(text, "input"));
    ObjectText function, call;
    function.AddText("name", MemberText(text, "name")).AddText("arguments", QuotedText(arguments));
    call.AddText("id", MemberText(text, "id"))
        .Add("type", "function")
        .AddText("function", function.text());
    calls_.Add(call.text());
    call_places_.push_back(path);
  }

  void ReadToolResult(absl::string_view text, const std::string& path, JsonFields* inner) {
    if (TextOf("tool_use_id", inner) == nullptr) return;
    const json* content = inner->FindGiven({"content"});
    inner->Hint("is_error", json::array());
    inner->Hint("toolset_name", json::array());
    Flush(/*always=*/false);
    results_ = true;
    ObjectText message;
    message.Add("role", "tool")
        .AddText("tool_call_id", MemberText(text, "tool_use_id"))
        .AddText("content", content == nullptr
                                ? "\"\""
                                : translator_.Content(*content, MemberText(text, "content"),
                                                      path + ".content", {{"text", "text"}}));
    const std::string chat = translator_.AddMessage(message, path);
    translator_.Place(chat + ".tool_call_id", path + ".tool_use_id");
  }

  const std::string role_, path_;
  Translator& translator_;
  JsonFields& fields_;
  std::vector<std::string> parts_;  // the texts, as JSON
  std::string reasoning_;
  ListText calls_;
  std::vector<std::string> call_places_;
  bool results_ = false;
};

// True: the message is the assistant's and has a text that can be continued.
bool ReadOneMessage(const json& object, absl::string_view text, const std::string& path,
                    Translator* translator) {
  JsonFields& fields = translator->fields();
  if (!object.is_object()) {
    fields.Fail("invalid_type", path, absl::StrCat("must be an object, got ", object.type_name()));
    return false;
  }
  JsonFields inner(object, path, fields.ignored());
  const std::string role = inner.String({"role"}).value_or("");
  const json* content = inner.FindGiven({"content"});
  if (role.empty()) {
    inner.Fail("missing_field", "role", "is required");
  } else if (role != "user" && role != "assistant") {
    inner.Fail("invalid_value", "role",
               "must be one of user, assistant; what a system says is in system");
  } else if (content == nullptr) {
    inner.Fail("missing_field", "content", "is required");
  } else if (!content->is_string() && !content->is_array()) {
    inner.Fail("invalid_type", "content", "must be a text or a list of blocks");
  }
  inner.IgnoreUnknown();
  if (inner.error()) {
    fields.set_error(*inner.error());
    return false;
  }
  const absl::string_view content_text = MemberText(text, "content");
  if (content->is_string()) {
    ObjectText message;
    message.Add("role", role).AddText("content", content_text);
    translator->AddMessage(message, path);
    return role == "assistant";
  }
  BlockReader reader(role, path, translator);
  const std::vector<absl::string_view> texts = EntryTexts(content_text);
  for (size_t i = 0; i < texts.size() && !fields.error(); ++i)
    reader.Read((*content)[i], texts[i], absl::StrCat(path, ".content[", i, "]"));
  const bool calls = reader.calls();
  reader.Flush(/*always=*/!reader.results());
  return role == "assistant" && !calls;
}

}  // namespace

void ReadMessages(Translator* translator) {
  JsonFields& fields = translator->fields();
  if (const json* system = fields.FindValue({"system"}); system != nullptr) {
    ObjectText message;
    message.Add("role", "system")
        .AddText("content", translator->Content(*system, translator->Text("system"), "system",
                                                {{"text", "text"}}));
    translator->AddMessage(message, "system");
  }
  const json* messages = translator->Given("messages");
  if (messages == nullptr) return fields.Fail("missing_field", "messages", "is required");
  if (!messages->is_array())
    return fields.Fail("invalid_type", "messages", "must be a list of messages");
  if (messages->empty()) return fields.Fail("invalid_value", "messages", "is empty");
  const std::vector<absl::string_view> texts = EntryTexts(translator->Text("messages"));
  bool continues = false;
  for (size_t i = 0; i < texts.size() && !fields.error(); ++i)
    continues =
        ReadOneMessage((*messages)[i], texts[i], absl::StrCat("messages[", i, "]"), translator);
  for (const char* name : {"add_generation_prompt", "continue_final_message"})
    continues = continues && translator->Text(name).empty();
  if (!continues) return;
  translator->Set("continue_final_message", "true", "messages");
  translator->Place("continue_final_message", "messages");
}

}  // namespace coppice::coordinator
