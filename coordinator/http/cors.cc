#include "coordinator/http/cors.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/http/request_target.h"

namespace coppice::coordinator {
namespace {

// "*" does not stand for Authorization.
constexpr char kRequestHeaders[] =
    "Authorization, Content-Type, X-Request-Id, X-Request-Timeout, *";
constexpr char kAnswerHeaders[] =
    "X-Request-Id, X-Coppice-Ignored, Retry-After, X-Should-Retry, WWW-Authenticate";
constexpr char kMethods[] = "GET, HEAD, POST, DELETE, OPTIONS";
constexpr char kPreflight_s[] = "7200";  // browsers keep what a preflight says no longer

}  // namespace

std::string CorsPolicy::Fault(absl::string_view origin) {
  if (origin == "*") return "";
  const size_t scheme = origin.find("://");
  const bool good = scheme != absl::string_view::npos && scheme > 0 && origin.size() > scheme + 3 &&
                    GoodHost(origin.substr(scheme + 3)) &&
                    absl::c_none_of(origin, [](char c) { return absl::ascii_isupper(c); });
  return good ? ""
              : absl::StrCat("expected *, or scheme://host[:port] in small letters, got '", origin,
                             "'");
}

CorsPolicy::CorsPolicy(std::vector<std::string> origins)
    : origins_(std::move(origins)), all_(absl::c_linear_search(origins_, "*")) {}

HttpHeaders CorsPolicy::HeadersFor(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  HttpHeaders headers;
  if (!all_) headers.emplace_back("Vary", "Origin");
  if (!all_ && !absl::c_linear_search(origins_, request.origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : request.origin);
  if (request.method == "OPTIONS") {
    headers.emplace_back("Access-Control-Allow-Methods", kMethods);
    headers.emplace_back("Access-Control-Allow-Headers", kRequestHeaders);
    headers.emplace_back("Access-Control-Max-Age", kPreflight_s);
  } else {
    headers.emplace_back("Access-Control-Expose-Headers", kAnswerHeaders);
  }
  return headers;
}

}  // namespace coppice::coordinator
