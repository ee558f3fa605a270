#include "coordinator/web/web_files.h"

#include <openssl/evp.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/page_reply.h"
#include "coordinator/web/embedded_files.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kTagBytes = 8;

const char* TypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

// A weak validator, since the bytes also come in gzip.
std::string TagOf(absl::string_view content) {
  unsigned char digest[EVP_MAX_MD_SIZE] = {};
  unsigned size = 0;
  EVP_Digest(content.data(), content.size(), digest, &size, EVP_sha256(), nullptr);
  const absl::string_view bytes(reinterpret_cast<const char*>(digest), kTagBytes);
  return absl::StrCat("W/\"", absl::BytesToHexString(bytes), "\"");
}

// RFC 9110 13.1.2, by the weak comparison.
bool Has(absl::string_view if_none_match, absl::string_view tag) {
  for (absl::string_view known : absl::StrSplit(if_none_match, ',')) {
    known = absl::StripAsciiWhitespace(known);
    if (known == "*" || absl::StripPrefix(known, "W/") == absl::StripPrefix(tag, "W/")) return true;
  }
  return false;
}

}  // namespace

bool PrefersJson(absl::string_view accept) {
  const std::string types = absl::AsciiStrToLower(accept);
  return absl::StrContains(types, "json") && !absl::StrContains(types, "text/html");
}

WebFiles::WebFiles() {
  for (const EmbeddedFile& embedded : EmbeddedFiles()) {
    File file{embedded.name, TypeOf(embedded.name), embedded.content, "", TagOf(embedded.content)};
    std::optional<std::string> gzip = Gzip(file.content, GzipEffort::kSmall);
    if (gzip && gzip->size() < file.content.size()) file.gzip = *std::move(gzip);
    files_.push_back(std::move(file));
  }
}

std::optional<HttpReply> WebFiles::Serve(absl::string_view name, const HttpRequest& request) const {
  for (const File& file : files_) {
    if (file.name != name) continue;
    HttpReply reply;
    reply.coded = true;
    reply.headers = {
        {"ETag", file.tag}, {"Cache-Control", "no-cache"}, {"Vary", "Accept-Encoding"}};
    if (!request.if_none_match.empty() && Has(request.if_none_match, file.tag)) {
      reply.status = 304;
      return reply;
    }
    const HttpHeaders& page = PageHeaders();
    reply.headers.insert(reply.headers.end(), page.begin(), page.end());
    reply.content_type = file.type;
    if (!file.gzip.empty() && PrefersGzip(request.accept_encoding)) {
      reply.body = file.gzip;
      reply.headers.emplace_back("Content-Encoding", "gzip");
    } else {
      reply.body = std::string(file.content);
    }
    return reply;
  }
  return std::nullopt;
}

}  // namespace coppice::coordinator
