// The pages for people as endpoints: which file each of them is, and who may send their form.
// Called by routes. Read-only after start.
#pragma once

#include <optional>

#include "coordinator/api/endpoints.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"
#include "coordinator/web/web_files.h"

namespace coppice::coordinator {

class WebPages {
 public:
  // on: --web.
  explicit WebPages(bool on) : on_(on) {}

  // endpoint: of a page or its files (Endpoint::web).
  HttpReply Answer(const Endpoint& endpoint, const HttpRequest& request) const;
  // Why POST /ask is not taken, by its head.
  std::optional<ApiError> CheckForm(const HttpRequest& request) const;

 private:
  HttpReply Addresses() const;

  const bool on_;
  const WebFiles files_;
};

}  // namespace coppice::coordinator
