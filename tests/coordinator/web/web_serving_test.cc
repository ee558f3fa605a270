// The pages through a whole coordinator: /, /docs, their files, and a server without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "coordinator/http/gzip.h"
#include "tests/coordinator/cluster_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class WebServing : public ClusterTest {
 protected:
  std::string Head(const std::string& method, const std::string& path,
                   const std::string& headers = "") {
    return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n", headers, "\r\n");
  }
  std::string TagOf(const RawAnswer& answer) {
    const size_t at = answer.head.find("ETag: ") + 6;
    return answer.head.substr(at, answer.head.find('\r', at) - at);
  }
};

TEST_F(WebServing, ThePageNeedsNoKeyAndNoReplica) {
  StartCluster();
  for (const char* path :
       {"/", "/docs", "/web/style.css", "/web/main.js", "/web/icon.svg", "/favicon.ico"}) {
    const RawAnswer answer = Ask(Head("GET", path));
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_THAT(answer.head, HasSubstr("\r\nContent-Security-Policy: default-src 'none'; "))
        << path;
    EXPECT_TRUE(answer.Has("Cache-Control: no-cache")) << path;
    EXPECT_THAT(answer.head, HasSubstr("Vary: Accept-Encoding")) << path;
  }
  EXPECT_THAT(Ask(Head("GET", "/")).body, HasSubstr("<title>Coppice</title>"));
  EXPECT_THAT(Ask(Head("GET", "/?anything=1")).body, HasSubstr("<title>Coppice</title>"));
  EXPECT_THAT(Ask(Head("GET", "/docs")).body, HasSubstr("<title>API of Coppice</title>"));
}

TEST_F(WebServing, HeadIsGetWithoutTheBody) {
  StartCluster();
  for (const char* path : {"/", "/docs", "/web/main.js"}) {
    const RawAnswer get = Ask(Head("GET", path));
    RawClient client(port());
    client.Send(Head("HEAD", path));
    const RawAnswer head = client.ReadHead();
    EXPECT_EQ(head.status, 200);
    EXPECT_TRUE(head.Has(absl::StrCat("Content-Length: ", get.body.size()))) << head.head;
    client.Send(Head("GET", path));
    EXPECT_EQ(client.ReadAnswer().body, get.body);  // no body was in between
  }
}

TEST_F(WebServing, GzipIsDoneOnce) {
  StartCluster();
  const RawAnswer plain = Ask(Head("GET", "/"));
  const RawAnswer gzip = Ask(Head("GET", "/", "Accept-Encoding: gzip\r\n"));
  EXPECT_TRUE(gzip.Has("Content-Encoding: gzip"));
  EXPECT_LT(gzip.body.size(), plain.body.size() / 2);
  EXPECT_EQ(*Gunzip(gzip.body, 1 << 20), plain.body);
  const size_t first = gzip.head.find("Content-Encoding");
  EXPECT_EQ(gzip.head.find("Content-Encoding", first + 1), std::string::npos);
}

TEST_F(WebServing, AnUnchangedFileIsNotSentAgain) {
  StartCluster();
  const RawAnswer first = Ask(Head("GET", "/web/main.js"));
  const std::string known = absl::StrCat("If-None-Match: ", TagOf(first), "\r\n");
  RawClient client(port());
  client.Send(Head("GET", "/web/main.js", known));
  const RawAnswer again = client.ReadHead();
  EXPECT_EQ(again.status, 304);
  EXPECT_THAT(again.head, HasSubstr("304 Not Modified"));
  EXPECT_EQ(TagOf(again), TagOf(first));
  EXPECT_THAT(again.head, Not(HasSubstr("Content-Length")));
  client.Send(Head("GET", "/web/style.css", known));  // the connection goes on
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

TEST_F(WebServing, AClientThatWantsJsonGetsAddresses) {
  StartCluster();
  const RawAnswer answer = Ask(Head("GET", "/", "Accept: application/json\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.Has("Content-Type: application/json"));
  EXPECT_TRUE(answer.Has("Vary: Accept"));
  const json body = json::parse(answer.body);
  EXPECT_EQ(body["name"], "coppice");
  for (const char* name : {"models", "openapi", "docs"})
    EXPECT_EQ(Ask(Head("GET", body[name])).status, 200) << name;
}

TEST_F(WebServing, OtherPathsAndMethodsAreErrors) {
  StartCluster();
  const RawAnswer file = Ask(Head("GET", "/web/none.js"));
  EXPECT_EQ(file.status, 404);
  EXPECT_EQ(json::parse(file.body)["error"]["message"], "there is no /web/none.js");
  EXPECT_EQ(Ask(Head("GET", "/web/")).status, 404);
  EXPECT_EQ(Ask(Head("GET", "/web/..%2Fpage.html")).status, 404);
  const RawAnswer method = Ask(Head("DELETE", "/docs"));
  EXPECT_EQ(method.status, 405);
  EXPECT_TRUE(method.Has("Allow: GET, HEAD, OPTIONS"));
}

TEST_F(WebServing, CanBeSwitchedOff) {
  options_.web = false;
  StartCluster();
  for (const char* path : {"/", "/docs", "/web/main.js"}) {
    const RawAnswer answer = Ask(Head("GET", path));
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_THAT(answer.body, HasSubstr("--web=false")) << path;
  }
  const json body = json::parse(Ask(Head("GET", "/", "Accept: application/json\r\n")).body);
  EXPECT_FALSE(body.contains("docs"));
  EXPECT_EQ(Ask(Head("GET", body["openapi"])).status, 200);
}

TEST_F(WebServing, CountsAsItsOwnHandlers) {
  StartCluster();
  Ask(Head("GET", "/"));
  Ask(Head("GET", "/web/main.js"));
  Ask(Head("GET", "/web/dom.js"));
  const auto requests = [this](const char* handler) {
    return Metric(absl::StrCat("coppice_http_requests_total{handler=\"", handler,
                               "\",method=\"GET\",status=\"2xx\"}"));
  };
  EXPECT_TRUE(Eventually([&] { return requests("page") == 1 && requests("web") == 2; }));
}

}  // namespace
}  // namespace coppice::coordinator
