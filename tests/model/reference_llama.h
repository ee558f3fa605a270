// A second, naive Llama forward pass in double precision, with the stored weights. It is the
// reference of decoder_test and shares no code with model/ or kernels/.
#pragma once

#include <vector>

#include "base/types.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {

// Logits after every token of the sequence, [tokens.size()][vocab].
std::vector<std::vector<double>> ReferenceLogits(const test::TinyLlama& model,
                                                 const std::vector<TokenId>& tokens);

}  // namespace coppice::model
