#include "base/flag_table.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/nearest_name.h"

namespace coppice {
namespace {

constexpr char kFiles[] = "Configuration file";

template <typename T>
struct Plain {
  using type = T;
};
template <typename T>
struct Plain<std::optional<T>> {
  using type = T;
};

// What the pointer points to, without its optional.
template <typename Pointer>
using PlainType = typename Plain<std::remove_pointer_t<Pointer>>::type;

template <typename T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

bool Parse(absl::string_view text, bool* value) { return absl::SimpleAtob(text, value); }
bool Parse(absl::string_view text, double* value) { return absl::SimpleAtod(text, value); }
bool Parse(absl::string_view text, std::string* value) {
  *value = std::string(text);
  return true;
}
bool Parse(absl::string_view text, std::vector<std::string>* value) {
  *value = absl::StrSplit(text, ',', absl::SkipEmpty());
  return true;
}
template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
bool Parse(absl::string_view text, T* value) {
  return absl::StartsWith(text, "0x") ? absl::SimpleHexAtoi(text, value)
                                      : absl::SimpleAtoi(text, value);
}

std::string Text(bool value) { return value ? "true" : "false"; }
// The shortest text that gives the same number; whole ones without an exponent.
std::string Text(double value) {
  constexpr double kMostWhole = 1e15;
  if (std::abs(value) < kMostWhole && value == std::trunc(value))
    return absl::StrCat(static_cast<int64_t>(value));
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double read = 0;
    if (absl::SimpleAtod(text, &read) && read == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}
std::string Text(const std::string& value) { return value; }
std::string Text(const std::vector<std::string>& value) { return absl::StrJoin(value, ","); }
template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
std::string Text(T value) {
  return absl::StrCat(value);
}
template <typename T>
std::string Text(const std::optional<T>& value) {
  return value.has_value() ? Text(*value) : "";
}

std::string ExpectedType(const FlagValue& value) {
  const std::string name = FlagTypeName(value);
  return name == "true or false" ? name : absl::StrCat(name == "integer" ? "an " : "a ", name);
}

// nullopt: no number, or an absent one.
std::optional<double> Number(const FlagValue& value) {
  return std::visit(
      [](auto* pointer) -> std::optional<double> {
        using T = std::remove_pointer_t<decltype(pointer)>;
        if constexpr (kIsNumber<T>) {
          return static_cast<double>(*pointer);
        } else if constexpr (!std::is_same_v<T, PlainType<decltype(pointer)>>) {
          if (!pointer->has_value()) return std::nullopt;
          return static_cast<double>(**pointer);
        }
        return std::nullopt;
      },
      value);
}

bool Within(double number, const FlagRange& range) {  // false for NaN
  return number <= range.high && (range.above ? number > range.low : number >= range.low);
}

std::string RangeText(const FlagRange& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  const std::string least = Text(range.low), most = Text(range.high);
  if (low && high && range.above) return absl::StrCat("more than ", least, " and at most ", most);
  if (low && high) return absl::StrCat("between ", least, " and ", most);
  if (low) return absl::StrCat(range.above ? "more than " : "at least ", least);
  return high ? absl::StrCat("at most ", most) : "";
}

// "", or why the value is wrong.
std::string Fault(const FlagRow& row) {
  const std::string text = FlagText(row.value);
  if (row.required && text.empty()) return "not given";
  if (!row.words.empty() && std::find(row.words.begin(), row.words.end(), text) == row.words.end())
    return absl::StrCat("must be ", OrList(row.words), ", got '", text, "'");
  const std::optional<double> number = Number(row.value);
  if (!number.has_value() || Within(*number, row.range)) return "";
  return absl::StrCat("must be ", RangeText(row.range), ", got ", text);
}

std::string TomlText(const FlagValue& value) {
  const std::string text = FlagText(value);
  const std::string type = FlagTypeName(value);
  if (type != "text" && type != "list") return text;
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&quoted, "\\u%04X", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

void FlagFaults::Add(absl::string_view flag, absl::string_view what) {
  absl::StrAppend(&lines_, lines_.empty() ? "" : "\n", flags_->Place(flag), ": ", what);
}

void FlagFaults::Add(absl::string_view flag, const absl::Status& status) {
  if (status.ok()) return;
  absl::string_view what = status.message();
  absl::ConsumePrefix(&what, absl::StrCat("--", flag, ": "));
  Add(flag, what);
}

void FlagFaults::Add(const absl::Status& status) {
  if (!status.ok()) absl::StrAppend(&lines_, lines_.empty() ? "" : "\n", status.message());
}

absl::Status FlagFaults::status() const {
  return lines_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(lines_);
}

Flags::Flags(FlagTable table) : table_(std::move(table)) {
  table_.groups.push_back({"Every program",
                           {{.name = "log_level",
                             .value = &common_.log_level,
                             .words = {"trace", "debug", "info", "warn", "error", "off"},
                             .text = "the lowest level that is logged"},
                            {.name = "log_format",
                             .value = &common_.log_format,
                             .words = {"text", "json"},
                             .text = "form of a log line"}}});
  if (!table_.section.empty()) {
    table_.groups.push_back(
        {kFiles,
         {{.name = "config",
           .value = &common_.config,
           .text = "configuration file of the cluster, in TOML; the environment (COPPICE_ and a "
                   "flag's name in capitals) and flags override it"},
          {.name = "check_config",
           .value = &common_.check_config,
           .text = "check file, environment and flags, and exit"},
          {.name = "print_config",
           .value = &common_.print_config,
           .text = "print every setting and its source, and exit"}}});
  }
  for (const FlagGroup& group : table_.groups) {
    for (const FlagRow& row : group.rows) {
      const bool is_new = defaults_.emplace(row.name, FlagText(row.value)).second;
      COPPICE_CHECK_MSG(is_new, absl::StrCat("two rows of the table are --", row.name));
    }
  }
}

const FlagRow* Flags::Find(absl::string_view name) const {
  for (const FlagGroup& group : table_.groups) {
    for (const FlagRow& row : group.rows) {
      if (row.name == name) return &row;
    }
  }
  return nullptr;
}

std::string Flags::Suggestion(absl::string_view name, absl::string_view dashes) const {
  std::vector<std::string> known;
  for (const auto& [flag, text] : defaults_) known.push_back(flag);
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : absl::StrCat(", did you mean ", dashes, nearest, "?");
}

std::string Flags::NewName(absl::string_view old_name) const {
  for (const RenamedFlag& renamed : table_.renamed) {
    if (renamed.old_name == old_name) return renamed.name;
  }
  return "";
}

std::string Flags::Set(const FlagRow& row, absl::string_view text, std::string place,
                       std::string origin) {
  const bool read = std::visit(
      [text](auto* pointer) {
        using Value = PlainType<decltype(pointer)>;
        Value value{};
        if constexpr (!std::is_same_v<std::remove_pointer_t<decltype(pointer)>, Value>) {
          if (text.empty()) {  // as if it were not given
            pointer->reset();
            return true;
          }
        }
        if (!Parse(text, &value)) return false;
        *pointer = std::move(value);
        return true;
      },
      row.value);
  if (!read) return absl::StrCat("bad value '", text, "', expected ", ExpectedType(row.value));
  sources_[row.name] = {std::move(place), std::move(origin)};
  return "";
}

absl::Status Flags::CheckRows() const {
  FlagFaults faults(this);
  for (const FlagGroup& group : table_.groups) {
    for (const FlagRow& row : group.rows) {
      const std::string fault = Fault(row);
      if (!fault.empty()) faults.Add(row.name, fault);
    }
  }
  return faults.status();
}

absl::Status Flags::Check() const {
  FlagFaults faults(this);
  faults.Add(CheckRows());
  if (faults.status().ok() && table_.check != nullptr) table_.check(&faults);
  return faults.status();
}

std::string Flags::Place(absl::string_view name) const {
  const auto found = sources_.find(name);
  return found == sources_.end() ? absl::StrCat("--", name) : found->second.place;
}

std::vector<std::string> Flags::ConfigurableNames() const {
  std::vector<std::string> names;
  for (const FlagGroup& group : table_.groups) {
    if (group.title == kFiles) continue;
    for (const FlagRow& row : group.rows) names.push_back(row.name);
  }
  return names;
}

std::string Flags::PrintedConfig() const {
  std::string out = absl::StrCat("[", table_.section, "]\n");
  for (const std::string& name : ConfigurableNames()) {
    const auto found = sources_.find(name);
    const std::string value = TomlText(Find(name)->value);  // "": an optional number that is absent
    absl::StrAppend(&out, value.empty() ? "# " : "", name, " = ", value, "  # ",
                    found == sources_.end() ? "default" : found->second.origin, "\n");
  }
  return out;
}

std::string FlagText(const FlagValue& value) {
  return std::visit([](const auto* pointer) { return Text(*pointer); }, value);
}

std::string FlagTypeName(const FlagValue& value) {
  return std::visit(
      [](auto* pointer) -> std::string {
        using T = PlainType<decltype(pointer)>;
        if constexpr (std::is_same_v<T, bool>) {
          return "true or false";
        } else if constexpr (std::is_integral_v<T>) {
          return "integer";
        } else if constexpr (std::is_same_v<T, double>) {
          return "number";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return "text";
        }
        return "list";
      },
      value);
}

std::string FlagValues(const FlagRow& row) {
  return row.words.empty() ? RangeText(row.range) : OrList(row.words);
}

std::string OrList(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  for (const std::string& word : words) shown.push_back(word.empty() ? "empty" : word);
  if (shown.size() == 1) return shown[0];
  const std::string last = shown.back();
  shown.pop_back();
  return absl::StrCat(absl::StrJoin(shown, ", "), " or ", last);
}

}  // namespace coppice
