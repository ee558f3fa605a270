#include "coordinator/http/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/http/page_reply.h"

namespace coppice::coordinator {
namespace {

const char* ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "overloaded_error";
    case 500:
      return "server_error";
    case 503:
      return "unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return "invalid_request_error";
  }
}

const char* AnthropicErrorType(int status) {
  switch (status) {
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 500:
      return "api_error";
    case 503:
      return "overloaded_error";
    default:
      return ErrorType(status);
  }
}

std::string ErrorPage(const ApiError& error) {
  return PageText("Coppice",
                  absl::StrCat("<section>\n<h2>No answer</h2>\n<p>", HtmlText(error.message),
                               "</p>\n<p class=\"note\">", error.status, ", ", HtmlText(error.code),
                               "</p>\n<p><a href=\"./\">Back</a></p>\n", "</section>\n"));
}

}  // namespace

std::string ErrorBody(const ApiError& error, ErrorForm form) {
  if (form == ErrorForm::kPage) return ErrorPage(error);
  nlohmann::ordered_json inner;
  inner["message"] = error.message;
  inner["type"] =
      form == ErrorForm::kAnthropic ? AnthropicErrorType(error.status) : ErrorType(error.status);
  inner["param"] =
      error.param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(error.param);
  inner["code"] = error.code;
  nlohmann::ordered_json body;
  if (form == ErrorForm::kAnthropic) body["type"] = "error";
  body["error"] = std::move(inner);
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpReply WholeReply(int status, std::string body, ErrorForm form) {
  if (form == ErrorForm::kPage) return PageReply(status, std::move(body));
  HttpReply reply;
  reply.status = status;
  reply.body = std::move(body);
  return reply;
}

HttpReply ErrorReply(const ApiError& error, ErrorForm form) {
  HttpReply reply = WholeReply(error.status, ErrorBody(error, form), form);
  if (error.retry_after_s > 0) {
    reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 500 || error.status == 501 || error.status == 504 || error.status == 505 ||
      error.code == "cancelled")
    reply.headers.emplace_back("x-should-retry", "false");
  return reply;
}

}  // namespace coppice::coordinator
