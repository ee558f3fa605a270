// Every construct and every family gives what Jinja2 gives (tests/tokenizer/chat_template/make_chat_fixtures.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/chat_template/families.h"

namespace coppice::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

const std::string kChatFixtures = "tests/tokenizer/chat_template/fixtures/";

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

class ChatFixtures : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("TZ", "UTC", 1);  // the fixtures show a time
    tzset();
  }
  static void ExpectOutcome(const std::string& source, const Json& variables, const Json& wanted,
                            int64_t now) {
    const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source);
    if (!parsed.ok()) {
      EXPECT_TRUE(wanted.contains("fails")) << source << "\n" << parsed.status();
      return;
    }
    const absl::StatusOr<std::string> text = parsed->Render(variables, now);
    if (wanted.contains("text")) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.status();
      EXPECT_EQ(*text, wanted["text"].get<std::string>()) << source;
    } else {
      ASSERT_FALSE(text.ok()) << source << "\n" << *text;
      EXPECT_EQ(text.status().code() == absl::StatusCode::kFailedPrecondition,
                wanted.contains("raises"))
          << source << text.status();
      if (wanted.contains("raises")) {
        EXPECT_EQ(text.status().message(), wanted["raises"].get<std::string>());
      }
    }
  }
};

TEST_F(ChatFixtures, EveryConstructIsThatOfJinja2) {
  const Json fixture = Json::parse(ReadText(kChatFixtures + "language.json"));
  ASSERT_GT(fixture["cases"].size(), 90u);
  for (const Json& entry : fixture["cases"])
    ExpectOutcome(entry["template"], fixture["variables"], entry, fixture["now"]);
}

TEST_F(ChatFixtures, EveryConversationIsThatOfJinja2) {
  const Json fixture = Json::parse(ReadText(kChatFixtures + "conversations.json"));
  ASSERT_EQ(fixture["templates"].size(), FamilyNames().size() + 8);
  for (const Json& chat : fixture["templates"]) {
    const std::string source = ReadText(chat["template"].get<std::string>());
    for (const Json& entry : chat["cases"])
      ExpectOutcome(source, entry["variables"], entry, fixture["now"]);
  }
}

TEST_F(ChatFixtures, FamiliesAreTheirFiles) {
  for (const std::string& family : FamilyNames())
    EXPECT_EQ(FamilyTemplate(family),
              ReadText("tokenizer/chat_template/families/" + family + ".jinja"));
  EXPECT_EQ(FamilyTemplate("llama-1"), nullptr);
}

}  // namespace
}  // namespace coppice::tokenizer
