#include "base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

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

}  // namespace
}  // namespace coppice
