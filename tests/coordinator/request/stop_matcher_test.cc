#include "coordinator/request/stop_matcher.h"

#include <gtest/gtest.h>

namespace coppice::coordinator {
namespace {

// The text that is shown when the text arrives in pieces of `size` bytes.
std::string Shown(const std::vector<std::string>& stops, bool include, const std::string& text,
                  size_t size, std::string* matched = nullptr) {
  StopMatcher matcher(stops, include);
  std::string shown;
  for (size_t at = 0; at < text.size(); at += size) shown += matcher.Append(text.substr(at, size));
  shown += matcher.Finish();
  if (matched != nullptr) *matched = matcher.matched().value_or("none");
  return shown;
}

TEST(StopMatcher, CutsAtTheFirstOccurrenceHoweverThePiecesFall) {
  const std::string text = "one two three two";
  for (size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(Shown({"two"}, false, text, size), "one ") << size;
    EXPECT_EQ(Shown({"two"}, true, text, size), "one two") << size;
    EXPECT_EQ(Shown({"four"}, false, text, size), text) << size;
  }
}

TEST(StopMatcher, TheMatchThatIsCompleteFirstWins) {
  std::string matched;
  for (size_t size = 1; size <= 6; ++size) {
    EXPECT_EQ(Shown({"abcde", "cd"}, false, "xabcde", size, &matched), "xab") << size;
    EXPECT_EQ(matched, "cd") << size;
    EXPECT_EQ(Shown({"cd", "bcd"}, false, "xabcde", size, &matched), "xa") << size;
    EXPECT_EQ(matched, "bcd") << size;
  }
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStop) {
  StopMatcher matcher({"\n\nEND", "aab"}, false);
  EXPECT_EQ(matcher.Append("text\n"), "text");
  EXPECT_EQ(matcher.Append("\n"), "");
  EXPECT_EQ(matcher.Append("E"), "");
  EXPECT_EQ(matcher.Append("x"), "\n\nEx");
  EXPECT_EQ(matcher.Append("aa"), "");
  EXPECT_EQ(matcher.Append("a"), "a");
  EXPECT_EQ(matcher.Append("b"), "");
  EXPECT_EQ(matcher.matched(), "aab");
  EXPECT_EQ(matcher.Append("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

}  // namespace
}  // namespace coppice::coordinator
