#include "coordinator/http/cors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice::coordinator {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

HttpHeaders Headers(std::vector<std::string> origins, const std::string& origin,
                    const std::string& method = "POST") {
  HttpRequest request;
  request.method = method;
  request.origin = origin;
  return CorsPolicy(std::move(origins)).HeadersFor(request);
}

TEST(CorsTest, WithoutOriginsNothingIsSaid) {
  EXPECT_THAT(Headers({}, "https://a.example"), IsEmpty());
  EXPECT_THAT(Headers({}, "https://a.example", "OPTIONS"), IsEmpty());
}

TEST(CorsTest, AnAllowedOriginIsNamed) {
  const std::vector<std::string> two = {"https://a.example", "http://localhost:3000"};
  for (const std::string& origin : two) {
    const HttpHeaders headers = Headers(two, origin);
    EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Origin", origin)));
    EXPECT_THAT(headers, Contains(Pair("Vary", "Origin")));
    EXPECT_THAT(headers, Contains(Key("Access-Control-Expose-Headers")));
    EXPECT_THAT(headers, Not(Contains(Key("Access-Control-Allow-Credentials"))));
  }
}

TEST(CorsTest, OtherOriginsAreNot) {
  for (const char* other : {"https://b.example", "https://a.example.evil", "http://a.example",
                            "null", "https://a.example:8443", "", "*"}) {
    for (const char* method : {"POST", "OPTIONS"}) {
      EXPECT_THAT(Headers({"https://a.example"}, other, method),
                  testing::ElementsAre(Pair("Vary", "Origin")))
          << other;
    }
  }
}

TEST(CorsTest, AllOrigins) {
  for (const char* origin : {"https://b.example", "null", ""}) {
    const HttpHeaders headers = Headers({"https://a.example", "*"}, origin);
    EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Origin", "*"))) << origin;
    EXPECT_THAT(headers, Not(Contains(Key("Vary"))));  // it is the same for all
  }
}

TEST(CorsTest, APreflightIsTold) {
  const HttpHeaders headers = Headers({"https://a.example"}, "https://a.example", "OPTIONS");
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Allow-Methods", testing::HasSubstr("POST"))));
  EXPECT_THAT(headers,
              Contains(Pair("Access-Control-Allow-Headers", testing::HasSubstr("Authorization"))));
  EXPECT_THAT(headers, Contains(Pair("Access-Control-Max-Age", "7200")));
}

TEST(CorsTest, OriginsAreChecked) {
  for (const char* good : {"*", "https://a.example", "http://localhost:3000", "http://[::1]:80",
                           "app://tauri.localhost"}) {
    EXPECT_EQ(CorsPolicy::Fault(good), "") << good;
  }
  for (const char* bad : {"a.example", "https://a.example/", "https://a.example/app", "https://",
                          "https://A.example", "null", "https://*.example ", "://x"}) {
    EXPECT_NE(CorsPolicy::Fault(bad), "") << bad;
  }
}

}  // namespace
}  // namespace coppice::coordinator
