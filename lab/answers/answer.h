// The answer to a request, with the results of each round. A LocalReplica decodes it, with the
// production prefill, forest, verdict and commit. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "lab/answers/request.h"
#include "lab/experiments/local_replica.h"

namespace coppice::answers {

struct Answer {
  absl::Status refused;                          // the reason, if no decoder or drafter serves it
  std::vector<decoding::Hypothesis> hypotheses;  // best first
  // One entry for each round:
  std::vector<int> layers;          // decided
  std::vector<int> drafted_nodes;   // verified
  std::vector<int> accepted_nodes;  // those that became beams
  std::vector<int> stable_prefix;   // tokens, after the round
};

// A refusal is an answer. An error means that the program failed, for example for lack of memory.
absl::StatusOr<Answer> RunRequest(const AnswerRequest& request, lab::LocalReplica* replica);

}  // namespace coppice::answers
