#include "grammar/python_arguments.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/json_schema.h"

namespace coppice::grammar {
namespace {

bool IsPythonName(const std::string& text) {
  const auto part = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  return !text.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), part);
}

bool IsRequired(const DocumentPlace& schema, const std::string& key) {
  if (!Has(schema, "required") || !At(schema, "required").value->is_array()) return false;
  const OrderedJson& list = *At(schema, "required").value;
  return std::find(list.begin(), list.end(), OrderedJson(key)) != list.end();
}

// The schema of a member as a document of its own, with the definitions that it may refer to.
OrderedJson Alone(const DocumentPlace& schema, const OrderedJson& member) {
  if (!member.is_object() || !HasReference(member)) return member;
  OrderedJson alone = member;
  for (const char* name : kDefinitions) {
    if (Has(schema, name) && !alone.contains(name)) alone[name] = *At(schema, name).value;
  }
  return alone;
}

}  // namespace

absl::StatusOr<Part> AddPythonArguments(const DocumentPlace& schema, JsonRules* rules,
                                        std::vector<std::string>* annotations) {
  struct Argument {
    Part text;
    bool required;
  };
  std::vector<Argument> arguments;
  if (schema.value->is_object() && Has(schema, "properties")) {
    const DocumentPlace properties = At(schema, "properties");
    if (!properties.value->is_object())
      return SchemaError(properties.pointer, "it must be an object of schemas");
    const absl::Status copies = CheckDefinitionCopies(*schema.value);
    if (!copies.ok()) return SchemaError(schema.pointer, copies.message());
    for (const auto& item : properties.value->items()) {
      const DocumentPlace member = At(properties, item.key());
      const bool required = IsRequired(schema, item.key());
      if (!IsPythonName(item.key())) {
        if (!required) continue;
        return SchemaError(member.pointer, "its key is no name in Python, and it is required");
      }
      COPPICE_ASSIGN_OR_RETURN(Part value, AddJsonSchema(Alone(schema, *member.value),
                                                         member.pointer, rules, annotations));
      arguments.push_back(
          {Sequence({Literal(absl::StrCat(item.key(), "=")), std::move(value)}), required});
    }
  }
  // Rules in a chain: the arguments from i on, if some stand before them, and if none do.
  const Part comma = Literal(", ");
  Part after = Sequence({}), begin = Sequence({});
  for (auto argument = arguments.rbegin(); argument != arguments.rend(); ++argument) {
    Part with_comma = Sequence({comma, argument->text, after});
    Part first = Sequence({argument->text, after});
    if (!argument->required) {
      with_comma = Choice({std::move(with_comma), after});
      first = Choice({std::move(first), begin});
    }
    const int after_rule = rules->Add("arguments after others"),
              begin_rule = rules->Add("arguments");
    rules->Set(after_rule, std::move(with_comma));
    rules->Set(begin_rule, std::move(first));
    after = Rule(after_rule);
    begin = Rule(begin_rule);
  }
  return begin;
}

}  // namespace coppice::grammar
