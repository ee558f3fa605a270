#include "coordinator/api/format_fields.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/api/answer_format.h"
#include "coordinator/api/ordered_text.h"
#include "grammar/compile.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr char kAnyObject[] = R"({"type":"object"})";
constexpr size_t kMaxShownReason = 300;
constexpr size_t kMostComparedBytes = 64 << 10;

enum class Form { kRegex, kGrammar, kChoice, kSchema, kTag };
struct FormatField {
  const char* name;
  Form form;
};
constexpr FormatField kStructuredOutputs[] = {{"regex", Form::kRegex},
                                              {"choice", Form::kChoice},
                                              {"grammar", Form::kGrammar},
                                              {"json", Form::kSchema},
                                              {"structural_tag", Form::kTag}};
constexpr FormatField kOtherNames[] = {{"guided_regex", Form::kRegex},
                                       {"guided_choice", Form::kChoice},
                                       {"guided_grammar", Form::kGrammar},
                                       {"guided_json", Form::kSchema},
                                       {"regex", Form::kRegex},
                                       {"ebnf", Form::kGrammar},
                                       {"grammar", Form::kGrammar},
                                       {"json_schema", Form::kSchema}};

constexpr FormatField kSchema = {"schema", Form::kSchema};

// A text as a literal of a grammar.
std::string Literal(absl::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&literal, "\\", absl::string_view(&c, 1));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&literal, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      literal += c;
    }
  }
  return literal + "\"";
}

class FormatReader {
 public:
  FormatReader(const std::string& body, const ApiLimits& limits, GenerateRequest* request)
      : body_(body), limits_(limits), request_(*request) {}

  void Read(JsonFields* fields) {
    ReadObject("response_format", &FormatReader::ReadResponseFormat, fields);
    ReadObject("structured_outputs", &FormatReader::ReadStructuredOutputs, fields);
    for (const FormatField& field : kOtherNames) ReadField(field, fields);
  }

 private:
  // Calls read with the fields of the object `name`, if it is there.
  void ReadObject(const char* name, void (FormatReader::*read)(JsonFields*), JsonFields* outer) {
    const json* value = outer->Object(name);
    if (value == nullptr) return;
    JsonFields inner(*value, outer->Path(name), outer->ignored());
    (this->*read)(&inner);
    inner.IgnoreUnknown();
    if (inner.error()) outer->set_error(*inner.error());
  }

  void ReadResponseFormat(JsonFields* fields) {
    const std::optional<std::string> type = fields->String({"type"});
    if (!type) return fields->Fail("missing_field", "type", "is required");
    if (*type == "json_schema") {
      if (fields->Find({"json_schema"}) == nullptr)
        return fields->Fail("missing_field", "json_schema", "is required");
      return ReadObject("json_schema", &FormatReader::ReadNamedSchema, fields);
    }
    if (*type == "structural_tag") return ReadStructuralTag(fields);
    if (*type != "text" && *type != "json_object") {
      return fields->Fail("invalid_value", "type",
                          "must be text, json_object, json_schema or structural_tag");
    }
    if (fields->Find({"json_schema"}) != nullptr)
      return fields->Fail(kUnsupportedCombination, "json_schema", "needs type json_schema");
    if (*type != "json_object") return;
    const json* schema = fields->FindValue({kSchema.name});
    if (schema != nullptr) return ReadField(kSchema, fields);
    Ask("type", FormatSpec::Kind::kJsonSchema, kAnyObject, fields);
  }

  // {"type": "structural_tag", "format": ...}, or the older {"structures": [...], "triggers": [...]}.
  void ReadStructuralTag(JsonFields* fields) {
    const json* format = fields->Find({"format"});
    const json* structures = fields->Find({"structures"});
    const json* triggers = fields->Find({"triggers"});
    if (format != nullptr) {
      const std::string text = OrderedText(body_, absl::StrSplit(fields->Path("format"), '.'));
      return Ask("format", FormatSpec::Kind::kStructuralTag,
                 absl::StrCat("{\"format\":", text, "}"), fields);
    }
    if (structures == nullptr || triggers == nullptr)
      return fields->Fail("missing_field", "format", "is required");
    if (!structures->is_array() || !AllOf(*structures, &json::is_object) ||
        !FitsInOrder(*structures))
      return fields->Fail("invalid_type", "structures", "must be a list of objects");
    nlohmann::ordered_json tag, tags;
    for (const auto& structure : nlohmann::ordered_json::parse(
             OrderedText(body_, absl::StrSplit(fields->Path("structures"), '.')))) {
      nlohmann::ordered_json made;
      made["begin"] = structure.value("begin", nlohmann::ordered_json());
      made["content"]["type"] = "json_schema";
      made["content"]["json_schema"] = structure.value("schema", nlohmann::ordered_json::object());
      made["end"] = structure.value("end", nlohmann::ordered_json());
      tags.push_back(std::move(made));
    }
    tag["format"]["type"] = "triggered_tags";
    tag["format"]["triggers"] = *triggers;
    tag["format"]["tags"] = std::move(tags);
    Ask("structures", FormatSpec::Kind::kStructuralTag, tag.dump(), fields);
  }

  // The schema is enforced whether it is strict or not.
  void ReadNamedSchema(JsonFields* fields) {
    fields->String({"name"});
    fields->String({"description"});
    fields->Bool({"strict"});
    if (!IsGiven(kSchema, fields)) return fields->Fail("missing_field", "schema", "is required");
    ReadField(kSchema, fields);
  }

  void ReadStructuredOutputs(JsonFields* fields) {
    const std::string before = request_.format_field;
    for (const FormatField& field : kStructuredOutputs) ReadField(field, fields);
    if (fields->Bool({"json_object"}).value_or(false))
      Ask("json_object", FormatSpec::Kind::kJsonSchema, kAnyObject, fields);
    for (const char* name : {"disable_any_whitespace", "disable_additional_properties",
                             "whitespace_pattern", "structural_tag"})
      fields->Neutral(name, json::array());
    for (const char* name : {"disable_fallback", "backend", "_backend"})
      fields->Hint(name, json::array());
    if (request_.format_field == before && !fields->error()) {
      fields->set_error(
          {400, "missing_field",
           "structured_outputs must have one of regex, choice, grammar, json and json_object: true",
           "structured_outputs"});
    }
  }

  // The schema {} is given: it means any JSON value.
  static bool IsGiven(const FormatField& field, JsonFields* fields) {
    const json* value = fields->FindGiven({field.name});
    if (value == nullptr || *value == false) return false;
    return !IsEmptyValue(*value) || (field.form == Form::kSchema && value->is_object());
  }

  void ReadField(const FormatField& field, JsonFields* fields) {
    if (!IsGiven(field, fields)) return;
    switch (field.form) {
      case Form::kRegex:
      case Form::kGrammar:
        if (const std::optional<std::string> text = fields->String({field.name})) {
          Ask(field.name,
              field.form == Form::kRegex ? FormatSpec::Kind::kRegex : FormatSpec::Kind::kGrammar,
              *text, fields);
        }
        return;
      case Form::kChoice:
        return ReadChoice(field.name, *fields->Find({field.name}), fields);
      case Form::kSchema:
        return ReadSchema(field.name, *fields->FindGiven({field.name}), fields);
      case Form::kTag:
        if (const auto text = fields->String({field.name}))
          Ask(field.name, FormatSpec::Kind::kStructuralTag, *text, fields);
        return;
    }
  }

  void ReadChoice(const char* name, const json& choice, JsonFields* fields) {
    if (!choice.is_array() || !AllOf(choice, &json::is_string))
      return fields->Fail("invalid_type", name, "must be a list of strings");
    if (choice.empty()) return fields->Fail("invalid_value", name, "is empty");
    std::string rule = "root ::=";
    for (const json& text : choice) {
      const std::string& bytes = text.get_ref<const std::string&>();
      if (bytes.empty()) return fields->Fail("invalid_value", name, "has an empty string");
      absl::StrAppend(&rule, rule.back() == '=' ? " " : " | ", Literal(bytes));
    }
    Ask(name, FormatSpec::Kind::kGrammar, std::move(rule), fields);
  }

  void ReadSchema(const char* name, const json& schema, JsonFields* fields) {
    std::string text;
    if (schema.is_object()) {
      text = OrderedText(body_, absl::StrSplit(fields->Path(name), '.'));
    } else if (schema.is_string()) {
      text = schema.get<std::string>();
      json read;
      if (ParseJsonObject(text, limits_.max_json_depth, &read)) {
        return fields->Fail("invalid_value", name,
                            absl::StrCat("is not the text of a JSON object of at most ",
                                         limits_.max_json_depth, " levels"));
      }
    } else {
      return fields->Fail("invalid_type", name,
                          "must be a JSON schema: an object, or the text of one");
    }
    Ask(name, FormatSpec::Kind::kJsonSchema, std::move(text), fields);
  }

  static bool IsSame(const FormatSpec& one, const FormatSpec& other) {
    if (one.kind != other.kind) return false;
    if (one.text == other.text) return true;
    if (one.kind != FormatSpec::Kind::kJsonSchema) return false;
    // Reading objects in order takes the square of their members.
    if (std::max(one.text.size(), other.text.size()) > kMostComparedBytes) return false;
    using Ordered = nlohmann::ordered_json;  // the order of properties is that of the answer
    const auto schema = [](const std::string& text) {
      return Ordered::parse(text, nullptr, /*allow_exceptions=*/false);
    };
    return schema(one.text) == schema(other.text);
  }

  // The field asks for a format. All fields of a request that do must ask for the same.
  void Ask(const char* name, FormatSpec::Kind kind, std::string text, JsonFields* fields) {
    if (text.empty()) return fields->Fail("invalid_value", name, "is empty");
    std::string& asked = request_.format_field;
    if (!asked.empty()) {
      if (IsSame(request_.params.format_spec, {kind, text})) return;
      return fields->Fail("conflicting_fields", name,
                          absl::StrCat("and ", asked, " both ask for a format"));
    }
    asked = fields->Path(name);
    request_.params.format_spec = {kind, std::move(text)};
  }

  const std::string& body_;
  const ApiLimits& limits_;
  GenerateRequest& request_;
};

// An id of the request that ends a text and has text itself. That text would follow the format, and
// the format could not use it either.
std::optional<TokenId> EndWithText(const tokenizer::Tokenizer& tokenizer,
                                   const GenerateRequest& request) {
  for (const TokenId id : request.own_stop_ids) {
    if (!tokenizer.TokenBytes(id, /*skip_special=*/true).empty()) return id;
  }
  return std::nullopt;
}

}  // namespace

void ReadFormatFields(const std::string& body, const ApiLimits& limits, JsonFields* fields,
                      GenerateRequest* request) {
  FormatReader(body, limits, request).Read(fields);
}

void CheckFormatFields(const ApiContext& context, JsonFields* fields,
                       const GenerateRequest& request) {
  if (request.format_field.empty()) return;
  if (const std::optional<TokenId> id = EndWithText(*context.tokenizer, request)) {
    return fields->Fail(kUnsupportedCombination, request.format_field,
                        absl::StrCat("cannot be combined with stop_token_ids ", *id,
                                     ": only special tokens may end a text that has a format"));
  }
  const auto name = [&](const std::vector<std::string>& annotations) {
    for (const std::string& place : annotations) {
      fields->IgnoreField(PlaceInRequest(request, place), "unknown_field",
                          "is a keyword or format without effect");
    }
  };
  const FormatSpec& spec = request.params.format_spec;
  if (spec.kind == FormatSpec::Kind::kCatalogue) return;  // it was read
  if (context.known_formats != nullptr) {
    if (const auto annotations = context.known_formats->Find(spec)) return name(*annotations);
  }
  std::vector<std::string> annotations;
  const auto format = grammar::CompileFormat(spec, context.own_bytes, &annotations);
  if (format.ok()) {
    name(annotations);
    if (context.known_formats != nullptr) context.known_formats->Add(spec, std::move(annotations));
    return;
  }
  if (request.syntax != nullptr)
    return fields->set_error(BoundFormatError(context, request, format.status().message()));
  fields->Fail("invalid_value", request.format_field,
               absl::StrCat("is refused: ", format.status().message().substr(0, kMaxShownReason)));
}

void CheckFormatCopies(const ApiLimits& limits, JsonFields* fields,
                       const GenerateRequest& request) {
  const size_t copies =
      request.params.format_spec.text.size() * static_cast<size_t>(request.sequences());
  if (request.format_field.empty() || copies <= limits.max_format_copies) return;
  fields->Fail("invalid_value", request.format_field,
               absl::StrCat("has ", request.params.format_spec.text.size(), " bytes for each of ",
                            request.sequences(), " sequences, at most ", limits.max_format_copies,
                            " in all are sent"));
}

// A name may be written with escapes, as \u0072.
bool MayHaveFormat(const std::string& body) {
  for (const char* part :
       {"response_format", "structured_outputs", "\"guided_", "\"regex\"", "\"ebnf\"",
        "\"grammar\"", "\"json_schema\"", "\"json_object\"", "\"tools\"", "\\u00"}) {
    if (absl::StrContains(body, part)) return true;
  }
  return false;
}

bool ServesFormats(const ApiContext& context) {
  for (int byte = ' '; byte <= '~'; ++byte) {
    if (!context.own_bytes[byte]) return false;
  }
  return true;
}

}  // namespace coppice::coordinator
