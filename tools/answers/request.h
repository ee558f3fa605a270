// One request of the recorded answers: what is decoded, and the shape of its drafts. Values. Made
// by MakeRequest, or read from a recording (answer_json.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/params.h"

namespace coppice::answers {

struct AnswerRequest {
  int number = 0;  // from 0
  std::vector<TokenId> prompt;
  std::string method = "auto";             // a row's name, "auto", or "none": nothing is drafted
  decoding::DecodingParams params;         // all but the method
  int forest_width = 0, forest_depth = 0;  // of every draft; 0 = no drafts
  int late = 0;  // > 0: the draft of every late-th round does not come; its round is plain
};

struct RequestSource {
  uint64_t seed = 1;
  int vocab_size = 0;
  std::vector<TokenId> stop_ids;              // of the model
  std::vector<std::vector<TokenId>> prompts;  // requests begin with parts of these; not empty
};

// Request `number` of a source: a pure function of both, in integers alone. Numbers go through
// every method of the table with every decoding that it serves, "auto" and "none" included; all
// other parameters are drawn. A few requests ask for what no decoder serves.
AnswerRequest MakeRequest(const RequestSource& source, int number);
// The parameters with their method. InvalidArgument: no such method.
absl::StatusOr<decoding::DecodingParams> ParamsOf(const AnswerRequest& request);

// "17 dsbd beam_sampling W=4 drafts 8 x 3"
std::string RequestName(const AnswerRequest& request);

}  // namespace coppice::answers
