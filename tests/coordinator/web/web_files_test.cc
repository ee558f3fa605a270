// The files of the pages: all of them are in the program, small, and refer to nothing outside.
#include "coordinator/web/web_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/http/gzip.h"
#include "coordinator/web/embedded_files.h"

namespace coppice::coordinator {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFolder[] = "coordinator/web";  // in the working folder of the tests
constexpr size_t kMostBytes = 60 << 10;        // of all files, compressed

std::string Header(const HttpReply& reply, absl::string_view name) {
  for (const auto& [known, value] : reply.headers) {
    if (known == name) return value;
  }
  return "";
}

HttpReply Served(const WebFiles& files, absl::string_view name, const HttpRequest& request = {}) {
  std::optional<HttpReply> reply = files.Serve(name, request);
  EXPECT_TRUE(reply) << name;
  return reply.value_or(HttpReply());
}

// The first part of the regular expression, wherever it matches.
std::vector<std::string> Matches(absl::string_view text, const char* pattern) {
  std::vector<std::string> found;
  const std::string all(text);
  const std::regex regex(pattern);
  for (std::sregex_iterator match(all.begin(), all.end(), regex), end; match != end; ++match)
    found.push_back(match->str(match->size() > 1 ? 1 : 0));
  return found;
}

std::string WithoutComments(absl::string_view text) {
  return std::regex_replace(std::string(text), std::regex("(^|\n)\\s*//[^\n]*"), "\n");
}

TEST(WebFiles, AreThoseOfTheFolder) {
  std::set<std::string> in_program, in_tree;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    in_program.insert(std::string(file.name));
    std::ifstream stream(absl::StrCat(kFolder, "/", file.name), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    EXPECT_EQ(file.content, content) << file.name << " is an old one: build again";
  }
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (!absl::EndsWith(name, ".cc") && !absl::EndsWith(name, ".h") && !absl::EndsWith(name, ".md"))
      in_tree.insert(name);
  }
  EXPECT_EQ(in_program, in_tree);
}

TEST(WebFiles, WeighLittle) {
  const WebFiles files;
  size_t bytes = 0;
  for (const WebFiles::File& file : files.files()) {
    bytes += file.gzip.empty() ? file.content.size() : file.gzip.size();
    if (file.gzip.empty()) continue;
    EXPECT_EQ(*Gunzip(file.gzip, 1 << 20), file.content) << file.name;
  }
  EXPECT_LE(bytes, kMostBytes);
  RecordProperty("compressed_bytes", static_cast<int>(bytes));
}

TEST(WebFiles, HaveTypesThatBrowsersRun) {
  const WebFiles files;
  EXPECT_EQ(Served(files, "page.html").content_type, "text/html; charset=utf-8");
  EXPECT_EQ(Served(files, "style.css").content_type, "text/css; charset=utf-8");
  EXPECT_EQ(Served(files, "main.js").content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(Served(files, "icon.svg").content_type, "image/svg+xml");
  for (const WebFiles::File& file : files.files())
    EXPECT_THAT(file.type, Not(HasSubstr("octet-stream"))) << file.name;
  EXPECT_FALSE(files.Serve("nothing.js", {}));
  EXPECT_FALSE(files.Serve("", {}));
  EXPECT_FALSE(files.Serve("../web_files.h", {}));
}

TEST(WebFiles, HaveAStrictPolicy) {
  const WebFiles files;
  for (const WebFiles::File& file : files.files()) {
    const HttpReply reply = Served(files, file.name);
    const std::string policy = Header(reply, "Content-Security-Policy");
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(policy, Not(HasSubstr("*")));
    EXPECT_THAT(policy, Not(HasSubstr(":")));  // no address, no data:
    for (const char* part :
         {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
          "img-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"})
      EXPECT_THAT(policy, HasSubstr(part));
    EXPECT_EQ(Header(reply, "X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(Header(reply, "Referrer-Policy"), "same-origin");
    EXPECT_EQ(Header(reply, "Cross-Origin-Opener-Policy"), "same-origin");
    EXPECT_EQ(Header(reply, "Cache-Control"), "no-cache");
  }
}

TEST(WebFiles, AreInGzipWhereTheClientPrefersIt) {
  const WebFiles files;
  HttpRequest request;
  const HttpReply plain = Served(files, "page.html", request);
  EXPECT_EQ(Header(plain, "Content-Encoding"), "");
  request.accept_encoding = "gzip, deflate, br";
  const HttpReply gzip = Served(files, "page.html", request);
  EXPECT_EQ(Header(gzip, "Content-Encoding"), "gzip");
  EXPECT_TRUE(gzip.coded);
  EXPECT_EQ(*Gunzip(gzip.body, 1 << 20), plain.body);
  EXPECT_EQ(Header(gzip, "ETag"), Header(plain, "ETag"));
  EXPECT_EQ(Header(gzip, "Vary"), "Accept-Encoding");
}

TEST(WebFiles, AreNotSentAgain) {
  const WebFiles files;
  const std::string tag = Header(Served(files, "page.html"), "ETag");
  EXPECT_NE(tag, Header(Served(files, "style.css"), "ETag"));
  HttpRequest request;
  const std::string strong = absl::StrReplaceAll(tag, {{"W/", ""}});
  for (const std::string& known : {tag, strong, absl::StrCat("\"x\", ", tag), std::string("*")}) {
    request.if_none_match = known;
    const HttpReply reply = Served(files, "page.html", request);
    EXPECT_EQ(reply.status, 304) << known;
    EXPECT_EQ(reply.body, "");
    EXPECT_EQ(Header(reply, "ETag"), tag);
  }
  for (const char* other : {"\"x\"", "W/\"\"", "x"}) {
    request.if_none_match = other;
    EXPECT_EQ(Served(files, "page.html", request).status, 200) << other;
  }
}

TEST(WebFiles, RunNothingButTheirScripts) {
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (!absl::EndsWith(file.name, ".html")) continue;
    EXPECT_THAT(Matches(file.content, "<script(?![^>]*\\ssrc=)[^>]*>"), testing::IsEmpty());
    EXPECT_THAT(Matches(file.content, "</script>"),
                testing::SizeIs(Matches(file.content, "<script [^>]*></script>").size()));
    EXPECT_THAT(Matches(file.content, "<style"), testing::IsEmpty());
    EXPECT_THAT(Matches(file.content, "\\sstyle\\s*="), testing::IsEmpty());
    EXPECT_THAT(Matches(file.content, "\\son[a-z]+\\s*="), testing::IsEmpty());
    EXPECT_THAT(Matches(file.content, "javascript:"), testing::IsEmpty());
  }
}

// Text of a model never becomes markup, and nothing is kept beyond the page.
TEST(WebFiles, HaveNoWayFromTextToMarkup) {
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (!absl::EndsWith(file.name, ".js")) continue;
    const std::string code = WithoutComments(file.content);
    for (const char* word :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(",
          "new Function", "createContextualFragment", "srcdoc", "localStorage", "sessionStorage",
          "indexedDB", "document.cookie", "serviceWorker", "sendBeacon", "WebSocket"})
      EXPECT_THAT(code, Not(HasSubstr(word))) << file.name;
  }
}

TEST(WebFiles, ReferToNothingOutside) {
  std::set<std::string> known = {"docs", "./", "openapi.json", "ask"};
  for (const EmbeddedFile& file : EmbeddedFiles()) known.insert(absl::StrCat("web/", file.name));
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    const size_t addresses = Matches(WithoutComments(file.content), "https?://").size();
    EXPECT_EQ(addresses, file.name == "icon.svg" ? 1 : 0) << file.name;  // its namespace is one
    EXPECT_THAT(Matches(file.content, "url\\("), testing::IsEmpty()) << file.name;
    for (const std::string& target :
         Matches(file.content, "\\s(?:href|src|action)=\"([^\"#][^\"]*)\""))
      EXPECT_THAT(known, Contains(target)) << file.name;
    for (const std::string& target : Matches(file.content, "from \"\\./([^\"]*)\""))
      EXPECT_THAT(known, Contains("web/" + target)) << file.name;
  }
}

// A browser learns of every module at once, not one after the other.
TEST(WebFiles, NameTheModulesInTheFirst) {
  const WebFiles files;
  const std::string first = Served(files, "start.js").body;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    if (!absl::EndsWith(file.name, ".js") || file.name == "docs.js" || file.name == "start.js")
      continue;
    EXPECT_THAT(first, HasSubstr(absl::StrCat("\"", file.name, "\""))) << file.name;
  }
}

// The form that answers without JavaScript.
TEST(WebFiles, HasAForm) {
  const std::string page = Served(WebFiles(), "page.html").body;
  EXPECT_THAT(page, HasSubstr("<form id=\"composer\" method=\"post\" action=\"ask\">"));
  std::set<std::string> names;
  for (const std::string& name : Matches(page, "<(?:input|textarea|select)[^>]*\\sname=\"(\\w+)\""))
    names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"prompt", "system", "max_tokens", "beams"}));
}

TEST(WebFiles, TellsClientsFromPeople) {
  EXPECT_TRUE(PrefersJson("application/json"));
  EXPECT_TRUE(PrefersJson("application/problem+json, */*"));
  EXPECT_FALSE(PrefersJson(""));
  EXPECT_FALSE(PrefersJson("*/*"));
  EXPECT_FALSE(PrefersJson("text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"));
}

}  // namespace
}  // namespace coppice::coordinator
