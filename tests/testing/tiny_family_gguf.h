// The tiny checkpoint of a family as a GGUF file, by what the specification of the format and the
// programs that write files say. The matrices of the experts of a layer are stacked in one tensor.
//   dir.Write("model.gguf", GgufOfFamily(MakeTinyFamily("mixtral")).Bytes());
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/testing/gguf_builder.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::test {

GgufBuilder GgufOfFamily(const TinyLlama& model);

// The tensors of the folder that are the matrices of experts, in the order of the experts, by the
// name of the tensor that stacks them: "blk.0.ffn_up_exps.weight".
std::map<std::string, std::vector<std::string>> ExpertMatrices(const TinyLlama& model);

}  // namespace coppice::test
