#include "loadgen/arguments.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace coppice::loadgen {
namespace {

bool IsFlag(const std::string& argument) { return absl::StartsWith(argument, "--"); }

bool MayRepeat(const std::string& name) {
  return name == "base_url" || name == "header" || name == "metadata" || name == "goodput";
}
bool TakesWords(const std::string& name) { return name == "metadata" || name == "goodput"; }

struct FlagText {
  std::string name;
  std::optional<std::string> value;  // text after the =
};

FlagText Split(const std::string& argument) {
  const size_t equals = argument.find('=');
  FlagText flag;
  flag.name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
  std::replace(flag.name.begin(), flag.name.end(), '-', '_');
  if (equals != std::string::npos) flag.value = argument.substr(equals + 1);
  return flag;
}

}  // namespace

std::vector<std::string> NormalizeFlags(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  std::map<std::string, std::string> gathered;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!IsFlag(arguments[i])) {
      result.push_back(arguments[i]);
      continue;
    }
    const FlagText flag = Split(arguments[i]);
    if (!MayRepeat(flag.name)) {
      result.push_back("--" + flag.name + (flag.value ? "=" + *flag.value : ""));
      continue;
    }
    std::vector<std::string> values;
    if (flag.value) values.push_back(*flag.value);
    while (i + 1 < arguments.size() && !IsFlag(arguments[i + 1]) &&
           (values.empty() || TakesWords(flag.name))) {
      values.push_back(arguments[++i]);
    }
    if (values.empty()) result.push_back("--" + flag.name);  // refused: it needs a value
    std::string& text = gathered[flag.name];
    for (const std::string& value : values) absl::StrAppend(&text, text.empty() ? "" : "\n", value);
  }
  for (const auto& [name, text] : gathered) result.push_back("--" + name + "=" + text);
  return result;
}

std::string CommandLineText(const std::vector<std::string>& arguments) {
  std::string text = "coppice-loadgen";
  bool header_follows = false;
  for (const std::string& argument : arguments) {
    std::string word = argument;
    const bool is_header = IsFlag(word) && Split(word).name == "header";
    if (is_header || (header_follows && !IsFlag(word))) {
      const size_t start = is_header ? word.find('=') : 0;
      const size_t equals = start == std::string::npos ? start : word.find('=', start + is_header);
      if (equals != std::string::npos) word = word.substr(0, equals + 1) + "...";
    }
    header_follows = is_header && word.find('=') == std::string::npos;
    absl::StrAppend(&text, " ", word);
  }
  return text;
}

}  // namespace coppice::loadgen
