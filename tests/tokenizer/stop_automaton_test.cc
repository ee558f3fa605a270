#include "tokenizer/stop_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace coppice::tokenizer {
namespace {

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

size_t LongestStopThatEnds(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    if (EndsWith(text, stop)) longest = std::max(longest, stop.size());
  }
  return longest;
}

size_t LongestEndThatBeginsAStop(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length <= stop.size(); ++length) {
      if (EndsWith(text, stop.substr(0, length))) longest = std::max(longest, length);
    }
  }
  return longest;
}

TEST(StopAutomaton, FindsWhatANaiveSearchFinds) {
  std::mt19937 random(7);
  const auto text_of = [&](size_t most, int letters) {
    std::string text(1 + random() % most, 0);
    for (char& c : text) c = static_cast<char>(0xfe + random() % letters);  // 0xfe, 0xff, 0, 1
    return text;
  };
  size_t matches = 0;
  for (int round = 0; round < 2000; ++round) {
    const int letters = 2 + static_cast<int>(random() % 3);
    std::vector<std::string> stops(random() % 6);
    for (std::string& stop : stops) stop = text_of(1 + random() % 7, letters);
    const StopAutomaton automaton(stops);
    StopAutomaton::Node node = 0;
    std::string text;
    for (const char byte : text_of(40, letters)) {
      text.push_back(byte);
      node = automaton.Next(node, byte);
      ASSERT_EQ(automaton.matched(node), LongestStopThatEnds(text, stops)) << round;
      ASSERT_EQ(automaton.begun(node), LongestEndThatBeginsAStop(text, stops)) << round;
      matches += automaton.matched(node) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(matches, 5000u);
}

TEST(StopAutomaton, TheMostBytes) {
  const std::string stop(StopAutomaton::kMostBytes, 'a');
  const StopAutomaton automaton({stop});
  StopAutomaton::Node node = 0;
  for (size_t i = 1; i <= stop.size() + 5; ++i) {
    node = automaton.Next(node, 'a');
    ASSERT_EQ(automaton.begun(node), std::min(i, stop.size()));
    ASSERT_EQ(automaton.matched(node) > 0, i >= stop.size());
  }
}

}  // namespace
}  // namespace coppice::tokenizer
