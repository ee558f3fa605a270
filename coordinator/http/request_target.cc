#include "coordinator/http/request_target.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace coppice::coordinator {
namespace {

bool IsUnreserved(char c) {
  return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

bool IsOfName(char c) { return IsUnreserved(c) || absl::StrContains("!$&'()*+,;=%", c); }

bool IsOfAddress(char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; }

template <typename Test>
bool AllOf(absl::string_view text, Test test) {
  return std::all_of(text.begin(), text.end(), test);
}

// The code of the escape at the beginning of the text; -1: there is none.
int EscapeAt(absl::string_view text) {
  int code = -1;
  if (text.size() < 3 || text[0] != '%' || !absl::ascii_isxdigit(text[1]) ||
      !absl::ascii_isxdigit(text[2]) || !absl::SimpleHexAtoi(text.substr(1, 2), &code))
    return -1;
  return code;
}

std::string Normalized(absl::string_view path) {
  std::string plain;
  for (size_t i = 0; i < path.size(); ++i) {
    const int code = EscapeAt(path.substr(i));
    if (code >= 0 && IsUnreserved(static_cast<char>(code))) {
      plain += static_cast<char>(code);
      i += 2;
    } else {
      plain += path[i];
    }
  }
  return plain;
}

bool ConsumeScheme(absl::string_view* target) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(*target, scheme)) continue;
    target->remove_prefix(scheme.size());
    return true;
  }
  return false;
}

}  // namespace

std::optional<std::string> TargetQueryValue(absl::string_view target, absl::string_view name) {
  const size_t query = target.find('?');
  if (query == absl::string_view::npos) return std::nullopt;
  for (absl::string_view pair : absl::StrSplit(target.substr(query + 1), '&')) {
    if (absl::ConsumePrefix(&pair, name) && absl::ConsumePrefix(&pair, "="))
      return std::string(pair);
  }
  return std::nullopt;
}

bool GoodHost(absl::string_view host) {
  absl::string_view port;
  if (absl::ConsumePrefix(&host, "[")) {
    const size_t end = host.find(']');
    if (end == absl::string_view::npos || end == 0 || !AllOf(host.substr(0, end), IsOfAddress))
      return false;
    port = host.substr(end + 1);
  } else {
    const size_t end = std::min(host.find(':'), host.size());
    if (!AllOf(host.substr(0, end), IsOfName)) return false;
    port = host.substr(end);
  }
  return port.empty() || (absl::ConsumePrefix(&port, ":") && port.size() <= 5 &&
                          AllOf(port, [](char c) { return absl::ascii_isdigit(c); }));
}

std::optional<std::string> TargetPath(absl::string_view method, absl::string_view target) {
  if (method == "CONNECT") return "";
  const bool options = method == "OPTIONS";
  if (options && target == "*") return "*";
  if (ConsumeScheme(&target)) {
    const absl::string_view host = target.substr(0, target.find_first_of("/?"));
    if (host.empty() || !GoodHost(host)) return std::nullopt;
    target.remove_prefix(host.size());
    if (target.empty()) return options ? "*" : "/";
    if (target[0] == '?') return "/";
  }
  if (!absl::StartsWith(target, "/")) return std::nullopt;
  return Normalized(target.substr(0, target.find('?')));
}

}  // namespace coppice::coordinator
