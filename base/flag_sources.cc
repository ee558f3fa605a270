#include "base/flag_sources.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/config_file.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice {
namespace {

constexpr const char* kSections[] = {"coordinator", "worker", "draft"};
constexpr char kGroup[] = "limits";  // the block that a section may have

struct Source {
  std::string place;   // how an error calls the flag
  std::string origin;  // for --print_config
};

// As the flags themselves, one table for the process.
std::map<std::string, Source, std::less<>>& Sources() {
  static auto* const sources = new std::map<std::string, Source, std::less<>>();
  return *sources;
}

bool IsText(const absl::CommandLineFlag& flag) { return flag.IsOfType<std::string>(); }

std::string Suggestion(absl::string_view name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?");
}

// A word stands for a text in lower case: CPU for "cpu", LLAMA_2 for "llama-2".
std::string WordAsText(const std::string& word) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(word), {{"_", "-"}});
}

// "" or what is wrong with the field.
std::string SetField(const ConfigField& field, const std::string& where) {
  absl::CommandLineFlag* flag = absl::FindCommandLineFlag(field.name);
  if (flag == nullptr) return "there is no such flag";
  std::string value = field.value, error;
  if (IsText(*flag)) {
    if (!field.quoted && !absl::ascii_isalpha(value.empty() ? '"' : value[0]))
      return "expected a text in quotes";
    if (!field.quoted) value = WordAsText(value);
  } else if (field.quoted) {
    return "expected a number or true or false, without quotes";
  }
  if (!flag->ParseFrom(value, &error))
    return absl::StrCat("bad value '", value, "'", error.empty() ? "" : ": ", error);
  Sources()[field.name] = {absl::StrCat(where, ": ", field.path), where};
  return "";
}

std::string Fault(const ConfigField& field, const std::string& where, const std::string& section,
                  const std::vector<std::string>& names) {
  if (field.section.empty())
    return absl::StrCat(field.path, " is in no section (coordinator, worker or draft)");
  const std::vector<std::string> sections(std::begin(kSections), std::end(kSections));
  if (std::find(sections.begin(), sections.end(), field.section) == sections.end()) {
    return absl::StrCat(field.section, ": unknown section", Suggestion(field.section, sections));
  }
  if (field.section != section) return "";
  const std::string plain = absl::StrCat(section, ".", field.name);
  if (field.path != plain && field.path != absl::StrCat(section, ".", kGroup, ".", field.name))
    return absl::StrCat(field.path, ": a section has no other block than ", kGroup);
  if (std::find(names.begin(), names.end(), field.name) == names.end())
    return absl::StrCat(field.path, ": unknown field", Suggestion(field.name, names));
  const std::string fault = SetField(field, where);
  return fault.empty() ? "" : absl::StrCat(field.path, ": ", fault);
}

std::string VariableOf(absl::string_view flag) {
  return absl::StrCat("COPPICE_", absl::AsciiStrToUpper(flag));
}

}  // namespace

absl::Status SetFlagsFromFile(const std::string& path, const std::string& section,
                              const std::vector<std::string>& names) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMostSettingsBytes));
  std::vector<ConfigError> errors;
  for (const ConfigField& field : ParseConfig(text, &errors)) {
    const std::string where = absl::StrCat(path, ":", field.line, ":", field.column);
    std::string fault = Fault(field, where, section, names);
    if (!fault.empty()) errors.push_back({field.line, field.column, std::move(fault)});
  }
  std::stable_sort(errors.begin(), errors.end(), [](const ConfigError& a, const ConfigError& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  std::string all;
  for (const ConfigError& error : errors) {
    absl::StrAppend(&all, all.empty() ? "" : "\n", path, ":", error.line, ":", error.column, ": ",
                    error.what);
  }
  return all.empty() ? absl::OkStatus() : absl::InvalidArgumentError(all);
}

absl::Status SetFlagsFromEnvironment(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    const std::string variable = VariableOf(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) continue;
    std::string error;
    if (absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) {
      Sources()[name] = {variable, variable};
    } else {
      absl::StrAppend(&all, all.empty() ? "" : "\n", variable, ": bad value '", value, "'",
                      error.empty() ? "" : ": ", error);
    }
  }
  return all.empty() ? absl::OkStatus() : absl::InvalidArgumentError(all);
}

void NoteCommandLine(absl::string_view name) {
  Sources()[std::string(name)] = {absl::StrCat("--", name), "command line"};
}

std::string FlagPlace(absl::string_view name) {
  const auto found = Sources().find(name);
  return found == Sources().end() ? absl::StrCat("--", name) : found->second.place;
}

std::string PrintedConfig(const std::string& section, const std::vector<std::string>& names) {
  std::string out = absl::StrCat(section, " {\n");
  for (const std::string& name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->CurrentValue();
    const auto found = Sources().find(name);
    absl::StrAppend(&out, "  ", name, ": ",
                    IsText(*flag) ? absl::StrCat("\"", absl::CEscape(value), "\"") : value, "  # ",
                    found == Sources().end() ? "default" : found->second.origin, "\n");
  }
  return out + "}\n";
}

}  // namespace coppice
