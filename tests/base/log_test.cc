#include "base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace coppice {
namespace {

TEST(Log, EachLineOfTheJsonFormIsJson) {
  ASSERT_TRUE(InitLog("tester", "info", "json").ok());
  const std::string hard = "model \"C:\\new\":\n\tline 2\x01 \xe2\x82\xac";
  ::testing::internal::CaptureStderr();
  spdlog::info("{}", hard);
  spdlog::warn("plain");
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  for (const auto& [level, message] :
       {std::pair{"info", hard}, std::pair{"warning", std::string("plain")}}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << line;
    EXPECT_EQ(json["level"], level);
    EXPECT_EQ(json["actor"], "tester");
    EXPECT_EQ(json["message"], message);
  }
}

const std::vector<LogField> kFields = {{"count", int64_t{7}},
                                       {"ms", 1.23456},
                                       {"name", std::string("a \"b\"\n\xff")},
                                       {"plain", std::string("x")},
                                       {"list", std::vector<std::string>{"a", "b"}},
                                       {"nothing", LogValue()}};

TEST(Log, FieldsAreTypedMembersOfTheJsonForm) {
  ASSERT_TRUE(InitLog("tester", "info", "json").ok());
  ::testing::internal::CaptureStderr();
  LogFields(spdlog::level::info, "some \"thing\"", kFields);
  LogFields(spdlog::level::debug, "not shown", kFields);
  const std::string out = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  const nlohmann::json json = nlohmann::json::parse(out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << out;
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["actor"], "tester");
  EXPECT_EQ(json["time"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000Z").size());
  EXPECT_EQ(json["message"], "some \"thing\"");
  EXPECT_TRUE(json["count"].is_number_integer());
  EXPECT_EQ(json["count"], 7);
  EXPECT_EQ(json["ms"], 1.23);
  EXPECT_EQ(json["name"], "a \"b\"\n\xef\xbf\xbd");
  EXPECT_EQ(json["list"], nlohmann::json({"a", "b"}));
  EXPECT_TRUE(json.contains("nothing") && json["nothing"].is_null());
}

TEST(Log, FieldsAreWordsOfTheTextForm) {
  ASSERT_TRUE(InitLog("tester", "info", "text").ok());
  ::testing::internal::CaptureStderr();
  LogFields(spdlog::level::info, "some thing", kFields);
  const std::string out = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(out.substr(out.find("tester: ")),
            "tester: some thing count=7 ms=1.23 name=\"a \\\"b\\\"\\n\\xff\" plain=x list=a,b "
            "nothing=-\n");
}

// A message that is not UTF-8 still gives a JSON line.
TEST(Log, AnyBytesOfAMessageGiveJson) {
  ASSERT_TRUE(InitLog("tester", "info", "json").ok());
  ::testing::internal::CaptureStderr();
  spdlog::info("caf\xe9");
  const std::string out = ::testing::internal::GetCapturedStderr();
  const nlohmann::json json = nlohmann::json::parse(out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << out;
  EXPECT_EQ(json["message"], "caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace coppice
