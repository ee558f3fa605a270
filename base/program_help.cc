#include "base/program_help.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace coppice {
namespace {

constexpr size_t kHelpWidth = 100;
constexpr size_t kTextColumn = 28;
constexpr size_t kPageWidth = 120;

// Lines of at most kHelpWidth. Lines that begin with a space are examples and stay as they are.
std::string Wrapped(absl::string_view text) {
  std::string out;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    while (line.size() > kHelpWidth && line[0] != ' ') {
      const size_t end = line.rfind(' ', kHelpWidth);
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
  size_t column = out.size() + 2 > kTextColumn ? kHelpWidth : out.size();
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column + 1 + word.size() > kHelpWidth) {
      out += '\n';
      column = 0;
    }
    const size_t spaces = column < kTextColumn ? kTextColumn - column : 1;
    absl::StrAppend(&out, std::string(spaces, ' '), word);
    column += spaces + word.size();
  }
  return out + "\n";
}

std::string Spelled(const std::string& name, const FlagTable& table) {
  return table.dashes ? absl::StrReplaceAll(name, {{"_", "-"}}) : name;
}

std::string FlagEntry(const FlagRow& row, const Flags& flags) {
  std::string text = row.text;
  if (!row.words.empty()) absl::StrAppend(&text, " (", OrList(row.words), ")");
  const std::string& value = flags.DefaultText(row);
  if (!row.own_default.empty()) {
    absl::StrAppend(&text, "; default: ", row.own_default);
  } else if (!value.empty()) {
    absl::StrAppend(&text, " [", value, "]");
  }
  return Entry(Spelled(row.name, flags.table()), text);
}

// One item of a list, in lines of at most kPageWidth.
std::string Item(absl::string_view text) {
  std::string out = "-";
  size_t column = out.size();
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column + 1 + word.size() > kPageWidth) {
      out += "\n ";
      column = 1;
    }
    absl::StrAppend(&out, " ", word);
    column += 1 + word.size();
  }
  return out + "\n";
}

std::string PageEntry(const FlagRow& row, const Flags& flags) {
  const std::string values = FlagValues(row), &value = flags.DefaultText(row);
  std::string text = absl::StrCat("**`--", Spelled(row.name, flags.table()), "`** (");
  absl::StrAppend(&text, row.words.empty() ? FlagTypeName(row.value) : "",
                  row.words.empty() && !values.empty() ? " " : "", values);
  if (row.required) {
    absl::StrAppend(&text, "; required");
  } else if (!row.own_default.empty()) {
    absl::StrAppend(&text, "; default: ", row.own_default);
  } else {
    absl::StrAppend(&text, "; default ", value.empty() ? "none" : absl::StrCat("`", value, "`"));
  }
  absl::StrAppend(&text, "): ", row.text, absl::EndsWith(row.text, ".") ? "" : ".",
                  row.more.empty() ? "" : " ", row.more);
  return Item(text);
}

}  // namespace

std::string HelpText(const Flags& flags) {
  const FlagTable& table = flags.table();
  std::string out = Wrapped(absl::StrCat(table.program, ": ", table.about));
  for (const FlagGroup& group : table.groups) {
    absl::StrAppend(&out, "\n", group.title, ":\n");
    for (const FlagRow& row : group.rows) out += FlagEntry(row, flags);
  }
  out += Entry("flagfile", "file with further flags, one on each line");
  out += Entry("version", "print the version and exit");
  out += Entry("help", "print this text and exit");
  return out;
}

std::string FlagsChapter(const Flags& flags) {
  const FlagTable& table = flags.table();
  std::string out = absl::StrCat("## ", table.program, "\n");
  for (const FlagGroup& group : table.groups) {
    absl::StrAppend(&out, "\n### ", group.title, "\n\n");
    for (const FlagRow& row : group.rows) out += PageEntry(row, flags);
  }
  return out;
}

}  // namespace coppice
