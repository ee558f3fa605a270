#include "coordinator/http/page_reply.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace coppice::coordinator {
namespace {

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'";

}  // namespace

const HttpHeaders& PageHeaders() {
  static const HttpHeaders headers = {{"Content-Security-Policy", kPolicy},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "same-origin"},
                                      {"Cross-Origin-Opener-Policy", "same-origin"},
                                      {"Cross-Origin-Resource-Policy", "same-origin"}};
  return headers;
}

std::string HtmlText(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string PageText(absl::string_view title, absl::string_view body) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>",
      HtmlText(title),
      "</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<link rel=\"icon\" href=\"web/icon.svg\" type=\"image/svg+xml\">\n"
      "<link rel=\"stylesheet\" href=\"web/style.css\">\n</head>\n<body>\n<header><h1>",
      HtmlText(title), "</h1></header>\n<main>\n", body, "</main>\n</body>\n</html>\n");
}

HttpReply PageReply(int status, std::string page) {
  HttpReply reply;
  reply.status = status;
  reply.content_type = "text/html; charset=utf-8";
  reply.body = std::move(page);
  reply.headers = PageHeaders();
  reply.headers.emplace_back("Cache-Control", "no-store");
  return reply;
}

}  // namespace coppice::coordinator
