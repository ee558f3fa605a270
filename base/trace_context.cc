#include "base/trace_context.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace coppice {
namespace {

constexpr size_t kTraceDigits = 32, kSpanDigits = 16, kMostEntries = 32, kMostBytes = 256;
constexpr size_t kMostTenantBytes = 241, kMostSystemBytes = 14;

bool IsLowerHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

bool IsId(absl::string_view text) {
  return IsLowerHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

// The key of an entry of tracestate, or a part of one.
bool IsKey(absl::string_view key, size_t most, bool may_begin_with_digit) {
  if (key.empty() || key.size() > most) return false;
  if (!absl::ascii_islower(key[0]) && !(may_begin_with_digit && absl::ascii_isdigit(key[0])))
    return false;
  return std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_' || c == '-' || c == '*' ||
           c == '/';
  });
}

bool IsEntryKey(absl::string_view key) {
  const size_t at = key.find('@');
  if (at == absl::string_view::npos) return IsKey(key, kMostBytes, /*may_begin_with_digit=*/false);
  return IsKey(key.substr(0, at), kMostTenantBytes, /*may_begin_with_digit=*/true) &&
         IsKey(key.substr(at + 1), kMostSystemBytes, /*may_begin_with_digit=*/false);
}

// Its end is no space: white space around an entry has been cut off.
bool IsEntryValue(absl::string_view value) {
  return !value.empty() && value.size() <= kMostBytes &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= 0x20 && c <= 0x7e && c != ',' && c != '='; });
}

std::string RandomId(size_t digits, absl::FunctionRef<uint64_t()> random) {
  std::string id;
  while (id.size() < digits) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad16));
  return IsId(id) ? id : RandomId(digits, random);
}

}  // namespace

std::optional<TraceContext> ParseTraceParent(absl::string_view text) {
  constexpr size_t kSize = 3 + kTraceDigits + 1 + kSpanDigits + 1 + 2;
  if (text.size() < kSize || text[2] != '-') return std::nullopt;
  const absl::string_view version = text.substr(0, 2);
  if (!IsLowerHex(version) || version == "ff") return std::nullopt;
  if (version == "00" ? text.size() > kSize : text.size() > kSize && text[kSize] != '-')
    return std::nullopt;
  const absl::string_view trace = text.substr(3, kTraceDigits);
  const absl::string_view span = text.substr(4 + kTraceDigits, kSpanDigits);
  const absl::string_view flags = text.substr(kSize - 2, 2);
  if (text[3 + kTraceDigits] != '-' || text[kSize - 3] != '-') return std::nullopt;
  if (!IsId(trace) || !IsId(span) || !IsLowerHex(flags)) return std::nullopt;
  return TraceContext{std::string(trace), std::string(span), std::string(flags), ""};
}

std::string TraceParentText(const TraceContext& trace) {
  return absl::StrCat("00-", trace.trace_id, "-", trace.parent_id, "-", trace.flags);
}

std::string ParseTraceState(const std::vector<std::string>& headers) {
  std::vector<absl::string_view> entries;
  std::set<absl::string_view> keys;
  for (const std::string& header : headers) {
    for (absl::string_view entry : absl::StrSplit(header, ',')) {
      entry = absl::StripAsciiWhitespace(entry);
      if (entry.empty()) continue;
      const size_t equals = entry.find('=');
      if (equals == absl::string_view::npos || entries.size() == kMostEntries) return "";
      const absl::string_view key = entry.substr(0, equals);
      if (!IsEntryKey(key) || !IsEntryValue(entry.substr(equals + 1)) || !keys.insert(key).second)
        return "";
      entries.push_back(entry);
    }
  }
  return absl::StrJoin(entries, ",");
}

TraceContext StartSpan(const std::vector<std::string>& traceparents,
                       const std::vector<std::string>& tracestates,
                       absl::FunctionRef<uint64_t()> random) {
  std::optional<TraceContext> given;
  if (traceparents.size() == 1) given = ParseTraceParent(traceparents[0]);
  TraceContext trace;
  trace.trace_id = given ? given->trace_id : RandomId(kTraceDigits, random);
  trace.parent_id = RandomId(kSpanDigits, random);
  trace.flags = given ? given->flags : "00";
  if (given) trace.state = ParseTraceState(tracestates);
  return trace;
}

}  // namespace coppice
