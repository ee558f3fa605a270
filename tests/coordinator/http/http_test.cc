// HTTP from the outside: limits, errors, connections (docs/api.md 3.1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/cluster_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HttpTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    options_.http.header_timeout_s = 1;
    StartCluster();
  }
  // The error code of an answer that must be a JSON error with this status.
  std::string Code(const RawAnswer& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json body = json::parse(answer.body, nullptr, false);
    if (body.is_discarded() || !body.contains("error")) return "no error body";
    for (const char* key : {"message", "type", "param", "code"})
      EXPECT_TRUE(body["error"].contains(key)) << key;
    return body["error"]["code"];
  }
};

TEST_F(HttpTest, HealthIsGoodAndReadyIsNotWithoutReplica) {
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  const RawAnswer ready = Ask(Get("/ready"));
  EXPECT_EQ(Code(ready, 503), "no_replica");
  EXPECT_THAT(ready.head, HasSubstr("Retry-After: "));
  EXPECT_FALSE(json::parse(Ask(Get("/version")).body)["version"].get<std::string>().empty());
}

TEST_F(HttpTest, RoutesAndMethods) {
  EXPECT_EQ(Code(Ask(Get("/nothing")), 404), "unknown_route");
  EXPECT_THAT(Ask(Get("/chat/completions")).body,
              HasSubstr("there is no /chat/completions, did you mean /v1/chat/completions?"));
  const RawAnswer wrong = Ask(Get("/v1/completions"));
  EXPECT_EQ(Code(wrong, 405), "method_not_allowed");
  EXPECT_THAT(wrong.head, HasSubstr("Allow: POST, OPTIONS\r\n"));
  EXPECT_EQ(Code(Ask("DELETE /health HTTP/1.1\r\nHost: x\r\n\r\n"), 405), "method_not_allowed");
  EXPECT_EQ(Ask(Get("/health?probe=1")).status, 200);
}

TEST_F(HttpTest, ContentTypes) {
  const std::string bad = "{}";
  EXPECT_EQ(Code(Ask(Post(bad, "Content-Type: text/plain\r\n")), 415), "unsupported_media_type");
  EXPECT_EQ(Code(Ask(Post(bad, "Content-Type: application/x-www-form-urlencoded\r\n")), 415),
            "unsupported_media_type");
  EXPECT_EQ(Code(Ask(Post(bad, "Content-Type: application/jsonp\r\n")), 415),
            "unsupported_media_type");
  EXPECT_EQ(Code(Ask(Post(bad, "Content-Type: text/json\r\n")), 415), "unsupported_media_type");
  EXPECT_EQ(Code(Ask(Post(bad, "")), 400), "missing_field");
  for (const char* good : {"application/json; charset=utf-8", "Application/JSON ;charset=UTF-8",
                           "application/vnd.api+json", "application/x-json"}) {
    EXPECT_EQ(Code(Ask(Post(bad, absl::StrCat("Content-Type: ", good, "\r\n"))), 400),
              "missing_field")
        << good;
  }
}

TEST_F(HttpTest, BadJsonIsInvalid) {
  const std::string deep = "{\"prompt\":" + std::string(32, '[') + std::string(32, ']') + "}";
  for (const std::string& body :
       {std::string("{\"prompt\": "), std::string("[]"), std::string("{\"temperature\": NaN}"),
        std::string("{\"prompt\": \"\xff\"}"), std::string("{\"prompt\": \"\\ud800\"}"),
        std::string(), deep}) {
    EXPECT_EQ(Code(Ask(Post(body)), 400), "invalid_json") << body;
  }
}

TEST_F(HttpTest, BodyTooLargeIsRefusedBeforeItIsSent) {
  EXPECT_EQ(
      Code(Ask("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n"), 413),
      "body_too_large");
  RawClient client(port());
  client.Send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 5; ++i)
    client.Send(absl::StrCat("4000\r\n", std::string(0x4000, ' '), "\r\n"));
  EXPECT_EQ(Code(client.ReadAnswer(), 413), "body_too_large");
}

TEST_F(HttpTest, ChunkedBodyIsRead) {
  RawClient client(port());
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n2\r\n{\"\r\n6\r\nstop\":\r\n2\r\n1}\r\n0\r\n\r\n");
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(Code(answer, 400), "invalid_type");
  EXPECT_EQ(json::parse(answer.body)["error"]["param"], "stop");
}

TEST_F(HttpTest, ExpectContinueIsHonoured) {
  RawClient client(port());
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
      "2\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().status, 100);
  client.Send("{}");
  EXPECT_EQ(Code(client.ReadAnswer(), 400), "missing_field");
  RawClient wrong(port());
  wrong.Send(
      "POST /nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(Code(wrong.ReadAnswer(), 404), "unknown_route");
}

TEST_F(HttpTest, LargeHeadsAreRefused) {
  EXPECT_EQ(
      Code(Ask(Get("/health", absl::StrCat("X-A: ", std::string(17 << 10, 'a'), "\r\n"))), 431),
      "headers_too_large");
  EXPECT_EQ(Code(Ask(Get("/" + std::string(9 << 10, 'a'))), 414), "uri_too_long");
  EXPECT_EQ(Code(Ask(Get("/" + std::string(40 << 10, 'a'))), 414), "uri_too_long");
}

TEST_F(HttpTest, ContentLengthWithTransferEncodingIsRefusedAndCloses) {
  RawClient client(port());
  client.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n");
  EXPECT_EQ(Code(client.ReadAnswer(), 400), "invalid_header");
  client.HalfClose();
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpTest, UnfinishedHeaderEndsWhileOthersAreServed) {
  RawClient slow(port());
  slow.Send("GET /health HTTP/1.1\r\nX-Slow: ");
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_EQ(Code(slow.ReadAnswer(), 408), "client_too_slow");
}

TEST_F(HttpTest, ConnectionsAreKeptOrClosedAsAsked) {
  RawClient client(port());
  client.Send(Get("/health") + Get("/version"));
  EXPECT_THAT(client.ReadAnswer().body, HasSubstr("ok"));
  EXPECT_THAT(client.ReadAnswer().body, HasSubstr("version"));
  client.Send(Post("{"));
  EXPECT_EQ(client.ReadAnswer().status, 400);
  client.Send(Get("/health", "Connection: close\r\n"));
  EXPECT_THAT(client.ReadAnswer().head, HasSubstr("Connection: close"));
  client.HalfClose();
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpTest, RequestIdsAreEchoedOrMade) {
  EXPECT_THAT(Ask(Get("/health", "X-Request-Id: a.B-1_2:3\r\n")).head,
              HasSubstr("X-Request-Id: a.B-1_2:3\r\n"));
  EXPECT_THAT(Ask(Get("/nothing", "X-Request-Id: mine\r\n")).head,
              HasSubstr("X-Request-Id: mine\r\n"));
  const auto id = [](const RawAnswer& answer) {
    const size_t at = answer.head.find("X-Request-Id: ");
    return answer.head.substr(at, answer.head.find("\r\n", at) - at);
  };
  EXPECT_NE(id(Ask(Get("/health"))), id(Ask(Get("/health"))));
  EXPECT_EQ(Code(Ask(Get("/health", "X-Request-Id: two words\r\n")), 400), "invalid_header");
  EXPECT_EQ(
      Code(Ask(Get("/health", absl::StrCat("X-Request-Id: ", std::string(129, 'a'), "\r\n"))), 400),
      "invalid_header");
}

TEST_F(HttpTest, GarbageIsRefused) {
  EXPECT_EQ(Code(Ask("not http at all\r\n\r\n"), 400), "invalid_header");
}

TEST_F(HttpTest, ABusyPortIsNamed) {
  CoordinatorOptions second = options_;
  second.http.listen = coordinator_->http_address();
  const auto failed = Coordinator::Start(second, std::make_unique<ByteTokenizer>(), nullptr);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr(second.http.listen));
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("Address already in use"));
}

// Otherwise the client takes the body for the beginning of the next answer.
TEST_F(HttpTest, ARefusalOfHeadHasNoBody) {
  RawClient client(port());
  client.Send("HEAD /tokenize HTTP/1.1\r\nHost: x\r\n\r\n" + Get("/health"));
  const RawAnswer head = client.ReadHead();
  EXPECT_EQ(head.status, 405);
  EXPECT_FALSE(head.Has("Content-Length: 0"));
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

constexpr char kChunkedHead[] =
    "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

// What is not a part of the body counts too: it must be held until its line has ended.
TEST_F(HttpTest, LinesOfChunksAreAsBoundedAsTheHead) {
  for (const std::string& begin : {std::string("2;"), std::string("2\r\n{}\r\n0\r\nX-Trailer: ")}) {
    for (const size_t size : {size_t{17 << 10}, size_t{1 << 20}}) {
      RawClient client(port());
      client.Send(kChunkedHead + begin + std::string(size, 'a'));
      EXPECT_EQ(Code(client.ReadAnswer(), 431), "headers_too_large") << begin << size;
    }
  }
  RawClient client(port());
  client.Send(kChunkedHead + std::string("2;name=value\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n"));
  EXPECT_EQ(Code(client.ReadAnswer(), 400), "missing_field");
}

// At once and line by line, in one field and in many.
TEST_F(HttpTest, LargeTrailersAreRefusedAndClose) {
  const auto line = [](size_t size) {
    return absl::StrCat("X-A: ", std::string(size - 7, 'a'), "\r\n");
  };
  std::string many;
  for (int i = 0; i < 20; ++i) many += line(1024);
  for (const std::string& trailers : {line(65534 + 7), line(70000), many}) {
    RawClient client(port());
    client.Send(absl::StrCat(kChunkedHead, "2\r\n{}\r\n0\r\n", trailers, "\r\n"));
    EXPECT_EQ(Code(client.ReadAnswer(), 431), "headers_too_large");
    client.HalfClose();
    EXPECT_TRUE(client.AtEnd());
  }
  EXPECT_EQ(Ask(Get("/health")).status, 200);
}

// The answer to the first request would end the connection, if its trailer were a header.
TEST_F(HttpTest, TrailersChangeNothing) {
  RawClient client(port());
  client.Send(kChunkedHead +
              std::string("2\r\n{}\r\n0\r\nConnection: close\r\n"
                          "Content-Type: text/plain\r\n\r\n") +
              Get("/health"));
  EXPECT_EQ(Code(client.ReadAnswer(), 400), "missing_field");
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// The limit is of the whole head, however it arrives.
TEST_F(HttpTest, LargeHeadsAreRefusedLineByLine) {
  RawClient client(port());
  client.Send("GET /health HTTP/1.1\r\nHost: x\r\n");
  for (int i = 0; i < 17; ++i) {
    client.Send(absl::StrCat("X-A: ", std::string(1017, 'a'), "\r\n"));
    // So that each line arrives alone.
    EXPECT_EQ(Ask(Get("/health")).status, 200);
  }
  client.Send("\r\n");
  EXPECT_EQ(Code(client.ReadAnswer(), 431), "headers_too_large");
}

TEST_F(HttpTest, FoldedLinesAreRefused) {
  for (const char* fold : {"\r\n ", "\r\n\t", " \r\n   "}) {
    EXPECT_EQ(Code(Ask(Get("/health", absl::StrCat("X-A: a", fold, "b\r\n"))), 400),
              "invalid_header");
    RawClient client(port());
    client.Send(absl::StrCat(kChunkedHead, "2\r\n{}\r\n0\r\nX-A: a", fold, "b\r\n\r\n"));
    EXPECT_EQ(Code(client.ReadAnswer(), 400), "invalid_header");
  }
}

TEST_F(HttpTest, TransferEncodingsOtherThanChunkedAreRefusedAndClose) {
  const std::string chunks = "2\r\n{}\r\n0\r\n\r\n";
  for (const char* bad : {"chunked;a=b", "chunked ; a=b", "gzip, chunked", "chunked, chunked",
                          "chunked,", "gzip", "identity", "", "chunked\r\nTransfer-Encoding: gzip",
                          "gzip\r\nTransfer-Encoding: chunked"}) {
    RawClient client(port());
    client.Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ", bad,
                             "\r\n\r\n", chunks));
    EXPECT_EQ(Code(client.ReadAnswer(), 400), "invalid_header") << bad;
    client.HalfClose();
    EXPECT_TRUE(client.AtEnd()) << bad;
  }
  for (const char* good : {"Chunked", " \tchunked "}) {
    EXPECT_EQ(
        Code(Ask(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: ",
                              good, "\r\n\r\n", chunks)),
             400),
        "missing_field");
  }
}

// RFC 9112 6.1: how long such a body is for those on the way is not known.
TEST_F(HttpTest, ChunkedBodiesOfHttp10AreRefusedAndClose) {
  RawClient client(port());
  client.Send(
      "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: "
      "chunked\r\n\r\n"
      "2\r\n{}\r\n0\r\n\r\n");
  EXPECT_EQ(Code(client.ReadAnswer(), 400), "invalid_header");
  client.HalfClose();
  EXPECT_TRUE(client.AtEnd());
}

// The answer does not wait for the body.
TEST_F(HttpTest, RefusedHeadsAreAnsweredBeforeTheirBodies) {
  for (const char* length : {"2", "60000"}) {
    RawClient client(port());
    client.Send(
        absl::StrCat("POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: ", length, "\r\n\r\n"));
    EXPECT_EQ(Code(client.ReadAnswer(), 404), "unknown_route");
    client.Send(std::string(std::stoi(length), ' ') + Get("/health"));
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
  RawClient client(port());
  client.Send("POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(Code(answer, 404), "unknown_route");
  EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
}

// Whoever sends all of the body before it reads must find the answer, not a reset.
TEST_F(HttpTest, ARefusedClientMaySendItsWholeBody) {
  RawClient client(port());
  client.Send("POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i)
    client.Send(absl::StrCat("4000\r\n", std::string(0x4000, ' '), "\r\n"));
  EXPECT_TRUE(client.connected());
  EXPECT_EQ(Code(client.ReadAnswer(), 404), "unknown_route");
}

class CrowdedTest : public ClusterTest {};

TEST_F(CrowdedTest, TooManyConnectionsAreTold) {
  options_.http.max_connections = 1;
  StartCluster();
  RawClient first(port());  // in the middle of a request
  first.Send(
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: "
      "100-continue\r\n\r\n");
  EXPECT_EQ(first.ReadAnswer().status, 100);
  RawClient second(port());
  const RawAnswer answer = second.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("too_many_connections"));
  first.Send("{}");
  EXPECT_EQ(first.ReadAnswer().status, 400);
}

// For a new connection, the one that has waited longest for a request is closed.
TEST_F(CrowdedTest, IdleConnectionsMakeRoom) {
  options_.http.max_connections = 4;
  StartCluster();
  std::vector<std::unique_ptr<RawClient>> idle;
  const auto connect = [&](const std::string& bytes) {
    idle.push_back(std::make_unique<RawClient>(port()));
    idle.back()->Send(bytes);
  };
  connect("");                             // silent
  connect("GET /health HTTP/1.1\r\nX: ");  // an unfinished head
  for (int i = 0; i < 2; ++i) {
    connect(Get("/health"));
    EXPECT_EQ(idle.back()->ReadAnswer().status, 200);
  }
  for (int i = 0; i < 3; ++i) {
    RawClient client(port());
    client.Send(Get("/health"));
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
  EXPECT_TRUE(idle[0]->AtEnd());
  idle.back()->Send(Get("/health"));  // idle for the shortest time
  EXPECT_EQ(idle.back()->ReadAnswer().status, 200);
}

}  // namespace
}  // namespace coppice::coordinator
