#include "coordinator/api/responses_input.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

class InputReader {
 public:
  explicit InputReader(Translator* translator)
      : translator_(*translator), fields_(translator->fields()) {}

  void Read(const json& item, absl::string_view text, const std::string& path) {
    if (!item.is_object()) {
      return fields_.Fail("invalid_type", path,
                          absl::StrCat("must be an object, got ", item.type_name()));
    }
    JsonFields inner(item, path, fields_.ignored());
    const std::string type = inner.String({"type"}).value_or("message");
    if (type == "message") {
      ReadMessage(item, text, path, &inner);
    } else if (type == "function_call") {
      ReadCall(text, path, &inner);
    } else if (type == "function_call_output") {
      ReadOutput(text, path, &inner);
    } else if (type == "reasoning") {
      ReadReasoning(path, &inner);
    } else if (type == "item_reference") {
      inner.Fail("unsupported_field", "type",
                 "is item_reference: this server keeps no items; send the item itself");
    } else {
      inner.Fail("unsupported_field", "type",
                 absl::StrCat("is ", PrintableName(type), ", which is not supported"));
    }
    for (const char* of_answers : {"id", "status", "phase"}) inner.Ignore({of_answers});
    inner.IgnoreUnknown();
    if (inner.error()) fields_.set_error(*inner.error());
  }

  // Ends the message of the assistant that is open.
  void Flush() {
    if (!open_) return;
    ObjectText message;
    message.Add("role", "assistant");
    if (!reasoning_.empty()) message.AddText("reasoning_content", QuotedText(reasoning_));
    if (content_.empty()) {
      message.AddText("content", calls_.empty() ? "\"\"" : "null");
    } else {
      message.AddText("content", content_);
    }
    if (!calls_.empty()) message.AddText("tool_calls", calls_.text());
    const std::string chat = translator_.AddMessage(message, place_);
    for (size_t i = 0; i < call_places_.size(); ++i) {
      const std::string call = absl::StrCat(chat, ".tool_calls[", i, "]");
      translator_.Place(call, call_places_[i]);
      translator_.Place(call + ".id", call_places_[i] + ".call_id");
      translator_.Place(call + ".function", call_places_[i]);
    }
    open_ = false;
    reasoning_.clear();
    content_.clear();
    calls_ = ListText();
    call_places_.clear();
  }

 private:
  // Opens a message of the assistant. after: what it may have already.
  void Open(const std::string& path) {
    if (open_) return;
    open_ = true;
    place_ = path;
  }

  void ReadMessage(const json& item, absl::string_view text, const std::string& path,
                   JsonFields* inner) {
    const std::optional<std::string> role = inner->String({"role"});
    if (!role) return inner->Fail("missing_field", "role", "is required");
    const json* content = inner->FindGiven({"content"});
    if (content == nullptr) return inner->Fail("missing_field", "content", "is required");
    std::string chat_content =
        translator_.Content(item["content"], MemberText(text, "content"), path + ".content",
                            {{"input_text", "text"},
                             {"output_text", "text"},
                             {"text", "text"},
                             {"refusal", "refusal"}});
    if (*role == "assistant") {
      if (!content_.empty() || !calls_.empty()) Flush();
      Open(path);
      content_ = std::move(chat_content);
      return;
    }
    Flush();
    ObjectText message;
    message.Add("role", *role).AddText("content", chat_content);
    translator_.AddMessage(message, path);
  }

  void ReadCall(absl::string_view text, const std::string& path, JsonFields* inner) {
    for (const char* name : {"call_id", "name", "arguments"}) {
      const json* value = inner->FindGiven({name});
      if (value == nullptr) return inner->Fail("missing_field", name, "is required");
      if (!value->is_string()) return inner->Fail("invalid_type", name, "must be a text");
    }
    for (const char* hint : {"namespace", "caller"}) inner->Hint(hint, json::array());
    Open(path);
    ObjectText function, call;
    function.AddText("name", MemberText(text, "name"))
        .AddText("arguments", MemberText(text, "arguments"));
    call.AddText("id", MemberText(text, "call_id"))
        .Add("type", "function")
        .AddText("function", function.text());
    calls_.Add(call.text());
    call_places_.push_back(path);
  }

  void ReadOutput(absl::string_view text, const std::string& path, JsonFields* inner) {
    const json* id = inner->FindGiven({"call_id"});
    const json* output = inner->FindGiven({"output"});
    if (id == nullptr) return inner->Fail("missing_field", "call_id", "is required");
    if (output == nullptr) return inner->Fail("missing_field", "output", "is required");
    Flush();
    ObjectText message;
    message.Add("role", "tool")
        .AddText("tool_call_id", MemberText(text, "call_id"))
        .AddText("content",
                 translator_.Content(*output, MemberText(text, "output"), path + ".output",
                                     {{"input_text", "text"}, {"output_text", "text"}}));
    const std::string chat = translator_.AddMessage(message, path);
    translator_.Place(chat + ".tool_call_id", path + ".call_id");
    translator_.Place(chat + ".content", path + ".output");
  }

  void ReadReasoning(const std::string& path, JsonFields* inner) {
    const json* content = inner->Find({"content"});
    const json* summary = inner->Find({"summary"});
    inner->Ignore({"encrypted_content"});
    std::string text = content == nullptr ? "" : PartTexts(*content, "text");
    if (text.empty() && summary != nullptr) text = PartTexts(*summary, "text");
    if (text.empty()) return;
    if (!content_.empty() || !calls_.empty()) Flush();
    Open(path);
    absl::StrAppend(&reasoning_, reasoning_.empty() ? "" : "\n", text);
  }

  Translator& translator_;
  JsonFields& fields_;
  bool open_ = false;
  std::string place_, reasoning_, content_;
  ListText calls_;
  std::vector<std::string> call_places_;
};

}  // namespace

void ReadInput(Translator* translator) {
  JsonFields& fields = translator->fields();
  const json* input = translator->Given("input");
  const absl::string_view text = translator->Text("input");
  if (input == nullptr) return fields.Fail("missing_field", "input", "is required");
  if (input->is_string()) {
    ObjectText message;
    message.Add("role", "user").AddText("content", text);
    translator->AddMessage(message, "input");
    return;
  }
  if (!input->is_array())
    return fields.Fail("invalid_type", "input", "must be a text or a list of items");
  if (input->empty()) return fields.Fail("invalid_value", "input", "is empty");
  InputReader reader(translator);
  const std::vector<absl::string_view> texts = EntryTexts(text);
  for (size_t i = 0; i < texts.size() && !fields.error(); ++i)
    reader.Read((*input)[i], texts[i], absl::StrCat("input[", i, "]"));
  reader.Flush();
}

}  // namespace coppice::coordinator
