#include "grammar/json_formats.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

}  // namespace

absl::StatusOr<Part> StringFormat(absl::string_view name) {
  if (name == "date") return RegexPart(kDate);
  if (name == "time") return RegexPart(kTime);
  if (name == "date-time") return RegexPart(absl::StrCat(kDate, "T", kTime));
  if (name == "uuid") return RegexPart(kUuid);
  if (name == "email") return RegexPart(kEmail);
  if (name == "ipv4") return RegexPart(kIpv4);
  return absl::InvalidArgumentError(absl::StrCat(
      "the format \"", name, "\" is not served, only date, time, date-time, uuid, email, ipv4"));
}

}  // namespace coppice::grammar
