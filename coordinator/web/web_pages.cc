#include "coordinator/web/web_pages.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "coordinator/http/http_head.h"
#include "coordinator/web/ask_form.h"

namespace coppice::coordinator {
namespace {

ApiError NoPages() {
  return {404, "unknown_route",
          "this server has no pages (--web=false); its API is at /v1, described by GET "
          "/openapi.json"};
}

std::string FileOf(const Endpoint& endpoint, const std::string& path) {
  switch (endpoint.id) {
    case EndpointId::kPage:
      return "page.html";
    case EndpointId::kDocs:
      return "docs.html";
    case EndpointId::kIcon:
      return "icon.svg";
    default:
      return PathArgument(endpoint, path);
  }
}

}  // namespace

HttpReply WebPages::Answer(const Endpoint& endpoint, const HttpRequest& request) const {
  const bool page = endpoint.id == EndpointId::kPage;
  if (page && PrefersJson(request.accept)) return Addresses();
  if (!on_) return ErrorReply(NoPages());
  std::optional<HttpReply> reply = files_.Serve(FileOf(endpoint, request.path), request);
  if (!reply) {
    return ErrorReply(
        {404, "unknown_route", absl::StrCat("there is no ", request.path.substr(0, 200))});
  }
  if (page) reply->headers.emplace_back("Vary", "Accept");
  return *std::move(reply);
}

HttpReply WebPages::Addresses() const {
  nlohmann::ordered_json json;
  json["name"] = "coppice";
  json["version"] = kVersion;
  json["models"] = "/v1/models";
  json["openapi"] = "/openapi.json";
  if (on_) json["docs"] = "/docs";
  HttpReply reply;
  reply.body = json.dump();
  reply.headers.emplace_back("Vary", "Accept");
  return reply;
}

std::optional<ApiError> WebPages::CheckForm(const HttpRequest& request) const {
  if (!on_) return NoPages();
  if (!absl::EqualsIgnoreCase(MediaType(request.content_type), kFormType)) {
    return ApiError{415, "unsupported_media_type",
                    absl::StrCat("the body must be a form (", kFormType,
                                 "); clients use /v1/completions or /v1/chat/completions")};
  }
  if (FromOwnPage(request)) return std::nullopt;
  return ApiError{403, "other_origin", "the form is of a page of another server"};
}

}  // namespace coppice::coordinator
