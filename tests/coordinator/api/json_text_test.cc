// Texts as JSON strings.
#include "coordinator/api/json_text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace coppice::coordinator {
namespace {

std::string Dumped(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TEST(QuotedText, IsWhatADumpWritesForEachByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = {'a', static_cast<char>(byte), 'b'};
    EXPECT_EQ(QuotedText(text), Dumped(text)) << byte;
  }
}

TEST(QuotedText, IsWhatADumpWritesForRandomTexts) {
  const std::string parts[] = {
      "a",        "\"",       "\\",           "\n", "\x01",         "\x7f", "\xc3",
      "\xc3\xa9", "\xe2\x82", "\xe2\x82\xac", "/",  "\xed\xa0\x80", "",     "\xf0\x9f\x8c\xb3"};
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint32_t length = random() % 8; length > 0; --length)
      text += parts[random() % std::size(parts)];
    EXPECT_EQ(QuotedText(text), Dumped(text));
  }
}

}  // namespace
}  // namespace coppice::coordinator
