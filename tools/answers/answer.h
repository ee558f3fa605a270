// The answer to a request and how it came about, round by round, decoded by a LocalReplica: the
// production prefill, forest, verdict and commit. Thread-compatible.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "tools/answers/request.h"
#include "tools/lab/local_replica.h"

namespace coppice::answers {

struct Answer {
  absl::Status refused;                          // why no decoder or drafter serves the request
  std::vector<decoding::Hypothesis> hypotheses;  // best first
  // Of every round:
  std::vector<int> layers;          // decided
  std::vector<int> drafted_nodes;   // verified
  std::vector<int> accepted_nodes;  // that became beams
  std::vector<int> stable_prefix;   // tokens, after the round
};

// A status other than InvalidArgument is an error of the program or of its memory, not an answer.
absl::StatusOr<Answer> RunRequest(const AnswerRequest& request, lab::LocalReplica* replica);

}  // namespace coppice::answers
