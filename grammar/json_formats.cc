#include "grammar/json_formats.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "grammar/regex.h"

namespace coppice::grammar {
namespace {

constexpr absl::string_view kDate =
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
    "02-(?:0[1-9]|1\\d|2[0-8]))|"
    "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr absl::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+\\-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr absl::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
// At most 62 characters before the @, 4 labels of up to 63 after it.
constexpr absl::string_view kEmail =
    "[A-Za-z0-9_+\\-]{1,20}(?:\\.[A-Za-z0-9_+\\-]{1,20}){0,2}@"
    "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"
    "(?:\\.[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?){1,3}";
constexpr absl::string_view kIpv4 =
    "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)(?:\\.(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)){3}";

constexpr absl::string_view kIpv6 =
    "(?:(?:H:){7}H|(?:H:){1,7}:|(?:H:){1,6}:H|(?:H:){1,5}(?::H){1,2}|(?:H:){1,4}(?::H){1,3}|"
    "(?:H:){1,3}(?::H){1,4}|(?:H:){1,2}(?::H){1,5}|H:(?::H){1,6}|:(?:(?::H){1,7}|:))";
// Years to seconds, without gaps between the units; or weeks.
constexpr absl::string_view kDuration =
    "P(?:(?:NY(?:NM(?:ND)?)?|NM(?:ND)?|ND)(?:T(?:NH(?:NM(?:NS)?)?|NM(?:NS)?|NS))?|"
    "T(?:NH(?:NM(?:NS)?)?|NM(?:NS)?|NS)|NW)";
// Labels without "--", so that none is encoded; the last has letters only.
constexpr absl::string_view kHostname =
    "(?:[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,30})?\\.){0,4}[A-Za-z]{2,24}";
constexpr absl::string_view kUriCharacter = "(?:[A-Za-z0-9._~!$&'()*+,;=:@\\-]|%[0-9a-fA-F]{2})";
constexpr absl::string_view kBase64 =
    "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?";

std::string Uuid(char version) {
  return absl::StrCat("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-", absl::string_view(&version, 1),
                      "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}");
}

// scheme://host:port/path?query#fragment, RFC 3986.
std::string Uri() {
  return absl::StrCat("[A-Za-z][A-Za-z0-9+.\\-]{0,19}://(?:", kHostname, "|", kIpv4,
                      ")(?::(?:[1-9]\\d{0,3}|[1-5]\\d{4}))?(?:/", kUriCharacter,
                      "*)*(?:\\?(?:", kUriCharacter, "|[/?])*)?(?:#(?:", kUriCharacter,
                      "|[/?])*)?");
}

// The regular expression of a format. "": it is not known.
std::string ExpressionOf(absl::string_view name) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return absl::StrCat(kDate, "T", kTime);
  if (name == "duration") return absl::StrReplaceAll(kDuration, {{"N", "\\d{1,5}"}});
  if (name == "uuid") return std::string(kUuid);
  if (name.size() == 5 && absl::StartsWith(name, "uuid") && name[4] >= '1' && name[4] <= '8')
    return Uuid(name[4]);
  if (name == "email" || name == "idn-email") return std::string(kEmail);
  if (name == "ipv4") return std::string(kIpv4);
  if (name == "ipv6") return absl::StrReplaceAll(kIpv6, {{"H", "[0-9a-fA-F]{1,4}"}});
  if (name == "hostname") return std::string(kHostname);
  if (name == "uri") return Uri();
  if (name == "byte" || name == "base64") return std::string(kBase64);
  if (name == "base64url") return absl::StrReplaceAll(kBase64, {{"+/", "_\\-"}});
  return "";
}

}  // namespace

bool IsStringFormat(absl::string_view name) { return !ExpressionOf(name).empty(); }

absl::StatusOr<Grammar> StringFormat(absl::string_view name) {
  const std::string expression = ExpressionOf(name);
  if (!expression.empty()) return ReadRegex(expression);
  return absl::InvalidArgumentError(absl::StrCat("the format \"", name, "\" is not known"));
}

}  // namespace coppice::grammar
