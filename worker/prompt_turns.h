// Which prompts get the prefill of a step: turns between clients, by weight. Of a client's prompts
// the oldest and the one with the fewest missing tokens have half of its turns each, so a short
// prompt does not wait for long ones, and a stream of short ones does not stop a long one. Called
// by StepPlanner. Thread-compatible.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/fair_turns.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct WaitingPrompt {
  Sequence* sequence;
  int left;  // tokens to prefill
};

class PromptTurns {
 public:
  struct Read {
    int tokens = 0;
    int rows = 0;          // rows in the step: tokens, and the root of a first round
    bool goes_on = false;  // has more to read in this step
    int left = 0;          // tokens left after it; 0: only its first round has no room yet
  };
  // Reads up to `tokens` tokens of a prompt in up to `rows` > 0 rows. `tokens` is 0 only for a
  // prompt without missing tokens. Reads something, or does not continue.
  using ReadPrompt = absl::FunctionRef<Read(Sequence*, int tokens, int rows)>;

  // Prompts in order of arrival. At most `tokens` are read, in at most `rows` rows. First rounds of
  // prompts without missing tokens need only rows.
  void Run(absl::Span<const WaitingPrompt> prompts, int tokens, int rows, ReadPrompt read);

  const FairTurns& turns() const { return turns_; }

 private:
  FairTurns turns_;
};

}  // namespace coppice::worker
