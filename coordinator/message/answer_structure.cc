#include "coordinator/message/answer_structure.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/message/text_arguments.h"
#include "coordinator/message/tool_format.h"
#include "grammar/json_document.h"

namespace coppice::coordinator {
namespace {

using Part = nlohmann::ordered_json;  // a format of a structural tag
using IsSpecial = absl::FunctionRef<bool(absl::string_view)>;

constexpr char kBlanks[] = "[ \\t\\r\\n]";
constexpr const char* kBlankTexts[] = {" ", "\t", "\r", "\n"};
constexpr int kMostLength = 1 << 20;  // of a string
constexpr char kAnyArguments[] = R"({"type":"object"})";

Part Fixed(absl::string_view text) {
  return {{"type", "const_string"}, {"value", std::string(text)}};
}
Part Token(absl::string_view text) { return {{"type", "token"}, {"token", std::string(text)}}; }
Part Sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {{"type", "sequence"}, {"elements", std::move(parts)}};
}
Part Or(std::vector<Part> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {{"type", "or"}, {"elements", std::move(parts)}};
}
Part Around(const char* type, Part content) {  // optional, star
  return {{"type", type}, {"content", std::move(content)}};
}
Part Regex(absl::string_view pattern) {
  return {{"type", "regex"}, {"pattern", std::string(pattern)}};
}
Part AnyText(const std::vector<Part>& excludes, const std::vector<Part>& not_begins = {}) {
  Part part;
  part["type"] = "any_text";
  if (!excludes.empty()) part["excludes"] = excludes;
  if (!not_begins.empty()) part["not_begins"] = not_begins;
  return part;
}

// calls: their JSON is written as chat templates write it, so that equal calls are equal texts.
std::string Whole(Part part, bool calls) {
  Part tag;
  if (calls) tag["whitespace"] = "single";
  tag["format"] = std::move(part);
  return tag.dump(-1, ' ', false, Part::error_handler_t::replace);
}

absl::StatusOr<Part> Schema(const Tool& tool) {
  auto schema = Part::parse(tool.parameters.empty() ? kAnyArguments : tool.parameters, nullptr,
                            /*allow_exceptions=*/false);
  if (schema.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schema of the arguments of ", tool.name, " is no JSON"));
  }
  return schema;
}

// What may stand before an answer, if the model reasons.
class Reasoning {
 public:
  Reasoning(const MessageSyntax& syntax, IsSpecial is_special)
      : marks_(syntax.reasoning), begun_(syntax.reasoning_begun) {
    if (marks_.open.empty()) return;
    open_ = is_special(marks_.open) ? Token(marks_.open) : Fixed(marks_.open);
    close_ = is_special(marks_.close) ? Token(marks_.close) : Fixed(marks_.close);
  }

  // The answer after the reasoning. may_end: the reasoning may also be all.
  Part Before(Part answer, bool may_end) const {
    if (marks_.open.empty()) return answer;
    const Part inside = AnyText({Part(marks_.close)});
    std::vector<Part> begun = {inside, close_, Regex(absl::StrCat(kBlanks, "{0,4}")), answer};
    std::vector<Part> ways;
    if (begun_) {
      ways.push_back(Sequence(std::move(begun)));
      if (may_end) ways.push_back(inside);
      return Or(std::move(ways));
    }
    // The answer stands in it once, since it may be large.
    const Part open = Sequence({Regex(absl::StrCat(kBlanks, "*")), open_});
    begun.pop_back();
    begun.insert(begun.begin(), open);
    ways.push_back(Sequence({Around("optional", Sequence(std::move(begun))), std::move(answer)}));
    if (may_end) ways.push_back(Sequence({open, inside}));
    return Or(std::move(ways));
  }

  // What an answer without reasoning does not begin with.
  std::vector<Part> Beginnings() const {
    if (marks_.open.empty() || begun_) return {};
    if (open_["type"] == "token") return {Part(marks_.open), open_};
    return {Part(marks_.open)};
  }

 private:
  const ReasoningMarks& marks_;
  const bool begun_;
  Part open_, close_;
};

class CallStructure {
 public:
  CallStructure(const MessageSyntax& syntax, IsSpecial is_special)
      : syntax_(syntax), format_(*syntax.tool_format), is_special_(is_special) {}

  absl::StatusOr<Part> Demanded() {
    COPPICE_RETURN_IF_ERROR(MakeCalls());
    std::vector<Part> ways;
    for (const CallSection& section : Sections()) ways.push_back(Calls(section));
    return Or(std::move(ways));
  }

  // not_begins: beginnings that the text does not have either.
  absl::StatusOr<Part> Possible(std::vector<Part> not_begins) {
    COPPICE_RETURN_IF_ERROR(MakeCalls());
    const Part blanks = Regex(absl::StrCat(kBlanks, "*"));
    std::vector<Part> triggers, later, ways;
    for (const CallSection& section : format_.sections) {
      if (section.anywhere) triggers.emplace_back(Trigger(section));
    }
    for (const CallSection& section : Sections()) {
      if (section.anywhere) {
        later.push_back(Calls(section));
      } else {
        for (std::string& start : Starts()) not_begins.emplace_back(std::move(start));
        ways.push_back(Sequence({blanks, Calls(section)}));
      }
    }
    const Part rest = AnyText(triggers);
    if (!format_.content_mark.empty()) {
      for (const Part& trigger : triggers)
        later.push_back(Sequence({Fixed(trigger.get<std::string>() + format_.content_mark), rest}));
    }
    for (const char* blank : kBlankTexts) not_begins.emplace_back(blank);
    Part text = Sequence({blanks, AnyText(triggers, not_begins)});
    if (!later.empty()) {
      const char* times = format_.content_mark.empty() ? "optional" : "star";
      text = Sequence({std::move(text), Around(times, Or(std::move(later)))});
    }
    ways.push_back(std::move(text));
    return Or(std::move(ways));
  }

 private:
  // A text in which special tokens are written as such. It is exactly that of the template, so that
  // equal calls are equal texts.
  Part Marks(absl::string_view text) const {
    std::vector<Part> parts;
    size_t plain = 0;
    for (size_t at = 0; at < text.size();) {
      const std::string* special = SpecialAt(text.substr(at));
      if (special == nullptr) {
        ++at;
        continue;
      }
      if (at > plain) parts.push_back(Fixed(text.substr(plain, at - plain)));
      parts.push_back(Token(*special));
      at += special->size();
      plain = at;
    }
    if (plain < text.size()) parts.push_back(Fixed(text.substr(plain)));
    return parts.empty() ? Fixed("") : Sequence(std::move(parts));
  }

  const std::string* SpecialAt(absl::string_view text) const {
    const std::string* longest = nullptr;
    for (const std::string& special : format_.specials) {
      if (absl::StartsWith(text, special) && is_special_(special) &&
          (longest == nullptr || special.size() > longest->size()))
        longest = &special;
    }
    return longest;
  }

  // Those that begin with a special token of the tokenizer or with the call itself, if there are
  // any.
  std::vector<CallSection> Sections() const {
    std::vector<CallSection> known;
    for (const CallSection& section : format_.sections) {
      const bool plain = !absl::c_any_of(format_.specials, [&section](const std::string& special) {
        return absl::StrContains(section.open, special);
      });
      if (plain || SpecialAt(section.open) != nullptr) known.push_back(section);
    }
    return known.empty() ? format_.sections : known;
  }

  // A call of any tool.
  absl::Status MakeCalls() {
    std::vector<Part> calls;
    for (const Tool& tool : syntax_.tools) {
      COPPICE_ASSIGN_OR_RETURN(Part schema, Schema(tool));
      COPPICE_ASSIGN_OR_RETURN(Part call, Call(tool, std::move(schema)));
      calls.push_back(std::move(call));
    }
    if (calls.empty()) return absl::InvalidArgumentError("there is no tool to call");
    call_ = Or(std::move(calls));
    return absl::OkStatus();
  }

  absl::StatusOr<Part> Call(const Tool& tool, Part schema) const {
    std::vector<Part> parts;
    const Part value = {{"type", "json_schema"}, {"json_schema", schema}};
    switch (format_.kind) {
      case CallKind::kJson:
        parts = {Fixed(absl::StrCat("{\"name\": \"", tool.name, "\", \"", format_.key, "\": ")),
                 value, Fixed("}")};
        break;
      case CallKind::kNamedJson:
        parts = {Fixed(tool.name)};
        if (format_.ids == CallIds::kNamed)  // it counts the calls
          parts.push_back(Sequence({Fixed(format_.name_note), Regex("[0-9]{1,4}")}));
        parts.push_back(Marks(format_.name_end));
        parts.push_back(value);
        break;
      case CallKind::kPythonic:
        parts = {Fixed(absl::StrCat(tool.name, "(")),
                 {{"type", "python_arguments"}, {"json_schema", schema}},
                 Fixed(")")};
        break;
      case CallKind::kXml:
        parts = {Fixed(tool.name), Marks(format_.name_end)};
        COPPICE_ASSIGN_OR_RETURN(std::vector<Part> arguments,
                                 XmlArguments(tool, schema, TextValues(tool)));
        for (Part& argument : arguments) parts.push_back(std::move(argument));
        break;
    }
    parts.insert(parts.begin(), Marks(format_.call_open));
    parts.push_back(Marks(format_.call_close));
    return Sequence(std::move(parts));
  }

  // In the order of "properties".
  absl::StatusOr<std::vector<Part>> XmlArguments(
      const Tool& tool, const Part& schema,
      absl::flat_hash_map<std::string, TextValue> values) const {
    std::vector<Part> arguments;
    if (!schema.is_object() || !schema.contains("properties")) return arguments;
    if (!schema["properties"].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("the schema of the arguments of ", tool.name,
                                                     ": properties must be an object"));
    }
    const absl::Status copies = grammar::CheckDefinitionCopies(schema);
    if (!copies.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the schema of the arguments of ", tool.name, ": ", copies.message()));
    }
    const Part required = schema.value("required", Part::array());
    for (const auto& property : schema["properties"].items()) {
      Part argument =
          Sequence({Marks(format_.argument_open), Fixed(property.key()), Marks(format_.key_end),
                    XmlValue(schema, property.value(), values[property.key()]),
                    Marks(format_.argument_close)});
      const bool must = absl::c_linear_search(required, Part(property.key()));
      arguments.push_back(must ? std::move(argument) : Around("optional", std::move(argument)));
    }
    return arguments;
  }

  // Strings are written without quotes, up to the end of the argument; other values as JSON.
  Part XmlValue(const Part& schema, const Part& property, TextValue value) const {
    if (value == TextValue::kString) return XmlString(property, /*unlike_json=*/false);
    Part json = property;  // with what it may refer to
    const bool refers = json.is_object() && grammar::HasReference(json);
    for (const char* name : grammar::kDefinitions) {
      if (refers && schema.contains(name) && !json.contains(name)) json[name] = schema[name];
    }
    const bool mixed = value == TextValue::kMixed;
    if (mixed) {
      Part types = Part::array();
      for (const Part& type : property["type"]) {
        if (type == "null" || type == "object" || type == "array") types.push_back(type);
      }
      if (types.empty()) return XmlString(property, /*unlike_json=*/true);
      json["type"] = std::move(types);
      for (const char* keyword : {"minLength", "maxLength", "pattern", "format"})
        json.erase(keyword);
    }
    Part part = {{"type", "json_schema"}, {"json_schema", std::move(json)}};
    if (!mixed) return part;
    return Or({XmlString(property, /*unlike_json=*/true), std::move(part)});
  }

  // nullopt: it is no length.
  static std::optional<int> Length(const Part& property, const char* name, int absent) {
    const auto found = property.find(name);
    if (found == property.end()) return absent;
    if (!found->is_number()) return std::nullopt;
    const double length = found->get<double>();
    if (!(length >= 0 && length <= kMostLength) || length != static_cast<int>(length))
      return std::nullopt;
    return static_cast<int>(length);
  }

  // unlike_json: the text is not read as an object or an array.
  Part XmlString(const Part& property, bool unlike_json) const {
    std::vector<Part> values;
    const Part one = Part::array({property.value("const", Part())});
    for (const Part& value : property.value("enum", one)) {
      if (value.is_string()) values.push_back(Fixed(value.get<std::string>()));
    }
    if (!values.empty()) return Or(std::move(values));
    std::vector<Part> beginnings;
    if (unlike_json) {
      for (const char* text : {"{", "[", " ", "\t", "\r", "\n"}) beginnings.emplace_back(text);
    }
    const std::optional<int> shortest = Length(property, "minLength", 0);
    const std::optional<int> longest = Length(property, "maxLength", -1);
    if (!shortest || !longest)  // refused where the schema is read
      return {{"type", "json_schema"}, {"json_schema", property}};
    const int least = *shortest, most = *longest;
    if (most < 0 && least == 0)
      return AnyText({Part(std::string(absl::StripAsciiWhitespace(format_.argument_close)))},
                     beginnings);
    const auto count = [](int low, int high) {
      return absl::StrCat("{", std::max(low, 0), ",", high < 0 ? "" : absl::StrCat(high), "}");
    };
    if (most == 0) return Fixed("");
    if (!unlike_json) return Regex("[^<]" + count(least, most));
    const Part some =
        Regex("[^<{\\[ \\t\\r\\n][^<]" + count(least - 1, most < 0 ? most : most - 1));
    return least > 0 ? some : Around("optional", some);
  }

  Part Calls(const CallSection& section) const {
    std::vector<Part> parts = {Marks(section.open)};
    if (format_.list) parts.push_back(Fixed("["));
    if (!syntax_.parallel) {
      parts.push_back(call_);
    } else {  // the calls stand in it once, since they may be large
      const Part any = {{"begin", ""}, {"content", call_}, {"end", ""}};
      Part list;
      list["type"] = "tags_with_separator";
      list["tags"].push_back(any);
      list["separator"] = format_.between;  // has no special token
      list["at_least_one"] = true;
      parts.push_back(std::move(list));
    }
    if (format_.list) parts.push_back(Fixed("]"));
    parts.push_back(Marks(section.close));
    return Sequence(std::move(parts));
  }

  // The text that begins a section wherever it stands.
  std::string Trigger(const CallSection& section) const {
    const std::string& mark = section.open.empty() ? format_.call_open : section.open;
    return std::string(absl::StripAsciiWhitespace(mark));
  }

  // The texts that begin a section without a mark.
  std::vector<std::string> Starts() const {
    const char* list = format_.list ? "[" : "";
    if (format_.kind == CallKind::kJson) return {absl::StrCat(list, "{\"name\"")};
    std::vector<std::string> starts;
    for (const Tool& tool : syntax_.tools) {
      starts.push_back(absl::StrCat(list, tool.name,
                                    format_.kind == CallKind::kPythonic ? "(" : format_.name_end));
    }
    return starts;
  }

  const MessageSyntax& syntax_;
  const ToolFormat& format_;
  const IsSpecial is_special_;
  Part call_;
};

}  // namespace

absl::StatusOr<std::string> AnswerStructure(const MessageSyntax& syntax, IsSpecial is_special) {
  if (syntax.tool_format == nullptr)
    return absl::InvalidArgumentError("calls of tools have no format");
  const Reasoning reasoning(syntax, is_special);
  CallStructure calls(syntax, is_special);
  const bool may_end = syntax.choice == ToolChoice::kAuto;
  COPPICE_ASSIGN_OR_RETURN(Part answer,
                           may_end ? calls.Possible(reasoning.Beginnings()) : calls.Demanded());
  return Whole(reasoning.Before(std::move(answer), may_end), /*calls=*/true);
}

absl::StatusOr<std::string> BehindReasoning(const MessageSyntax& syntax,
                                            absl::string_view format_json, IsSpecial is_special) {
  Part format = Part::parse(format_json, nullptr, /*allow_exceptions=*/false);
  if (format.is_discarded()) return absl::InvalidArgumentError("the format is no JSON");
  return Whole(Reasoning(syntax, is_special).Before(std::move(format), /*may_end=*/false),
               /*calls=*/false);
}

}  // namespace coppice::coordinator
