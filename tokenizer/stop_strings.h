// Finds stop strings in the text of token paths: runs the automaton of stop_automaton.h over the
// text that a Detokenizer gives (U+FFFD for invalid bytes, leading spaces dropped), so that the
// token at which a path ends is the one at which a client's text is cut. The worker makes one for a
// sequence.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/stop_text.h"
#include "tokenizer/stop_automaton.h"
#include "tokenizer/vocabulary.h"

namespace coppice::tokenizer {

class StopStrings : public StopText {
 public:
  // stops: at least one, as StopAutomaton takes them.
  StopStrings(std::shared_ptr<const Vocabulary> vocabulary, absl::Span<const std::string> stops,
              bool skip_special, absl::Span<const TokenId> prompt);

  State Start() const override { return start_; }
  State Next(State state, TokenId token, bool search) const override;
  bool Matched(State state) const override;
  std::vector<TokenId> Completing(State state) const override;

 private:
  struct Text;
  State AfterPrompt(absl::Span<const TokenId> prompt) const;
  void AddByte(char byte, bool search, Text* text) const;
  void AddText(absl::string_view settled, Text* text) const;

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const bool skip_special_;
  const StopAutomaton automaton_;
  State start_;

  mutable std::mutex lock_;
  mutable std::map<State, std::vector<TokenId>> completing_;  // by the states that were asked for
};

}  // namespace coppice::tokenizer
