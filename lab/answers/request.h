// One request of a recording: what to decode and the shape of its drafts. Made by MakeRequest, or
// read from a recording (answer_json.h). Values.
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
  decoding::DecodingParams params;         // all except the method
  int forest_width = 0, forest_depth = 0;  // of every draft; 0 = no drafts
  int late = 0;                            // > 0: every late-th round gets no draft and is plain
};

struct RequestSource {
  uint64_t seed = 1;
  int vocab_size = 0;
  std::vector<TokenId> stop_ids;              // of the model
  std::vector<std::vector<TokenId>> prompts;  // requests begin with parts of these; not empty
};

// Request `number` of a source: a pure function of both, in integer arithmetic. Successive numbers
// go through every method of the table, "auto" and "none", with every decoding that it serves. The
// other parameters are drawn at random. A few requests are not served by any decoder.
AnswerRequest MakeRequest(const RequestSource& source, int number);
// The parameters with their method. InvalidArgument: no such method.
absl::StatusOr<decoding::DecodingParams> ParamsOf(const AnswerRequest& request);

// "17 dsbd beam_sampling W=4 drafts 8 x 3"
std::string RequestName(const AnswerRequest& request);

}  // namespace coppice::answers
