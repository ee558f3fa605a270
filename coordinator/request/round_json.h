// A round of a sequence as JSON text: what a request with `trace` shows (docs/api.md 3.3). Pure.
#pragma once

#include <cstddef>
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

// A round that is to be shown.
struct ShownRound {
  RoundOrigin origin;
  proto::RoundTimes times;  // without its forest
  decoding::RoundForest forest;

  // Approximate bytes of its JSON.
  size_t bytes() const { return 300 + 80 * static_cast<size_t>(forest.entries()); }
};

std::string RoundJson(const ShownRound& round, const tokenizer::Tokenizer& tokenizer);

}  // namespace coppice::coordinator
