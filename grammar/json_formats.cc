#include "grammar/json_formats.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace coppice::grammar {
namespace {

constexpr absl::string_view kDate =
    "(?:(?:\\d{3}[1-9]|\\d\\d[1-9]\\d|\\d[1-9]\\d\\d|[1-9]\\d{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|["
    "12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
    "02-(?:0[1-9]|1\\d|2[0-8]))|"
    "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr absl::string_view kTime =
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+\\-](?:[01]\\d|2[0-3]):[0-5]\\d)";
constexpr absl::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
// At most 62 characters before the @. The last label has letters only, as top-level domains.
constexpr absl::string_view kEmail =
    "[A-Za-z0-9_+\\-]{1,20}(?:\\.[A-Za-z0-9_+\\-]{1,20}){0,2}@"
    "(?:[A-Za-z0-9]{1,30}(?:-[A-Za-z0-9]{1,30})?\\.){1,3}[A-Za-z]{2,24}";
constexpr absl::string_view kName = "[A-Za-z]{1,20}(?: [A-Za-z]{1,20}){0,3}";
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
std::string Uri(bool bounded) {
  return absl::StrCat("[A-Za-z][A-Za-z0-9+.\\-]{0,19}://(?:", kHostname, "|", kIpv4,
                      ")(?::(?:[1-9]\\d{0,3}|[1-5]\\d{4}))?(?:/", kUriCharacter,
                      bounded ? "{0,40}){0,8}" : "*)*", "(?:\\?(?:", kUriCharacter, "|[/?])",
                      bounded ? "{0,150}" : "*", ")?(?:#(?:", kUriCharacter, "|[/?])",
                      bounded ? "{0,60}" : "*", ")?");
}

std::string Octet() { return "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"; }

// An address whose bits behind the length of its prefix are 0, with the length; or an address.
std::string MakeIpv4Network() {
  std::string expression(kIpv4);
  for (int length = 0; length <= 32; ++length) {
    std::vector<std::string> octets;
    for (int i = 0; i < 4; ++i) {
      const int bits = std::clamp(length - 8 * i, 0, 8);  // that may be set
      std::vector<std::string> values;
      for (int value = 0; value < 256; value += 256 >> bits) values.push_back(absl::StrCat(value));
      octets.push_back(bits == 8 ? Octet() : absl::StrCat("(?:", absl::StrJoin(values, "|"), ")"));
    }
    absl::StrAppend(&expression, "|", absl::StrJoin(octets, "\\."), "/", length);
  }
  return expression;
}

const std::string& Ipv4Network() {
  static const auto* const expression = new std::string(MakeIpv4Network());
  return *expression;
}

std::string Ipv6() { return absl::StrReplaceAll(kIpv6, {{"H", "[0-9a-fA-F]{1,4}"}}); }

// The usual lengths of a prefix.
std::string Ipv6Network() {
  return absl::StrCat(
      Ipv6(), "(?:/128)?|::/0|",
      absl::StrReplaceAll("H::/16|H:H::/32|H:H:H::/48|H:H:H:H::/64", {{"H", "[0-9a-fA-F]{1,4}"}}));
}

std::string Ipv4Interface() { return absl::StrCat(kIpv4, "(?:/(?:[12]?\\d|3[0-2]))?"); }
std::string Ipv6Interface() { return absl::StrCat(Ipv6(), "(?:/(?:[1-9]?\\d|1[01]\\d|12[0-8]))?"); }

// The formats of addresses that pydantic has. "": another one.
std::string AddressExpression(absl::string_view name) {
  if (name == "ipv4") return std::string(kIpv4);
  if (name == "ipv6") return Ipv6();
  if (name == "ipvanyaddress") return absl::StrCat(kIpv4, "|", Ipv6());
  if (name == "ipv4network") return Ipv4Network();
  if (name == "ipv6network") return Ipv6Network();
  if (name == "ipvanynetwork") return absl::StrCat(Ipv4Network(), "|", Ipv6Network());
  if (name == "ipv4interface") return Ipv4Interface();
  if (name == "ipv6interface") return Ipv6Interface();
  if (name == "ipvanyinterface") return absl::StrCat(Ipv4Interface(), "|", Ipv6Interface());
  return "";
}

}  // namespace

std::string FormatExpression(absl::string_view name, bool bounded) {
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return absl::StrCat(kDate, "T", kTime);
  if (name == "duration") return absl::StrReplaceAll(kDuration, {{"N", "\\d{1,5}"}});
  if (name == "uuid") return std::string(kUuid);
  if (name.size() == 5 && absl::StartsWith(name, "uuid") && name[4] >= '1' && name[4] <= '8')
    return Uuid(name[4]);
  if (name == "email" || name == "idn-email") return std::string(kEmail);
  if (name == "name-email") return absl::StrCat(kEmail, "|", kName, " <", kEmail, ">");
  if (name == "hostname") return std::string(kHostname);
  if (name == "uri") return Uri(bounded);
  std::string base64(kBase64);
  if (bounded) base64 = absl::StrReplaceAll(base64, {{")*", "){0,499}"}});
  if (name == "byte" || name == "base64") return base64;
  if (name == "base64url") return absl::StrReplaceAll(base64, {{"+/", "_\\-"}});
  return AddressExpression(name);
}

bool IsStringFormat(absl::string_view name) { return !FormatExpression(name).empty(); }

}  // namespace coppice::grammar
