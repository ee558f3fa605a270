// What RFC 9110 and RFC 9112 require of a server that reads requests.
#include "coordinator/http/request_parser.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

struct Parsed {
  HttpRequest request;
  bool done = false, keep_alive = false, expects_continue = false, is_http_11 = false;
  int error = 0;  // status
  std::string code;
  size_t used = 0;
};

Parsed Parse(const std::string& bytes, size_t piece = std::string::npos) {
  const HttpOptions limits;
  Parsed parsed;
  RequestParser parser(&limits, &parsed.request);
  for (size_t end = 0; end < bytes.size() && !parser.done() && !parser.error();) {
    end = std::min(bytes.size(), piece == std::string::npos ? bytes.size() : end + piece);
    for (int i = 0; i < 2 && !parser.done() && !parser.error(); ++i)
      parsed.used += parser.Put(absl::string_view(bytes).substr(parsed.used, end - parsed.used));
  }
  parsed.done = parser.done();
  parsed.keep_alive = parser.keep_alive();
  parsed.expects_continue = parser.expects_continue();
  parsed.is_http_11 = parser.is_http_11();
  if (parser.error()) {
    parsed.error = parser.error()->status;
    parsed.code = parser.error()->code;
  }
  return parsed;
}

// A GET of this target, whose headers are these.
Parsed Ask(const std::string& target, const std::string& headers = "Host: x\r\n") {
  return Parse(absl::StrCat("GET ", target, " HTTP/1.1\r\n", headers, "\r\n"));
}

std::string PathOf(const std::string& target) {
  const Parsed parsed = Ask(target);
  return parsed.done ? parsed.request.path : absl::StrCat("error ", parsed.error);
}

// 9112 3.2.1, 3.2.2, 3.2.4; 3986 6.2.2.
TEST(RequestParserTest, TargetsGivePaths) {
  EXPECT_EQ(PathOf("/health"), "/health");
  EXPECT_EQ(PathOf("/v1/models?x=/y?z"), "/v1/models");
  EXPECT_EQ(PathOf("http://host:8000/v1/models?x=1"), "/v1/models");
  EXPECT_EQ(PathOf("HTTPS://[::1]:443/health"), "/health");
  EXPECT_EQ(PathOf("http://host"), "/");
  EXPECT_EQ(PathOf("http://host?x"), "/");
  EXPECT_EQ(PathOf("/v1/%6dodel%73"), "/v1/models");
  EXPECT_EQ(PathOf("/v1/models/a%2Fb%2541%zz%4"), "/v1/models/a%2Fb%2541%zz%4");
  for (const char* bad : {"health", "*", "http://", "http:///health", "ftp://host/", "http://a b/",
                          "http://user@host/health", "http://host:port/health", "host:80"}) {
    EXPECT_EQ(PathOf(bad), "error 400") << bad;
  }
}

TEST(RequestParserTest, OptionsMayNameTheWholeServer) {
  EXPECT_EQ(Parse("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").request.path, "*");
  EXPECT_EQ(Parse("OPTIONS http://x HTTP/1.1\r\nHost: x\r\n\r\n").request.path, "*");
  EXPECT_EQ(Parse("OPTIONS /health HTTP/1.1\r\nHost: x\r\n\r\n").request.path, "/health");
  EXPECT_TRUE(Parse("CONNECT host:443 HTTP/1.1\r\nHost: host:443\r\n\r\n").done);
}

// 9112 3.2.
TEST(RequestParserTest, HostIsThereOnceAndValid) {
  for (const char* good : {"x", "example.com:8000", "[::1]:80", "[::1]", "127.0.0.1:", ""})
    EXPECT_TRUE(Ask("/", absl::StrCat("Host: ", good, "\r\n")).done) << good;
  for (const char* bad : {"a b", "user@host", "host:port", "[::1", "[]", "[x]", "host:1:2", "a/b",
                          "host:123456", "http://x"}) {
    EXPECT_EQ(Ask("/", absl::StrCat("Host: ", bad, "\r\n")).error, 400) << bad;
  }
  EXPECT_EQ(Ask("/", "").error, 400);
  EXPECT_EQ(Ask("http://x/", "").error, 400);
  EXPECT_EQ(Ask("/", "Host: x\r\nHost: x\r\n").error, 400);
  EXPECT_TRUE(Parse("GET / HTTP/1.0\r\n\r\n").done);
  EXPECT_EQ(Parse("GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n").error, 400);
}

// 9110 2.5, 15.6.6; 9112 2.3.
TEST(RequestParserTest, Versions) {
  const auto with = [](const std::string& version) {
    return absl::StrCat("GET / ", version, "\r\nHost: x\r\n\r\n");
  };
  for (const char* later : {"HTTP/1.2", "HTTP/1.9"}) {
    for (const size_t piece : {std::string::npos, size_t{1}, size_t{5}}) {
      const Parsed parsed = Parse(with(later), piece);
      EXPECT_TRUE(parsed.done && parsed.is_http_11 && parsed.keep_alive) << later;
      EXPECT_EQ(parsed.used, with(later).size());
    }
  }
  for (const char* other : {"HTTP/2.0", "HTTP/0.9", "HTTP/3.1"}) {
    EXPECT_EQ(Parse(with(other)).error, 505) << other;
    EXPECT_EQ(Parse(with(other)).code, "unsupported_http_version");
  }
  EXPECT_EQ(Parse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").error, 505);
  for (const char* bad : {"http/1.1", "HTTP/1.1 ", "HTTP/11", "HTTP/1.10", "HTTP/1", "HTTP/a.1",
                          "HTTP/1.a", " HTTP/1.1", ""}) {
    EXPECT_EQ(Parse(with(bad)).error, 400) << bad;
  }
}

// 9112 9.3, appendix C.2.2.
TEST(RequestParserTest, ConnectionsAreKeptByVersionAndOptions) {
  const auto keeps = [](const std::string& version, const std::string& connection) {
    const std::string line =
        connection.empty() ? "" : absl::StrCat("Connection: ", connection, "\r\n");
    return Parse(absl::StrCat("GET / HTTP/", version, "\r\nHost: x\r\n", line, "\r\n")).keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_TRUE(keeps("1.1", "upgrade"));
  EXPECT_FALSE(keeps("1.1", "Close"));
  EXPECT_FALSE(keeps("1.1", "te, close"));
  EXPECT_FALSE(keeps("1.1", "keep-alive, close"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Keep-Alive"));
  EXPECT_FALSE(keeps("1.0", "keep-alive, close"));
}

// 9112 5.1, 5.2, 2.2; 9110 5.5.
TEST(RequestParserTest, MalformedLinesAreRefused) {
  for (const char* bad : {"X-A : 1\r\n", "X-A\t: 1\r\n", " X-A: 1\r\n", "X-A: 1\r\n folded\r\n",
                          ": 1\r\n", "X A: 1\r\n", "X-A: a\nb\r\n", "X-A: a\rb\r\n", "X-A: 1\n",
                          "X-A\r\n", "X-A: \x01\r\n", "X-A: \x7f\r\n"}) {
    EXPECT_EQ(Ask("/", absl::StrCat("Host: x\r\n", bad)).error, 400) << bad;
  }
  EXPECT_EQ(Ask("/", absl::StrCat("Host: x\r\nX-A: a", std::string(1, '\0'), "\r\n")).error, 400);
  EXPECT_TRUE(Ask("/", "Host: x\r\nX-A:\r\nX-B:   \t\r\nX-C:\t\xc3\xa9 \t \r\n").done);
  for (const char* bad :
       {"GET / HTTP/1.1\nHost: x\r\n\r\n", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /\r\n\r\n", "G(T / HTTP/1.1\r\nHost: x\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: x\r\n\r\n"}) {
    EXPECT_EQ(Parse(bad).error, 400) << bad;
  }
}

// 9112 2.2.
TEST(RequestParserTest, EmptyLinesBeforeARequestAreIgnored) {
  const std::string request = "\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const size_t piece : {std::string::npos, size_t{1}, size_t{3}}) {
    const Parsed parsed = Parse(request, piece);
    EXPECT_TRUE(parsed.done) << piece;
    EXPECT_EQ(parsed.request.path, "/health");
    EXPECT_EQ(parsed.used, request.size());
  }
  EXPECT_EQ(Parse("\rGET / HTTP/1.1\r\nHost: x\r\n\r\n").error, 400);
  EXPECT_EQ(Parse("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").error, 400);
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "\r\n";
  EXPECT_NE(Parse(many).error, 0);
}

// 9112 6.1, 6.3, 7.1.
TEST(RequestParserTest, LengthsOfBodies) {
  const auto post = [](const std::string& headers, const std::string& body) {
    return Parse(absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\n", headers, "\r\n", body));
  };
  EXPECT_EQ(post("Content-Length: 3\r\n", "abc").request.body, "abc");
  EXPECT_EQ(post("Content-Length: 3, 3\r\n", "abc").request.body, "abc");
  EXPECT_TRUE(post("", "").done);
  for (const char* bad : {"-1", "+3", "3x", "0x3", "3 3", "", "3,4", "18446744073709551616"})
    EXPECT_EQ(post(absl::StrCat("Content-Length: ", bad, "\r\n"), "abc").error, 400) << bad;
  EXPECT_EQ(post("Content-Length: 3\r\nContent-Length: 4\r\n", "abc").error, 400);
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const std::string& both :
       {chunked + "Content-Length: 3\r\n", "Content-Length: 3\r\n" + chunked}) {
    EXPECT_EQ(post(both, "0\r\n\r\n").error, 400) << both;
  }
  EXPECT_EQ(
      post(chunked, "1;a=b\r\na\r\n02;c;d=\"e f\"\r\nbc\r\n0;g\r\nX-T: 1\r\n\r\n").request.body,
      "abc");
  EXPECT_EQ(post(chunked, "A\r\n0123456789\r\n0\r\n\r\n").request.body, "0123456789");
  for (const char* bad : {"1\na\r\n0\r\n\r\n", "-1\r\na\r\n0\r\n\r\n", "0x1\r\na\r\n0\r\n\r\n",
                          "1\r\nab\r\n0\r\n\r\n", "\r\na\r\n0\r\n\r\n", "1 2\r\na\r\n0\r\n\r\n",
                          "fffffffffffffffff\r\na\r\n0\r\n\r\n"}) {
    EXPECT_NE(post(chunked, bad).error, 0) << bad;
  }
}

// 9110 10.1.1.
TEST(RequestParserTest, Expectations) {
  const auto post = [](const std::string& version, const std::string& expect) {
    return Parse(absl::StrCat("POST / HTTP/", version, "\r\nHost: x\r\n", expect, "\r\n"));
  };
  EXPECT_TRUE(post("1.1", "Expect: 100-Continue\r\n").expects_continue);
  EXPECT_TRUE(post("1.1", "Expect: \r\n").done);
  for (const char* bad : {"Expect: 200-ok\r\n", "Expect: 100-continue, x\r\n",
                          "Expect: 100-continue\r\nExpect: x=y\r\n"}) {
    EXPECT_EQ(post("1.1", bad).error, 417) << bad;
    EXPECT_EQ(post("1.1", bad).code, "unknown_expectation");
  }
  EXPECT_FALSE(post("1.0", "Expect: 100-continue\r\n").expects_continue);
  EXPECT_TRUE(post("1.0", "Expect: x\r\n").done);
}

// 9110 7.8: it may be ignored.
TEST(RequestParserTest, UpgradesAreIgnored) {
  const Parsed parsed = Parse(
      "GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
      "Upgrade: h2c, websocket\r\nHTTP2-Settings: AAMAAABk\r\n\r\n");
  EXPECT_TRUE(parsed.done && parsed.keep_alive);
}

TEST(RequestParserTest, ListsMayHaveSeveralLines) {
  const Parsed parsed = Ask("/",
                            "Host: x\r\nAccept-Encoding: br\r\nAccept-Encoding: gzip;q=0.5\r\n"
                            "Content-Encoding: gzip\r\nContent-Encoding: br\r\n");
  EXPECT_EQ(parsed.request.accept_encoding, "br, gzip;q=0.5");
  EXPECT_EQ(parsed.request.content_encoding, "gzip, br");
}

}  // namespace
}  // namespace coppice::coordinator
