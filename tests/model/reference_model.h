// A second, naive forward pass of every family in double precision, with the stored weights, as
// Transformers defines it. It is the reference of the tests of the forward pass and shares no code
// with model/ or kernels/.
#pragma once

#include <vector>

#include "base/types.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

// Logits after every token of the sequence, [tokens.size()][vocab].
std::vector<std::vector<double>> ReferenceLogits(const test::TinyLlama& model,
                                                 const std::vector<TokenId>& tokens);

// The residual stream after each layer, before any norm, [layers][tokens.size()][hidden].
std::vector<std::vector<std::vector<double>>> ReferenceOutputs(const test::TinyLlama& model,
                                                               const std::vector<TokenId>& tokens);

// The `count` tokens that greedy decoding appends.
std::vector<TokenId> ReferenceGreedy(const test::TinyLlama& model, std::vector<TokenId> tokens,
                                     int count);

}  // namespace coppice::model
