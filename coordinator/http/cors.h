// Which web pages of other origins may use the API (--allowed_origins): the headers of the Fetch
// standard (CORS). Used by http_session. Immutable.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

class CorsPolicy {
 public:
  // "" if it may be allowed: "*", or scheme://host[:port] as browsers write it. Else why not.
  static std::string Fault(absl::string_view origin);

  // origins: without a Fault. None: pages of other origins can read no answer.
  explicit CorsPolicy(std::vector<std::string> origins);

  // What every answer to the request gets, errors and streams too.
  HttpHeaders HeadersFor(const HttpRequest& request) const;

 private:
  const std::vector<std::string> origins_;
  const bool all_;
};

}  // namespace coppice::coordinator
