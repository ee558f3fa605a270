#include "coordinator/message/answer_structure.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/message/call_arguments.h"
#include "coordinator/message/call_head.h"
#include "coordinator/message/text_arguments.h"
#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {
namespace {

using Tag = nlohmann::ordered_json;
using IsSpecial = absl::FunctionRef<bool(absl::string_view)>;

Tag Const(absl::string_view text) { return {{"type", "const_string"}, {"value", text}}; }

Tag TokenTag(absl::string_view token) { return {{"type", "token"}, {"token", token}}; }

Tag Regex(absl::string_view pattern) { return {{"type", "regex"}, {"pattern", pattern}}; }

Tag Optional(Tag content) { return {{"type", "optional"}, {"content", std::move(content)}}; }

Tag List(absl::string_view type, std::vector<Tag> elements) {
  if (elements.size() == 1) return std::move(elements[0]);
  return {{"type", type}, {"elements", std::move(elements)}};
}

Tag Sequence(std::vector<Tag> elements) { return List("sequence", std::move(elements)); }

Tag Or(std::vector<Tag> elements) { return List("or", std::move(elements)); }

Tag Schema(absl::string_view type, const Tag& schema) {
  return {{"type", type}, {"json_schema", schema}};
}

std::string NameAsJson(absl::string_view name) {
  std::string json = "\"";
  AppendToJsonString(name, &json);
  return json += '"';
}

bool IsConst(const Tag& tag) { return tag["type"] == "const_string"; }

// Writes one syntax's parts.
class TagWriter {
 public:
  TagWriter(const MessageSyntax& syntax, IsSpecial is_special)
      : syntax_(syntax), format_(syntax.tool_format), is_special_(is_special) {}

  // The reasoning and the white space behind it. Appends nothing if the model does not reason.
  void AppendReasoning(std::vector<Tag>* elements) const {
    const ReasoningMarks& marks = syntax_.reasoning;
    if (marks.open.empty()) return;
    std::vector<Tag> inside;
    if (!syntax_.reasoning_begun) inside.push_back(Mark(marks.open));
    inside.push_back(TextWithout({marks.close}));
    inside.push_back(Mark(marks.close));
    inside.push_back(Regex("\\n?\\n?"));
    Tag reasoning = Sequence(std::move(inside));
    elements->push_back(syntax_.reasoning_begun ? std::move(reasoning)
                                                : Optional(std::move(reasoning)));
  }

  absl::Status AppendAnswer(std::vector<Tag>* elements) {
    for (const Tool& tool : syntax_.tools) {
      Tag schema = tool.parameters.empty() ? Tag{{"type", "object"}}
                                           : Tag::parse(tool.parameters, nullptr, false);
      if (schema.is_discarded())
        return absl::InvalidArgumentError(
            absl::StrCat("the parameters of the tool ", tool.name, " are not JSON"));
      schemas_.push_back(std::move(schema));
    }
    if (syntax_.choice != ToolChoice::kAuto) {
      elements->push_back(Calls(true));
      return absl::OkStatus();
    }
    std::vector<std::string> begins = Triggers(false), anywhere = Triggers(true);
    if (!format_->content_mark.empty()) {
      Tag text = Sequence({Const(format_->content_mark), TextWithout(anywhere)});
      Tag before = Sequence({text, Texts(FirstAnywhere().open)});
      elements->push_back(Or({text, Sequence({Optional(std::move(before)), Calls(false)})}));
    } else if (begins.empty()) {
      elements->push_back(TextWithout(anywhere));
      elements->push_back(Optional(Calls(true)));
    } else {
      elements->push_back(Or({Calls(true), TextNotBeginning(std::move(begins))}));
    }
    return absl::OkStatus();
  }

 private:
  const CallSection& FirstAnywhere() const {
    return *std::find_if(format_->sections.begin(), format_->sections.end(),
                         [](const CallSection& section) { return section.anywhere; });
  }

  Tag Mark(absl::string_view text) const {
    return is_special_(text) ? TokenTag(text) : Const(text);
  }

  // An element of `excludes`, or a begin or end of a tag.
  Tag MarkOrText(absl::string_view text) const {
    return is_special_(text) ? TokenTag(text) : Tag(text);
  }

  Tag TextWithout(const std::vector<std::string>& texts) const {
    Tag excludes = Tag::array();
    for (const std::string& text : texts) excludes.push_back(MarkOrText(text));
    return {{"type", "any_text"}, {"excludes", std::move(excludes)}};
  }

  // Calls at the beginning of an answer may have white space before them, and reasoning too.
  Tag TextNotBeginning(std::vector<std::string> texts) const {
    for (const char c : kMarkSpace) texts.push_back(std::string(1, c));
    if (!syntax_.reasoning.open.empty()) texts.push_back(syntax_.reasoning.open);
    Tag begins = Tag::array();
    for (const std::string& text : texts) {
      if (!is_special_(text)) begins.push_back(text);
    }
    return {{"type", "any_text"}, {"not_begins", std::move(begins)}};
  }

  // What a section begins with that stands anywhere, or only at the beginning.
  std::vector<std::string> Triggers(bool anywhere) const {
    std::vector<std::string> triggers;
    for (const CallSection& section : format_->sections) {
      if (section.anywhere != anywhere) continue;
      absl::string_view rest;
      const std::string text =
          absl::StrCat(section.open, format_->call_open, format_->list ? "[" : "");
      std::string first(FirstChunk(text, &rest));
      for (const std::string& special : format_->specials) {
        if (absl::StartsWith(first, special)) first = special;
      }
      if (first.empty() && format_->kind == CallKind::kJson) first = "{";
      if (!first.empty()) triggers.push_back(std::move(first));
    }
    // A mark that may begin a section also when it is expected only at the beginning.
    if (!anywhere && !triggers.empty()) {
      for (std::string& text : Triggers(true)) triggers.push_back(std::move(text));
    }
    return triggers;
  }

  // A text of the format: its special tokens, and what is between them.
  void AppendTexts(absl::string_view text, std::vector<Tag>* elements) const {
    while (!text.empty()) {
      size_t first = absl::string_view::npos;
      absl::string_view token;
      for (const std::string& special : format_->specials) {
        const size_t at = text.find(special);
        if (at >= first || !is_special_(special)) continue;
        first = at;
        token = special;
      }
      AppendConst(text.substr(0, first), elements);
      if (token.empty()) return;
      elements->push_back(TokenTag(token));
      text.remove_prefix(first + token.size());
    }
  }

  void AppendConst(absl::string_view text, std::vector<Tag>* elements) const {
    if (text.empty()) return;
    if (!elements->empty() && IsConst(elements->back())) {
      const std::string before = elements->back()["value"];
      elements->back() = Const(absl::StrCat(before, text));
    } else {
      elements->push_back(Const(text));
    }
  }

  // The same with white space that may be left out, if the format says so.
  void AppendLoose(absl::string_view text, std::vector<Tag>* elements) const {
    if (!format_->loose) return AppendTexts(text, elements);
    while (!text.empty()) {
      const size_t space = std::min(text.find_first_not_of(kMarkSpace), text.size());
      if (space > 0) elements->push_back(Optional(Const(text.substr(0, space))));
      absl::string_view rest;
      AppendTexts(FirstChunk(text, &rest), elements);
      text = rest;
    }
  }

  Tag Texts(absl::string_view text) const {
    std::vector<Tag> elements;
    AppendLoose(text, &elements);
    return Sequence(std::move(elements));
  }

  // One call, from call_open to call_close.
  std::vector<Tag> Call(size_t index) const {
    const Tool& tool = syntax_.tools[index];
    const Tag& schema = schemas_[index];
    std::vector<Tag> elements;
    AppendLoose(format_->call_open, &elements);
    switch (format_->kind) {
      case CallKind::kJson:
        AppendConst(
            absl::StrCat("{\"name\": ", NameAsJson(tool.name), ", \"", format_->key, "\": "),
            &elements);
        elements.push_back(Schema("json_schema", schema));
        AppendConst("}", &elements);
        break;
      case CallKind::kNamedJson:
        AppendConst(tool.name, &elements);
        if (format_->ids == CallIds::kNamed) {  // a note with the index of the call
          AppendConst(format_->name_note, &elements);
          elements.push_back(Regex("[0-9]{1,4}"));
        }
        AppendTexts(format_->name_end, &elements);
        elements.push_back(Schema("json_schema", schema));
        break;
      case CallKind::kPythonic:
        AppendConst(absl::StrCat(tool.name, "("), &elements);
        elements.push_back(Schema("python_arguments", schema));
        AppendConst(")", &elements);
        break;
      case CallKind::kXml:
        AppendConst(tool.name, &elements);
        AppendLoose(format_->name_end, &elements);
        AppendXmlArguments(tool, schema, &elements);
        break;
    }
    AppendLoose(format_->call_close, &elements);
    return elements;
  }

  // Each argument of the schema once, in its order. Strings are any text without the mark that ends
  // them, or one of those listed.
  void AppendXmlArguments(const Tool& tool, const Tag& schema, std::vector<Tag>* elements) const {
    absl::string_view rest;
    if (!schema.is_object() || !schema.contains("properties") ||
        !schema["properties"].is_object()) {
      elements->push_back(TextWithout({std::string(FirstChunk(format_->call_close, &rest))}));
      return;
    }
    const auto values = TextValues(tool);
    const std::string close(FirstChunk(format_->argument_close, &rest));
    for (const auto& [key, property] : schema["properties"].items()) {
      std::vector<Tag> argument;
      AppendTexts(absl::StrCat(format_->argument_open, key), &argument);
      AppendLoose(format_->key_end, &argument);
      argument.push_back(values.at(key) == TextValue::kString
                             ? StringOf(property, close)
                             : Schema("json_schema", WithDefinitions(property, schema)));
      AppendLoose(format_->argument_close, &argument);
      const Tag required = schema.value("required", Tag::array());
      const bool demanded =
          required.is_array() && std::find(required.begin(), required.end(), key) != required.end();
      Tag whole = Sequence(std::move(argument));
      elements->push_back(demanded ? std::move(whole) : Optional(std::move(whole)));
    }
  }

  Tag StringOf(const Tag& schema, const std::string& close) const {
    const Tag listed = schema.value("enum", Tag::array());
    std::vector<Tag> choices;
    for (const Tag& value : listed) {
      if (value.is_string()) choices.push_back(Const(value.get<std::string>()));
    }
    return choices.empty() ? TextWithout({close}) : Or(std::move(choices));
  }

  // A part of a schema, with what it may refer to.
  static Tag WithDefinitions(Tag part, const Tag& schema) {
    for (const char* key : {"$defs", "definitions"}) {
      if (part.is_object() && schema.contains(key) && !part.contains(key)) part[key] = schema[key];
    }
    return part;
  }

  // A const or a token as a begin or end of a tag.
  static Tag Edge(const Tag& tag) { return IsConst(tag) ? tag["value"] : tag; }

  static bool IsEdge(const Tag& tag) { return IsConst(tag) || tag["type"] == "token"; }

  // All calls of a section, without its open and close.
  Tag CallList() const {
    std::vector<Tag> calls;
    for (size_t i = 0; i < syntax_.tools.size(); ++i) {
      std::vector<Tag> call = Call(i);
      Tag begin = "", end = "";
      if (IsEdge(call.front())) {
        begin = Edge(call.front());
        call.erase(call.begin());
      }
      if (call.empty()) call.push_back(Const(""));
      if (call.size() > 1 && IsEdge(call.back())) {
        end = Edge(call.back());
        call.pop_back();
      }
      calls.push_back({{"type", "tag"},
                       {"begin", std::move(begin)},
                       {"content", Sequence(std::move(call))},
                       {"end", std::move(end)}});
    }
    return {{"type", "tags_with_separator"},
            {"tags", std::move(calls)},
            {"separator", format_->between},
            {"at_least_one", true},
            {"stop_after_first", !syntax_.parallel}};
  }

  // A section of calls. opened: with the texts that begin sections.
  Tag Calls(bool opened) const {
    std::vector<Tag> opens, closes;
    bool empty = false;
    for (const CallSection& section : format_->sections) {
      if (section.open.empty())
        empty = true;
      else
        opens.push_back(Texts(section.open));
    }
    std::vector<Tag> elements;
    const std::string close = FirstAnywhere().close;
    // A section that may begin without a mark also ends without one.
    if (opened && !opens.empty() && empty && close.empty()) {
      if (format_->content_mark.empty()) elements.push_back(Optional(Or(std::move(opens))));
    } else if (opened && !opens.empty() && !empty) {
      elements.push_back(Or(std::move(opens)));
    }
    if (format_->list) AppendConst("[", &elements);
    elements.push_back(CallList());
    if (format_->list) AppendConst("]", &elements);
    if (!empty && !close.empty()) AppendLoose(close, &elements);
    return Sequence(std::move(elements));
  }

  const MessageSyntax& syntax_;
  const ToolFormat* format_;
  IsSpecial is_special_;
  std::vector<Tag> schemas_;  // [tools]
};

std::string Written(std::vector<Tag> elements) {
  return Tag{{"format", Sequence(std::move(elements))}}.dump(-1, ' ', false,
                                                             Tag::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::string> AnswerStructure(const MessageSyntax& syntax, IsSpecial is_special) {
  if (syntax.tool_format == nullptr || syntax.tools.empty())
    return absl::InvalidArgumentError("there is no tool to call, or no format to call it in");
  TagWriter writer(syntax, is_special);
  std::vector<Tag> elements;
  writer.AppendReasoning(&elements);
  const absl::Status status = writer.AppendAnswer(&elements);
  if (!status.ok()) return status;
  return Written(std::move(elements));
}

absl::StatusOr<std::string> BehindReasoning(const MessageSyntax& syntax,
                                            absl::string_view format_json, IsSpecial is_special) {
  Tag format = Tag::parse(format_json, nullptr, false);
  if (!format.is_object()) return absl::InvalidArgumentError("the format is not a JSON object");
  std::vector<Tag> elements;
  TagWriter(syntax, is_special).AppendReasoning(&elements);
  elements.push_back(std::move(format));
  return Written(std::move(elements));
}

}  // namespace coppice::coordinator
