// A verification method with a decoding that it serves, as the parameter of tests that go through
// all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"
#include "decoding/method.h"
#include "decoding/params.h"

namespace coppice::test {

struct MethodCase {
  const decoding::MethodRow* method;
  sampling::DecodingKind kind;

  // Three beams where there are several. The sampling parameters are the default ones, or greedy
  // where the method serves nothing else.
  decoding::DecodingParams Params(int max_tokens, TokenId eos, uint64_t seed) const {
    decoding::DecodingParams params;
    params.kind = kind;
    params.method = method;
    params.beam_width = params.num_hypotheses =
        kind == sampling::DecodingKind::kMultinomial ? 1 : 3;
    params.max_tokens = max_tokens;
    params.stop_ids = {eos};
    params.seed = seed;
    if (method->greedy_only) params.sampling.temperature = 0;
    return params;
  }
  bool fixed_sampling() const {
    return method->greedy_only || kind == sampling::DecodingKind::kBeamSearch;
  }
  // Of a draft: `width` where the method leaves it open.
  int DraftWidth(int width) const {
    if (method->form == decoding::DraftForm::kPath) return 1;
    return method->most_children > 0 ? method->most_children : width;
  }
  std::string Name() const {
    return std::string(method->name) + "_" + std::string(sampling::DecodingKindName(kind));
  }
};

// Of the methods for which wanted(row) holds.
template <class Wanted>
std::vector<MethodCase> MethodCases(Wanted wanted) {
  std::vector<MethodCase> cases;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    if (!wanted(row)) continue;
    for (const sampling::DecodingKind kind : row.serves) cases.push_back({&row, kind});
  }
  return cases;
}

}  // namespace coppice::test
