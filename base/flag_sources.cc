#include "base/flag_sources.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/config_file.h"
#include "base/nearest_name.h"
#include "base/regular_file.h"
#include "base/status.h"

namespace coppice {
namespace {

constexpr const char* kSections[] = {"coordinator", "worker", "draft"};
constexpr char kGroup[] = "limits";  // the table that a section may have
constexpr int kMaxFlagFiles = 8;     // depth of flag files that name each other

// "", or why the kind of value is wrong.
std::string KindFault(const ConfigField& field, const FlagValue& value) {
  const std::string type = FlagTypeName(value);
  if (type == "text") return field.kind == ConfigField::kText ? "" : "expected a text in quotes";
  if (type == "list")
    return field.kind == ConfigField::kText ? "" : "expected a list as a text, \"a,b\"";
  const bool is_integer = field.kind == ConfigField::kInteger;
  const bool fits = type == "integer"  ? is_integer
                    : type == "number" ? is_integer || field.kind == ConfigField::kNumber
                                       : field.kind == ConfigField::kBool;
  if (fits) return "";
  const char* article = type == "integer" ? "an " : type == "number" ? "a " : "";
  return absl::StrCat("expected ", article, type, ", without quotes");
}

// "", or why the field is wrong.
std::string SetField(const ConfigField& field, const std::string& where, Flags* flags) {
  const FlagRow* row = flags->Find(field.name);
  std::string fault = KindFault(field, row->value);
  if (fault.empty()) {
    fault = flags->Set(*row, field.value, absl::StrCat(where, ": ", field.path), where);
  }
  return fault.empty() ? "" : absl::StrCat(field.path, ": ", fault);
}

std::string UnknownField(const std::string& name, const std::vector<std::string>& known,
                         const Flags& flags) {
  const std::string renamed = flags.NewName(name);
  if (!renamed.empty()) return absl::StrCat("the name is ", renamed, " now");
  return absl::StrCat("unknown field", DidYouMean(name, known));
}

std::string FieldFault(const ConfigField& field, const std::string& where, Flags* flags) {
  const std::vector<std::string> sections(std::begin(kSections), std::end(kSections));
  if (field.section.empty()) {
    if (std::find(sections.begin(), sections.end(), field.path) != sections.end())
      return absl::StrCat(field.path, ": expected one table [", field.path, "]");
    return absl::StrCat(field.path, " is in no table (", OrList(sections), ")");
  }
  const std::string& section = flags->table().section;
  if (field.kind == ConfigField::kSection) {
    if (std::find(sections.begin(), sections.end(), field.section) != sections.end()) return "";
    return absl::StrCat(field.section, ": unknown table", DidYouMean(field.section, sections));
  }
  if (field.section != section) return "";
  const std::string plain = absl::StrCat(section, ".", field.name);
  if (field.path != plain && field.path != absl::StrCat(section, ".", kGroup, ".", field.name))
    return absl::StrCat(field.path, ": a program has no other table than ", kGroup);
  const std::vector<std::string> names = flags->ConfigurableNames();
  if (std::find(names.begin(), names.end(), field.name) == names.end()) {
    return absl::StrCat(field.path, ": ", UnknownField(field.name, names, *flags));
  }
  return SetField(field, where, flags);
}

std::string VariableOf(absl::string_view flag) {
  return absl::StrCat("COPPICE_", absl::AsciiStrToUpper(flag));
}

absl::Status Refused(absl::string_view flag, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", what));
}

absl::Status UnknownFlag(const std::string& name, const Flags& flags) {
  const std::string renamed = flags.NewName(name);
  if (!renamed.empty()) return Refused(name, absl::StrCat("the name is --", renamed, " now"));
  if (name == "config") {
    return Refused(name, absl::StrCat(flags.table().program, " reads no configuration file"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name, flags.Suggestion(name, "--")));
}

void SetFromArguments(const std::vector<std::string>& arguments, int depth, Flags* flags,
                      FlagFaults* faults);

void SetFromFlagFile(const std::string& path, int depth, Flags* flags, FlagFaults* faults) {
  if (depth == kMaxFlagFiles) return faults->Add(Refused("flagfile", "files name each other"));
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMostSettingsBytes);
  if (!text.ok()) return faults->Add(text.status());
  std::vector<std::string> arguments;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty() && line[0] != '#') arguments.emplace_back(line);
  }
  SetFromArguments(arguments, depth + 1, flags, faults);
}

struct Argument {
  std::string name;
  std::optional<std::string> value;  // text after the =
};

Argument Split(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument.substr(2), std::nullopt};
  return {argument.substr(2, equals - 2), argument.substr(equals + 1)};
}

// The row of the flag. For --noNAME of a true or false flag: the row of that flag, with the value
// false.
const FlagRow* FindRow(const Flags& flags, Argument* argument) {
  const FlagRow* row = flags.Find(argument->name);
  if (row != nullptr || argument->value || !absl::StartsWith(argument->name, "no")) return row;
  row = flags.Find(argument->name.substr(2));
  if (row == nullptr || !std::holds_alternative<bool*>(row->value)) return nullptr;
  *argument = {row->name, "false"};
  return row;
}

// Sets one flag of the program.
absl::Status SetFlag(const FlagRow& row, const std::string& value, Flags* flags) {
  const std::string place = absl::StrCat("--", row.name);
  const std::string fault = flags->Set(row, value, place, "command line");
  return fault.empty() ? absl::OkStatus() : Refused(row.name, fault);
}

// Continues after a fault, so that all faults are reported.
void SetFromArguments(const std::vector<std::string>& arguments, int depth, Flags* flags,
                      FlagFaults* faults) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!absl::StartsWith(arguments[i], "--") || arguments[i].size() == 2) {
      faults->Add(
          absl::InvalidArgumentError(absl::StrCat("unexpected argument '", arguments[i], "'")));
      continue;
    }
    Argument argument = Split(arguments[i]);
    if (flags->table().dashes) std::replace(argument.name.begin(), argument.name.end(), '-', '_');
    if (argument.name == "help" || argument.name == "version") continue;
    const bool is_file = argument.name == "flagfile";
    const FlagRow* row = is_file ? nullptr : FindRow(*flags, &argument);
    if (row == nullptr && !is_file) {
      faults->Add(UnknownFlag(argument.name, *flags));
      continue;
    }
    if (depth > 0 && argument.name == "config") {
      faults->Add(Refused("config", "cannot be in a file of --flagfile"));
      continue;
    }
    if (!argument.value && row != nullptr && std::holds_alternative<bool*>(row->value))
      argument.value = "true";
    if (!argument.value && i + 1 == arguments.size()) {
      faults->Add(Refused(argument.name, "expected a value"));
      continue;
    }
    if (!argument.value) argument.value = arguments[++i];
    if (is_file) {
      SetFromFlagFile(*argument.value, depth, flags, faults);
    } else {
      faults->Add(SetFlag(*row, *argument.value, flags));
    }
  }
}

// The value that the arguments give to --config, else the environment.
std::string ConfigFile(const std::vector<std::string>& arguments) {
  const char* variable = std::getenv("COPPICE_CONFIG");
  std::string file = variable == nullptr ? "" : variable;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (absl::StartsWith(arguments[i], "--config=")) file = arguments[i].substr(9);
    if (arguments[i] == "--config" && i + 1 < arguments.size()) file = arguments[i + 1];
  }
  return file;
}

}  // namespace

absl::Status SetFlagsFromFile(const std::string& path, Flags* flags) {
  COPPICE_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMostSettingsBytes));
  std::vector<ConfigError> errors;
  for (const ConfigField& field : ParseConfig(text, &errors)) {
    const std::string where = absl::StrCat(path, ":", field.line, ":", field.column);
    std::string fault = FieldFault(field, where, flags);
    if (!fault.empty()) errors.push_back({field.line, field.column, std::move(fault)});
  }
  std::stable_sort(errors.begin(), errors.end(), [](const ConfigError& a, const ConfigError& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  FlagFaults faults(flags);
  for (const ConfigError& error : errors) {
    faults.Add(absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.line, ":", error.column, ": ", error.what)));
  }
  return faults.status();
}

absl::Status SetFlagsFromEnvironment(Flags* flags) {
  FlagFaults faults(flags);
  for (const std::string& name : flags->ConfigurableNames()) {
    const std::string variable = VariableOf(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) continue;
    const std::string fault = flags->Set(*flags->Find(name), value, variable, variable);
    if (!fault.empty()) faults.Add(absl::InvalidArgumentError(absl::StrCat(variable, ": ", fault)));
  }
  for (const RenamedFlag& renamed : flags->table().renamed) {
    const std::string variable = VariableOf(renamed.old_name);
    if (std::getenv(variable.c_str()) == nullptr) continue;
    faults.Add(absl::InvalidArgumentError(
        absl::StrCat(variable, ": the name is ", VariableOf(renamed.name), " now")));
  }
  return faults.status();
}

absl::Status SetFlagsFromCommandLine(const std::vector<std::string>& arguments, Flags* flags) {
  FlagFaults faults(flags);
  SetFromArguments(arguments, 0, flags, &faults);
  return faults.status();
}

absl::Status SetFlags(const std::vector<std::string>& arguments, Flags* flags) {
  if (flags->table().section.empty()) return SetFlagsFromCommandLine(arguments, flags);
  FlagFaults faults(flags);
  const std::string file = ConfigFile(arguments);
  if (!file.empty()) faults.Add(SetFlagsFromFile(file, flags));
  faults.Add(SetFlagsFromEnvironment(flags));
  faults.Add(SetFlagsFromCommandLine(arguments, flags));
  return faults.status();
}

}  // namespace coppice
