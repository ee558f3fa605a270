// What a decoder knows of the text of its paths: where a stop string is completed. Implemented by
// tokenizer/stop_strings.h, which has the bytes of the vocabulary.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"

namespace coppice {

// Immutable; any thread.
class StopText {
 public:
  // Everything that later matches depend on: two paths with equal states have equal futures.
  using State = uint64_t;

  virtual ~StopText() = default;
  virtual State Start() const = 0;  // state after the prompt
  // The state after one more token. search: whether a stop string may be completed in its text, and
  // may begin there.
  virtual State Next(State state, TokenId token, bool search) const = 0;
  virtual bool Matched(State state) const = 0;  // a stop string has been completed
  // The tokens that complete a stop string after this state, ascending.
  virtual std::vector<TokenId> Completing(State state) const = 0;
};

}  // namespace coppice
