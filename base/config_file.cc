#include "base/config_file.h"

// Only this file reads TOML, so the parser is compiled here and needs no library at run time.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace coppice {
namespace {

constexpr int kMaxDepth = 2;  // a section and one table in it

template <typename T>
void Place(const toml::source_region& source, T* at) {
  at->line = static_cast<int>(source.begin.line);
  at->column = static_cast<int>(source.begin.column);
}

void ReadValue(const toml::node& node, ConfigField* field) {
  if (const auto* text = node.as_string()) {
    field->kind = ConfigField::kText;
    field->value = text->get();
  } else if (const auto* integer = node.as_integer()) {
    field->kind = ConfigField::kInteger;
    field->value = absl::StrCat(integer->get());
  } else if (const auto* number = node.as_floating_point()) {
    field->kind = ConfigField::kNumber;
    field->value = absl::StrFormat("%.17g", number->get());
  } else if (const auto* flag = node.as_boolean()) {
    field->kind = ConfigField::kBool;
    field->value = flag->get() ? "true" : "false";
  }
}

void AddTable(const toml::table& table, const std::string& section, const std::string& prefix,
              int depth, std::vector<ConfigField>* fields, std::vector<ConfigError>* errors) {
  for (const auto& [key, node] : table) {
    ConfigField field;
    Place(key.source(), &field);
    field.path = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      if (depth == kMaxDepth) {
        errors->push_back(
            {field.line, field.column, absl::StrCat(field.path, ": tables are nested too deep")});
        continue;
      }
      const std::string own = depth == 0 ? field.path : section;
      AddTable(*inner, own, absl::StrCat(field.path, "."), depth + 1, fields, errors);
      if (depth > 0) continue;
      field.kind = ConfigField::kSection;
      field.section = own;
    } else {
      ReadValue(node, &field);
      field.section = section;
      field.name = std::string(key.str());
    }
    fields->push_back(std::move(field));
  }
}

// A field of a section may be given once, with or without the table that groups it.
void TakeDoubles(std::vector<ConfigField>* fields, std::vector<ConfigError>* errors) {
  std::map<std::string, int> seen;  // section and name -> line
  std::vector<ConfigField> once;
  for (ConfigField& field : *fields) {
    if (field.kind != ConfigField::kSection) {
      const auto [first, is_new] = seen.emplace(field.section + "." + field.name, field.line);
      if (!is_new) {
        errors->push_back(
            {field.line, field.column,
             absl::StrCat(field.path, ": it is given twice, first in line ", first->second)});
        continue;
      }
    }
    once.push_back(std::move(field));
  }
  *fields = std::move(once);
}

// The line of a section in the old syntax, protobuf's text format: `worker { ... }`. 0: there is
// none.
int LineOfOldSyntax(absl::string_view text) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripLeadingAsciiWhitespace(line);
    for (const char* section : {"coordinator", "worker", "draft"}) {
      if (!absl::StartsWith(line, section)) continue;
      absl::string_view rest = line.substr(absl::string_view(section).size());
      rest = absl::StripLeadingAsciiWhitespace(rest);
      if (absl::StartsWith(rest, ":")) rest = absl::StripLeadingAsciiWhitespace(rest.substr(1));
      if (absl::StartsWith(rest, "{")) return number;
    }
  }
  return 0;
}

}  // namespace

std::vector<ConfigField> ParseConfig(absl::string_view text, std::vector<ConfigError>* errors) {
  const toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    ConfigError error;
    Place(parsed.error().source(), &error);
    error.what = std::string(parsed.error().description());
    if (const int line = LineOfOldSyntax(text); line > 0) {
      error = {line, 1,
               "a configuration file is in TOML now: [worker] and name = value, where it "
               "had worker { name: value }"};
    }
    errors->push_back(std::move(error));
    return {};
  }
  std::vector<ConfigField> fields;
  AddTable(parsed.table(), "", "", 0, &fields, errors);
  std::stable_sort(fields.begin(), fields.end(), [](const ConfigField& a, const ConfigField& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  TakeDoubles(&fields, errors);
  return fields;
}

}  // namespace coppice
