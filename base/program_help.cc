#include "base/program_help.h"

#include <algorithm>
#include <set>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace coppice {
namespace {

constexpr size_t kLineWidth = 100;
constexpr size_t kTextColumn = 28;

const absl::CommandLineFlag& Flag(const std::string& name) {
  const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
  COPPICE_CHECK_MSG(flag != nullptr, absl::StrCat("a group of --help names --", name));
  return *flag;
}

// Lines of at most kLineWidth. Lines that begin with a space are examples and stay as they are.
std::string Wrapped(absl::string_view text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    while (line.size() > kLineWidth && line[0] != ' ') {
      const size_t end = line.rfind(' ', kLineWidth);
      if (end == absl::string_view::npos) break;
      absl::StrAppend(&out, line.substr(0, end), "\n");
      line.remove_prefix(end + 1);
    }
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

// "  --name    text", with the text wrapped in its own column.
std::string Entry(absl::string_view name, absl::string_view text) {
  std::string out = absl::StrCat("  --", name);
  size_t column = out.size() + 2 > kTextColumn ? kLineWidth : out.size();
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column + 1 + word.size() > kLineWidth) {
      out += '\n';
      column = 0;
    }
    const size_t spaces = column < kTextColumn ? kTextColumn - column : 1;
    absl::StrAppend(&out, std::string(spaces, ' '), word);
    column += spaces + word.size();
  }
  return out + "\n";
}

std::string FlagEntry(const absl::CommandLineFlag& flag, bool dashes) {
  const std::string name =
      dashes ? absl::StrReplaceAll(flag.Name(), {{"_", "-"}}) : std::string(flag.Name());
  const std::string value = flag.DefaultValue();
  return Entry(
      name, absl::StrCat(flag.Help(), value.empty() ? "" : " [", value, value.empty() ? "" : "]"));
}

// Flags of this program's own sources that no group names.
std::vector<std::string> Ungrouped(const std::set<std::string>& grouped) {
  std::vector<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "absl/") && !grouped.contains(std::string(name)))
      names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> ConfigurableFlags(const ProgramUsage& usage) {
  std::vector<std::string> names;
  for (const FlagGroup& group : usage.groups)
    names.insert(names.end(), group.flags.begin(), group.flags.end());
  names.insert(names.end(), {"log_level", "log_format"});
  return names;
}

std::string HelpText(const std::string& program, const ProgramUsage& usage) {
  std::vector<FlagGroup> groups = usage.groups;
  groups.push_back({"Every program", {"log_level", "log_format"}});
  const FlagGroup files = {"Configuration file", {"config", "check_config", "print_config"}};
  std::set<std::string> grouped(files.flags.begin(), files.flags.end());
  for (const FlagGroup& group : groups) grouped.insert(group.flags.begin(), group.flags.end());
  if (!usage.section.empty()) groups.push_back(files);

  std::string out = Wrapped(absl::StrCat(program, ": ", usage.text));
  for (const FlagGroup& group : groups) {
    absl::StrAppend(&out, "\n", group.title, ":\n");
    for (const std::string& name : group.flags) out += FlagEntry(Flag(name), usage.dashes);
  }
  out += Entry("flagfile", "file with further flags, one on each line");
  out += Entry("version", "print the version and exit");
  out += Entry("help", "print this text and exit");
  const std::vector<std::string> others = Ungrouped(grouped);
  if (!others.empty()) out += "\nOther flags:\n";
  for (const std::string& name : others) out += FlagEntry(Flag(name), usage.dashes);
  return out;
}

}  // namespace coppice
