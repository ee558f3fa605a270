#include "loadgen/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace coppice::loadgen {
namespace {

// Neither trace has a comma within a field.
std::vector<std::string> Fields(std::string line) {
  std::vector<std::string> fields = absl::StrSplit(line, ',');
  for (std::string& field : fields) {
    absl::StripAsciiWhitespace(&field);
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"')
      field = field.substr(1, field.size() - 2);
  }
  return fields;
}

std::optional<double> DateSeconds(const std::string& text) {
  absl::Time time;
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M:%E*S%Ez"}) {
    if (absl::ParseTime(format, text, &time, nullptr))
      return absl::ToDoubleSeconds(time - absl::UnixEpoch());
  }
  return std::nullopt;
}

std::optional<double> PlainSeconds(const std::string& text) {
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds)) return std::nullopt;
  return seconds;
}

struct Columns {
  const char *time, *input, *output;
  std::function<std::optional<double>(const std::string&)> seconds;
};

absl::StatusOr<Trace> ReadTrace(const std::string& path, const Columns& columns) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string line;
  std::getline(file, line);
  if (absl::StartsWith(line, "\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
  const std::vector<std::string> names = Fields(line);
  const auto column = [&](const char* name) {
    return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  const size_t time_at = column(columns.time), input_at = column(columns.input),
               output_at = column(columns.output);
  const size_t last = std::max({time_at, input_at, output_at});
  const auto bad = [&](int number, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": ", why));
  };
  if (last == names.size()) {
    return bad(1, absl::StrCat("expected the columns ", columns.time, ", ", columns.input, ", ",
                               columns.output));
  }
  Trace trace;
  for (int number = 2; std::getline(file, line); ++number) {
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const std::vector<std::string> fields = Fields(line);
    if (fields.size() <= last) return bad(number, "too few columns");
    const std::optional<double> seconds = columns.seconds(fields[time_at]);
    Prompt prompt;
    if (!seconds) return bad(number, absl::StrCat("bad time '", fields[time_at], "'"));
    if (!absl::SimpleAtoi(fields[input_at], &prompt.input_len) || prompt.input_len < 0 ||
        !absl::SimpleAtoi(fields[output_at], &prompt.output_tokens) || prompt.output_tokens < 0) {
      return bad(number, "expected numbers of tokens");
    }
    prompt.at_s = *seconds;
    trace.prompts.push_back(std::move(prompt));
  }
  if (trace.prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": no rows"));
  const auto earlier = [](const Prompt& a, const Prompt& b) { return a.at_s < b.at_s; };
  std::stable_sort(trace.prompts.begin(), trace.prompts.end(), earlier);
  const double first_s = trace.prompts.front().at_s;
  for (Prompt& prompt : trace.prompts) prompt.at_s -= first_s;
  return trace;
}

}  // namespace

absl::StatusOr<Trace> ReadAzureTrace(const std::string& path) {
  return ReadTrace(path, {"TIMESTAMP", "ContextTokens", "GeneratedTokens", DateSeconds});
}

absl::StatusOr<Trace> ReadBurstGptTrace(const std::string& path) {
  return ReadTrace(path, {"Timestamp", "Request tokens", "Response tokens", PlainSeconds});
}

Trace CutTrace(Trace trace, double start_s, double window_s, double speed, int max_model_len) {
  Trace cut;
  for (Prompt& prompt : trace.prompts) {
    const double at_s = prompt.at_s - start_s;
    if (at_s < 0 || (window_s > 0 && at_s >= window_s)) continue;
    if (prompt.input_len == 0 || prompt.output_tokens == 0) {
      ++cut.empty_rows;
    } else if (max_model_len > 0 && prompt.input_len + prompt.output_tokens > max_model_len) {
      ++cut.too_long_rows;
    } else {
      prompt.at_s = at_s / speed;
      cut.prompts.push_back(std::move(prompt));
    }
  }
  return cut;
}

}  // namespace coppice::loadgen
