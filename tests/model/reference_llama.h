// A second, naive Llama forward pass, in double precision over the stored weights: the reference of
// decoder_test. Shares no code with model/ or kernels/.
#pragma once

#include <vector>

#include "base/types.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

// Logits after every token of the sequence, [tokens.size()][vocab].
std::vector<std::vector<double>> ReferenceLogits(const test::TinyLlama& model,
                                                 const std::vector<TokenId>& tokens);

}  // namespace coppice::model
