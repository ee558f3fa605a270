// Answers as RFC 9110, RFC 9112 and the Fetch standard want them: methods, headers, codings, web
// pages of other origins, old clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "coordinator/http/gzip.h"
#include "coordinator/http/http_head.h"
#include "tests/coordinator/cluster_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<proto::SequenceUpdate> Say(const proto::StartSequence&) { return SayText("words"); }

std::string Line(const RawAnswer& answer, const std::string& name) {
  const size_t at = answer.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + 4 + name.size();
  return answer.head.substr(begin, answer.head.find("\r\n", begin) - begin);
}

class HttpSemanticsTest : public ClusterTest {
 protected:
  // A request without a body.
  RawAnswer Call(const std::string& method, const std::string& target,
                 const std::string& headers = "") {
    RawClient client(port());
    client.Send(absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n"));
    return method == "HEAD" ? client.ReadHead() : client.ReadAnswer();
  }
  static std::string Code(const RawAnswer& answer) {
    const json body = json::parse(answer.body, nullptr, false);
    return body.is_discarded() || !body.contains("error") ? "none" : body["error"]["code"];
  }
};

TEST(HttpDateTest, IsThatOfTheStandard) {
  EXPECT_EQ(HttpDate(absl::FromUnixSeconds(784111777)), "Sun, 06 Nov 1994 08:49:37 GMT");
}

// RFC 9110 6.6.1.
TEST_F(HttpSemanticsTest, EveryAnswerHasADate) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  for (const RawAnswer& answer :
       {Call("GET", "/health"), Call("GET", "/nothing"), Call("OPTIONS", "*"), Ask(Post("{")),
        Ask(Post(R"({"prompt": "a"})")), Ask(Post(R"({"prompt": "a", "stream": true})")),
        Ask("GET / HTTP/3.0\r\n\r\n"), Ask(Get("/health", "Host: y\r\n"))}) {
    absl::Time date;
    std::string error;
    ASSERT_TRUE(absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", Line(answer, "Date"), &date, &error))
        << answer.head;
    EXPECT_LT(absl::AbsDuration(absl::Now() - date), absl::Minutes(5));
  }
}

// 9110 9.3.2.
TEST_F(HttpSemanticsTest, HeadIsGetWithoutABody) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  for (const std::string path : {"/health", "/ready", "/version", "/v1/models", "/v1/models/demo",
                                 "/v1/models/other", "/openapi.json", "/cluster", "/nothing"}) {
    for (const std::string accept : {"", "Accept-Encoding: gzip\r\n"}) {
      const RawAnswer get = Call("GET", path, accept), head = Call("HEAD", path, accept);
      EXPECT_EQ(head.status, get.status) << path;
      for (const char* name : {"Content-Length", "Content-Type", "Content-Encoding", "Vary"}) {
        if (path == "/cluster" && name == std::string("Content-Length")) continue;  // it has times
        EXPECT_EQ(Line(head, name), Line(get, name)) << path << " " << name;
      }
    }
  }
  EXPECT_EQ(Call("HEAD", "/metrics").status, 200);
  RawClient client(port());  // nothing stands before the next answer
  client.Send("HEAD /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/health"));
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.ReadAnswer().body, R"({"status":"ok"})");
  EXPECT_EQ(Call("HEAD", "/v1/completions").status, 405);
}

// 9110 9.3.7, 8.6.
TEST_F(HttpSemanticsTest, OptionsTellsWhatIsAllowed) {
  StartCluster();
  const auto allowed = [&](const std::string& target) {
    const RawAnswer answer = Call("OPTIONS", target);
    EXPECT_EQ(answer.status, 204);
    EXPECT_THAT(answer.head, Not(HasSubstr("Content-")));
    EXPECT_THAT(answer.head, Not(HasSubstr("Transfer-Encoding")));
    EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control")));
    return Line(answer, "Allow");
  };
  EXPECT_EQ(allowed("/health"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(allowed("/v1/completions"), "POST, OPTIONS");
  EXPECT_EQ(allowed("/admin/requests/x"), "DELETE, OPTIONS");
  EXPECT_EQ(allowed("*"), "GET, HEAD, POST, DELETE, OPTIONS");
  EXPECT_EQ(allowed("http://x"), "GET, HEAD, POST, DELETE, OPTIONS");
  EXPECT_EQ(Call("OPTIONS", "/nothing").status, 404);
  RawClient client(port());  // no body is read as the next request
  client.Send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/health"));
  EXPECT_EQ(client.ReadAnswer().status, 204);
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// 9110 9.1, 15.5.6, 15.6.2.
TEST_F(HttpSemanticsTest, OtherMethods) {
  StartCluster();
  for (const char* known : {"PUT", "PATCH", "TRACE", "DELETE", "POST"}) {
    const RawAnswer answer = Call(known, "/health");
    EXPECT_EQ(answer.status, 405) << known;
    EXPECT_EQ(Line(answer, "Allow"), "GET, HEAD, OPTIONS");
  }
  EXPECT_EQ(Line(Call("GET", "/tokenize"), "Allow"), "POST, OPTIONS");
  for (const char* unknown : {"PROPFIND", "get", "BREW", "M-SEARCH"}) {
    const RawAnswer answer = Call(unknown, "/health");
    EXPECT_EQ(answer.status, 501) << unknown;
    EXPECT_EQ(Code(answer), "unknown_method");
    EXPECT_EQ(Line(answer, "x-should-retry"), "false");
  }
  EXPECT_EQ(Call("CONNECT", "x:443").status, 501);
  RawClient client(port());
  client.Send("BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/health"));
  EXPECT_EQ(client.ReadAnswer().status, 501);
  EXPECT_EQ(client.ReadAnswer().status, 200);  // the connection stays
}

// 9112 3.2.2, 9110 4.2.3.
TEST_F(HttpSemanticsTest, TargetsOfAllForms) {
  StartCluster();
  for (const char* target : {"http://other:9/health", "/%68ealth", "/health?a=/b?c", "/health?"})
    EXPECT_EQ(Call("GET", target).status, 200) << target;
  EXPECT_EQ(Call("GET", "/v1/models/d%65mo").status, Call("GET", "/v1/models/demo").status);
  EXPECT_EQ(Call("GET", "/health%2F").status, 404);
  EXPECT_EQ(Call("GET", "/health#x").status, 404);
}

// 9112 2.2: some clients send an empty line after a body.
TEST_F(HttpSemanticsTest, EmptyLinesBetweenRequestsAreNoRequest) {
  options_.http.header_timeout_s = 0.2;
  StartCluster();
  RawClient client(port());
  for (int i = 0; i < 2; ++i) {
    client.Send(Post("{"));
    EXPECT_EQ(client.ReadAnswer().status, 400);
    client.Send("\r\n\r\n");
    EXPECT_EQ(Ask(Get("/health")).status, 200);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the time for a head has passed
  client.Send(Get("/health"));
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// 9112 6.1, 9.3, 9.6.
TEST_F(HttpSemanticsTest, ClientsOfHttp10) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  RawClient plain(port());
  plain.Send("GET /health HTTP/1.0\r\n\r\n");
  const RawAnswer answer = plain.ReadAnswer();
  EXPECT_TRUE(answer.Has("Connection: close"));
  EXPECT_EQ(answer.body, R"({"status":"ok"})");
  EXPECT_TRUE(plain.AtEnd());
  RawClient keeps(port());
  for (int i = 0; i < 2; ++i) {
    keeps.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(keeps.ReadAnswer().Has("Connection: keep-alive"));
  }
  const std::string body = R"({"prompt": "a", "stream": true})";
  keeps.Send(absl::StrCat("POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\n",
                          "Content-Length: ", body.size(), "\r\n\r\n", body));
  const RawAnswer stream = keeps.ReadAnswer();
  EXPECT_THAT(stream.head, Not(HasSubstr("Transfer-Encoding")));
  EXPECT_TRUE(stream.Has("Connection: close"));
  EXPECT_EQ(stream.body.substr(0, 6), "data: ");
  EXPECT_THAT(stream.body, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(keeps.AtEnd());
  RawClient expects(port());  // 9110 10.1.1: no 100 for it
  expects.Send(absl::StrCat("POST /v1/completions HTTP/1.0\r\nExpect: 100-continue\r\n",
                            "Content-Length: 2\r\n\r\n{}"));
  EXPECT_EQ(expects.ReadAnswer().status, 400);
}

TEST_F(HttpSemanticsTest, UpgradesAreIgnored) {
  StartCluster();
  RawClient client(port());
  client.Send(Get("/health", "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n") +
              Get("/health"));
  EXPECT_EQ(client.ReadAnswer().status, 200);
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

TEST_F(HttpSemanticsTest, OtherExpectationsAreRefusedAndClose) {
  StartCluster();
  RawClient client(port());
  client.Send(Post("{}", "Expect: the-best\r\n"));
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 417);
  EXPECT_EQ(Code(answer), "unknown_expectation");
  EXPECT_TRUE(answer.Has("Connection: close"));
}

// 9110 12.5.3, 8.4.
TEST_F(HttpSemanticsTest, LargeAnswersAreCompressedForThoseWhoAccept) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  for (const std::string path : {"/openapi.json", "/v1/models", "/metrics"}) {
    const RawAnswer plain = Call("GET", path),
                    gzip = Call("GET", path, "Accept-Encoding: gzip\r\n");
    for (const RawAnswer& answer : {plain, gzip}) {
      EXPECT_EQ(answer.status, 200);
      EXPECT_TRUE(answer.Has("Vary: Accept-Encoding")) << path;
    }
    EXPECT_EQ(Line(plain, "Content-Encoding"), "");
    EXPECT_EQ(Line(gzip, "Content-Encoding"), "gzip");
    EXPECT_LT(gzip.body.size(), plain.body.size() / 2);
    const absl::StatusOr<std::string> text = Gunzip(gzip.body, 16 << 20);
    ASSERT_TRUE(text.ok()) << path << text.status();
    const bool changes = path == "/metrics";
    EXPECT_TRUE(changes || *text == plain.body) << path;
    EXPECT_EQ(Line(Call("GET", path, "Accept-Encoding: gzip;q=0, br\r\n"), "Content-Encoding"), "");
  }
  const RawAnswer small = Call("GET", "/health", "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(small.body, R"({"status":"ok"})");
  const RawAnswer stream =
      Ask(Post(R"({"prompt": "a", "stream": true})", "Accept-Encoding: gzip\r\n"));
  EXPECT_EQ(Line(stream, "Content-Encoding"), "");
  EXPECT_THAT(stream.body, HasSubstr("[DONE]"));
}

TEST_F(HttpSemanticsTest, AnswersOfMegabytesAreCompressedBesideTheLoop) {
  options_.http.max_body_bytes = 2 << 20;
  StartCluster();
  const std::string much = AskForMuch();
  const RawAnswer plain = Ask(much);
  std::string accepting = much;
  accepting.insert(much.find("Content-Length"), "Accept-Encoding: gzip\r\n");
  RawClient client(port());
  client.Send(accepting + Get("/health"));
  const RawAnswer gzip = client.ReadAnswer();
  EXPECT_EQ(Line(gzip, "Content-Encoding"), "gzip");
  ASSERT_GT(plain.body.size(), 2u << 20);
  EXPECT_EQ(*Gunzip(gzip.body, 64 << 20), plain.body);
  EXPECT_EQ(client.ReadAnswer().status, 200);
  {
    RawClient gone(port());  // while its answer is compressed, or before
    gone.Send(accepting);
  }
  EXPECT_TRUE(Eventually([this] { return Metric("coppice_http_connections") <= 2; }));
}

// 9110 8.4, 15.5.16.
TEST_F(HttpSemanticsTest, BodiesInGzip) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  const auto post = [&](const std::string& body, const std::string& coding) {
    return Ask(Post(body, absl::StrCat("Content-Encoding: ", coding, "\r\n")));
  };
  const std::string body = R"({"prompt": "a"})";
  EXPECT_EQ(post(*Gzip(body), "gzip").status, 200);
  EXPECT_EQ(post(*Gzip(body), "X-Gzip").status, 200);
  EXPECT_EQ(post(body, "identity").status, 200);
  const RawAnswer broken = post(body, "gzip");
  EXPECT_EQ(broken.status, 400);
  EXPECT_EQ(Code(broken), "invalid_body");
  EXPECT_EQ(Code(post(*Gzip("{\"prompt\": "), "gzip")), "invalid_json");
  for (const char* other : {"br", "deflate", "gzip, gzip", "zstd"}) {
    const RawAnswer answer = post(body, other);
    EXPECT_EQ(answer.status, 415) << other;
    EXPECT_EQ(Code(answer), "unsupported_media_type");
    EXPECT_EQ(Line(answer, "Accept-Encoding"), "gzip, identity");
  }
  const std::string drain = *Gzip(R"({"target": "replica:none"})");
  EXPECT_EQ(Ask(absl::StrCat("POST /admin/drain HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n",
                             "Content-Length: ", drain.size(), "\r\n\r\n", drain))
                .status,
            404);
}

// The limit is of what the body becomes.
TEST_F(HttpSemanticsTest, ABombIsRefused) {
  StartCluster();
  const std::string bomb = *Gzip(R"({"prompt": ")" + std::string(65536, 'a') + R"("})");
  ASSERT_LT(bomb.size(), 1000u);
  const RawAnswer answer = Ask(Post(bomb, "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(Code(answer), "body_too_large");
}

class CorsServingTest : public HttpSemanticsTest {
 protected:
  static constexpr char kOrigin[] = "Origin: https://a.example\r\n";
  static constexpr char kAllowed[] = "Access-Control-Allow-Origin: https://a.example";
  void SetUp() override {
    HttpSemanticsTest::SetUp();
    options_.http.allowed_origins = {"https://a.example"};
  }
};

TEST_F(CorsServingTest, APreflightNeedsNoKey) {
  const std::string keys = testing::TempDir() + "cors_keys";
  std::ofstream(keys) << "a-key-of-a-user-0123\n";
  options_.api_keys_file = keys;
  StartCluster();
  const RawAnswer preflight =
      Call("OPTIONS", "/v1/chat/completions",
           absl::StrCat(kOrigin, "Access-Control-Request-Method: POST\r\n",
                        "Access-Control-Request-Headers: authorization,content-type\r\n"));
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(preflight.Has(kAllowed));
  EXPECT_THAT(Line(preflight, "Access-Control-Allow-Methods"), HasSubstr("POST"));
  EXPECT_THAT(Line(preflight, "Access-Control-Allow-Headers"), HasSubstr("Authorization"));
  EXPECT_EQ(Line(preflight, "Access-Control-Max-Age"), "7200");
  const RawAnswer refused = Ask(Post("{}", kOrigin));
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(refused.Has(kAllowed));
  const RawAnswer other = Call("OPTIONS", "/v1/chat/completions", "Origin: https://b.example\r\n");
  EXPECT_THAT(other.head, Not(HasSubstr("Access-Control")));
  EXPECT_TRUE(other.Has("Vary: Origin"));
}

TEST_F(CorsServingTest, EveryAnswerSaysWhoMayReadIt) {
  StartCluster();
  const auto worker = Join("replica-0", Say);
  WaitReady();
  const std::string body = R"({"prompt": "a"})", stream = R"({"prompt": "a", "stream": true})";
  const std::string large = "Content-Length: 70000\r\n\r\n";
  const std::vector<std::pair<int, std::string>> calls = {
      {200, Get("/v1/models", kOrigin)},
      {200, Post(body, kOrigin)},
      {200, Post(stream, kOrigin)},
      {400, Post("{", kOrigin)},
      {404, Get("/nothing", kOrigin)},
      {405, Get("/tokenize", kOrigin)},
      {413, absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: x\r\n", kOrigin, large)},
      {415, Post(body, absl::StrCat(kOrigin, "Content-Type: text/plain\r\n"))},
      {400, Get("/health", absl::StrCat(kOrigin, "X-Request-Id: a b\r\n"))},
  };
  for (const auto& [status, request] : calls) {
    const RawAnswer answer = Ask(request);
    EXPECT_EQ(answer.status, status) << request;
    EXPECT_TRUE(answer.Has(kAllowed)) << answer.head;
    EXPECT_TRUE(answer.Has("Vary: Origin"));
    const std::string shown = Line(answer, "Access-Control-Expose-Headers");
    for (const char* name : {"X-Request-Id", "X-Coppice-Ignored", "Retry-After", "X-Should-Retry"})
      EXPECT_THAT(shown, HasSubstr(name));
  }
  EXPECT_THAT(Ask(Get("/v1/models")).head, Not(HasSubstr("Access-Control")));
}

// Whatever origins are allowed: an admin without a key is a client of this host, and so is the
// browser that shows the page.
TEST_F(CorsServingTest, NoPageIsAnAdminWithoutAKey) {
  for (const char* origin : {"https://a.example", "*"}) {
    options_.http.allowed_origins = {origin};
    StartCluster();
    for (const char* method : {"GET", "HEAD"}) {
      EXPECT_EQ(Call(method, "/cluster", kOrigin).status, 403);
      EXPECT_EQ(Call(method, "/cluster").status, 200);
    }
    const RawAnswer drain = Ask(absl::StrCat("POST /admin/drain HTTP/1.1\r\nHost: x\r\n", kOrigin,
                                             "Content-Length: 2\r\n\r\n{}"));
    EXPECT_EQ(drain.status, 403);
    EXPECT_EQ(Code(drain), "admin_only");
    StopCluster();
  }
}

}  // namespace
}  // namespace coppice::coordinator
