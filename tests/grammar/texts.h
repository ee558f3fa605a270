// Texts against the automaton of a grammar, for the tests of its readers.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grammar/automaton.h"
#include "grammar/expression.h"

namespace coppice::grammar {

inline absl::StatusOr<Automaton> MakeAutomaton(const absl::StatusOr<Grammar>& grammar) {
  if (!grammar.ok()) return grammar.status();
  return Automaton::Make(*grammar);
}

inline bool HasText(Automaton* automaton, absl::string_view text) {
  Automaton::State state = automaton->start();
  for (const char c : text) state = automaton->Next(state, static_cast<uint8_t>(c));
  return state >= 0 && automaton->Complete(state);
}

inline void ExpectTexts(const absl::StatusOr<Grammar>& grammar,
                        const std::vector<std::string>& accepted,
                        const std::vector<std::string>& refused) {
  auto automaton = MakeAutomaton(grammar);
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  for (const std::string& text : accepted) EXPECT_TRUE(HasText(&*automaton, text)) << text;
  for (const std::string& text : refused) EXPECT_FALSE(HasText(&*automaton, text)) << text;
}

// A text of the language, byte by byte at random. After `eager` bytes the shortest way to the end
// is taken more and more often.
inline std::string RandomText(Automaton* automaton, std::mt19937* random, size_t eager) {
  std::string text;
  Automaton::State state = automaton->start();
  while (true) {
    const bool hurry = text.size() > eager;
    if (automaton->Complete(state) && (hurry || (*random)() % 4 == 0)) return text;
    std::vector<uint8_t> live, closing;
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      if (automaton->Next(state, b) == Automaton::kDead) continue;
      live.push_back(b);
      if (byte == '"' || byte == ']' || byte == '}') closing.push_back(b);
    }
    if (live.empty()) {
      EXPECT_TRUE(automaton->Complete(state)) << "no way on after " << text;
      return text;
    }
    const std::vector<uint8_t>& from =
        !closing.empty() && (*random)() % 4 < (hurry ? 3 : 1) ? closing : live;
    const uint8_t byte = from[(*random)() % from.size()];
    text.push_back(static_cast<char>(byte));
    state = automaton->Next(state, byte);
    if (text.size() > 100'000) {
      ADD_FAILURE() << "no end";
      return text;
    }
  }
}

// Reads pieces of the texts and texts with some bytes changed. Reading them must end.
template <typename ReadText>
void ExpectNoCrash(const std::vector<std::string>& texts, ReadText read) {
  std::mt19937 random(7);
  for (const std::string& text : texts) {
    for (int i = 0; i < 300; ++i) {
      std::string broken = text.substr(0, random() % (text.size() + 1));
      if (i % 2 == 0) broken = text;
      for (int flips = static_cast<int>(random() % 4); flips > 0 && !broken.empty(); --flips) {
        char& byte = broken[random() % broken.size()];
        byte = random() % 2 == 0 ? static_cast<char>(random()) : text[random() % text.size()];
      }
      auto automaton = MakeAutomaton(read(broken));
      if (automaton.ok()) {
        HasText(&*automaton, text);
      } else {
        EXPECT_EQ(automaton.status().code(), absl::StatusCode::kInvalidArgument);
      }
    }
  }
}

}  // namespace coppice::grammar
