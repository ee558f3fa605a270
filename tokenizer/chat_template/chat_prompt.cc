#include "tokenizer/chat_template/chat_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "tokenizer/chat_template/python_text.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Bytes that no text in UTF-8 has. They go through the template with the text of the messages.
constexpr char kLiteral = '\xFF';  // marks a byte that is part of no special token
constexpr char kEnd = '\xFE';      // marks the end of the message that is to be continued

// Without the marks. literal: the offsets that kLiteral marked.
std::string Unmarked(absl::string_view text, std::vector<size_t>* literal) {
  std::string plain;
  plain.reserve(text.size());
  for (const char c : text) {
    if (c == kLiteral) {
      literal->push_back(plain.size());
    } else if (c != kEnd) {
      plain += c;
    }
  }
  return plain;
}

bool HasText(const OrderedJson& part) {
  return part.is_object() && part.contains("text") && part["text"].is_string();
}

OrderedJson TextPart(const OrderedJson& text) { return {{"type", "text"}, {"text", text}}; }

// Templates compare names with their own texts, so a name has no marks. It has no brackets, with
// which special tokens begin and end.
bool IsName(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == ' ';
  });
}

std::string JoinedTexts(const OrderedJson& parts, absl::string_view between) {
  std::vector<std::string> texts;
  for (const OrderedJson& part : parts) {
    if (HasText(part)) texts.push_back(part["text"]);
  }
  return absl::StrJoin(texts, between);
}

// Ends the text where the final message ends. A space was put after the mark: if the template has
// removed it, it trims its messages, and the end of this one is trimmed too.
absl::Status CutAfterFinalMessage(std::string* text) {
  const size_t end = text->rfind(kEnd);
  if (end == std::string::npos)
    return absl::OutOfRangeError("the chat template does not show the end of the final message");
  const bool trims = end + 1 >= text->size() || (*text)[end + 1] != ' ';
  text->resize(end);
  if (trims) text->resize(jinja::StripText(*text, false, true, nullptr).size());
  return absl::OkStatus();
}

}  // namespace

ChatPrompt::ChatPrompt(ChatTemplate chat_template, std::string bos_token, std::string eos_token,
                       const Tokenizer* tokenizer)
    : template_(std::move(chat_template)),
      bos_token_(std::move(bos_token)),
      eos_token_(std::move(eos_token)),
      tokenizer_(tokenizer),
      knows_developer_(template_.Mentions("developer")),
      form_(FindContentForm()) {}

// Tries both forms on a chat of one message and looks for its text.
ChatPrompt::ContentForm ChatPrompt::FindContentForm() const {
  const auto render = [this](OrderedJson content) {
    OrderedJson variables;
    variables["messages"] =
        OrderedJson::array({{{"role", "user"}, {"content", std::move(content)}}});
    variables["bos_token"] = bos_token_;
    variables["eos_token"] = eos_token_;
    variables["add_generation_prompt"] = true;
    variables["tools"] = nullptr;
    variables["documents"] = nullptr;
    return template_.Render(variables, 0).value_or("");
  };
  const std::string text = "which form";
  const std::string from_text = render(text);
  const std::string from_parts = render(OrderedJson::array({TextPart(text)}));
  if (from_text == from_parts && !from_text.empty()) return ContentForm::kBoth;
  const bool shows_text = from_text.find(text) != std::string::npos;
  const bool shows_parts = from_parts.find(text) != std::string::npos;
  return shows_parts && !shows_text ? ContentForm::kParts : ContentForm::kText;
}

std::string ChatPrompt::Marked(absl::string_view text) const {
  std::vector<size_t> literal = tokenizer_->FindSpecial(text);
  // A template may remove the white space around a text. Then other texts stand beside the rest.
  const absl::string_view rest = jinja::StripText(text, true, true, nullptr);
  if (rest.size() < text.size()) {
    for (const size_t at : tokenizer_->FindSpecial(rest))
      literal.push_back(at + (rest.data() - text.data()));
    std::sort(literal.begin(), literal.end());
    literal.erase(std::unique(literal.begin(), literal.end()), literal.end());
  }
  std::string marked;
  size_t done = 0;
  for (const size_t at : literal) {
    absl::StrAppend(&marked, text.substr(done, at - done), absl::string_view(&kLiteral, 1));
    done = at;
  }
  return absl::StrCat(marked, text.substr(done));
}

OrderedJson ChatPrompt::MarkedJson(const OrderedJson& json) const {
  if (json.is_string()) return Marked(json.get_ref<const std::string&>());
  if (json.is_array()) {
    OrderedJson marked = OrderedJson::array();
    for (const OrderedJson& entry : json) marked.push_back(MarkedJson(entry));
    return marked;
  }
  if (!json.is_object()) return json;
  OrderedJson marked = OrderedJson::object();
  for (const auto& entry : json.items())
    marked[IsName(entry.key()) ? entry.key() : Marked(entry.key())] = MarkedJson(entry.value());
  return marked;
}

OrderedJson ChatPrompt::Content(const OrderedJson& content, bool is_final) const {
  const bool one_text = content.is_string();
  if (!one_text && !content.is_array()) return MarkedJson(content);
  const bool as_parts = form_ == ContentForm::kParts || (form_ == ContentForm::kBoth && !one_text);
  if (as_parts)
    return Parts(one_text ? OrderedJson::array({TextPart(content)}) : content, is_final);
  std::string text = one_text ? content.get<std::string>() : JoinedTexts(content, "\n");
  return Marked(text) + (is_final ? std::string{kEnd, ' '} : "");
}

OrderedJson ChatPrompt::Parts(const OrderedJson& content, bool is_final) const {
  OrderedJson parts = MarkedJson(content);
  for (size_t i = 0; i < content.size(); ++i) {
    if (content[i].is_object() && content[i].contains("type"))
      parts[i]["type"] = content[i]["type"];
  }
  for (auto part = parts.rbegin(); is_final && part != parts.rend(); ++part) {
    if (!HasText(*part)) continue;
    (*part)["text"].get_ref<std::string&>() += {kEnd, ' '};
    break;
  }
  return parts;
}

// The fields that a message gets in Transformers: no field is null, and the reasoning has all of
// its usual names.
OrderedJson ChatPrompt::Message(const OrderedJson& message, bool is_final) const {
  OrderedJson made = OrderedJson::object();
  OrderedJson reasoning;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (reasoning.is_null()) reasoning = message.value(name, OrderedJson());
  }
  if (!reasoning.is_null()) made["thinking"] = MarkedJson(reasoning);
  for (const auto& field : message.items()) {
    if (field.value().is_null()) continue;
    const bool is_content = field.key() == "content";
    made[field.key()] = field.key() == "role" ? field.value()
                        : is_content          ? Content(field.value(), is_final)
                                              : MarkedJson(field.value());
  }
  if (!reasoning.is_null()) made["reasoning_content"] = MarkedJson(reasoning);
  if (!knows_developer_ && made.value("role", OrderedJson()) == "developer")
    made["role"] = "system";
  return made;
}

absl::Status ChatPrompt::CheckVariables(const OrderedJson& variables) {
  if (!variables.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected an object, got ", variables.type_name()));
  }
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (!variables.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is a variable that the request has a field for"));
  }
  return absl::OkStatus();
}

OrderedJson ChatPrompt::Variables(const Chat& chat, const ChatOptions& options) const {
  OrderedJson list = OrderedJson::array();
  for (const OrderedJson& message : chat.messages) {
    const bool is_final = options.continue_final_message && &message == &chat.messages.back();
    list.push_back(Message(message, is_final));
  }
  OrderedJson variables;
  if (!bos_token_.empty()) variables["bos_token"] = bos_token_;
  if (!eos_token_.empty()) variables["eos_token"] = eos_token_;
  for (const auto& variable : chat.variables.items()) {
    const OrderedJson& value = variable.value();
    const bool is_name = value.is_string() && IsName(value.get_ref<const std::string&>());
    variables[variable.key()] = is_name ? value : MarkedJson(value);
  }
  variables["messages"] = std::move(list);
  variables["tools"] = MarkedJson(chat.tools);
  variables["documents"] = MarkedJson(chat.documents);
  variables["add_generation_prompt"] = options.add_generation_prompt;
  return variables;
}

absl::StatusOr<std::string> ChatPrompt::Render(const Chat& chat, const ChatOptions& options) const {
  COPPICE_RETURN_IF_ERROR(CheckVariables(chat.variables));
  absl::StatusOr<std::string> text = template_.Render(Variables(chat, options), options.now_unix);
  if (!text.ok()) {  // its message may show a marked text
    std::vector<size_t> ignored;
    return absl::Status(text.status().code(),
                        ValidUtf8(Unmarked(text.status().message(), &ignored)));
  }
  if (options.continue_final_message) COPPICE_RETURN_IF_ERROR(CutAfterFinalMessage(&*text));
  return text;
}

absl::StatusOr<ChatText> ChatPrompt::Write(const Chat& chat, const ChatOptions& options) const {
  COPPICE_ASSIGN_OR_RETURN(const std::string marked, Render(chat, options));
  ChatText text;
  text.text = Unmarked(marked, &text.literal);
  return text;
}

std::vector<TokenId> ChatPrompt::Tokens(const ChatText& text, const ChatOptions& options) const {
  return tokenizer_->EncodeChat(text.text, text.literal, options.add_special_tokens);
}

absl::StatusOr<std::vector<TokenId>> ChatPrompt::Encode(const Chat& chat,
                                                        const ChatOptions& options) const {
  COPPICE_ASSIGN_OR_RETURN(const ChatText text, Write(chat, options));
  return Tokens(text, options);
}

}  // namespace coppice::tokenizer
