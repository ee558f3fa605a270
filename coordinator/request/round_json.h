// A round of a sequence as JSON text: what a request with `trace` shows (docs/api.md 3.3). Pure.
#pragma once

#include <string>

#include "proto/control.pb.h"
#include "proto/convert.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

// Whose round it is.
struct RoundOrigin {
  int prompt = 0, sample = 0;
  int run = 0;  // how often the sequence was begun anew
};

std::string RoundJson(const RoundOrigin& origin, const proto::RoundTimes& times,
                      const decoding::RoundForest& forest, const tokenizer::Tokenizer& tokenizer);

}  // namespace coppice::coordinator
