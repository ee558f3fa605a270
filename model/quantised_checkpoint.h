// A Hugging Face folder with `quantization_config`: NAME.weight is made from the tensors that stand
// for it. Called by checkpoint.cc. Thread-compatible.
//   kGptq    NAME.qweight, .qzeros, .scales, .g_idx     blocks of Q4_0, Q5_0 where zeros differ, or
//   kAwq     NAME.qweight, .qzeros, .scales             Q8_0 of 8 bits (code_matrix.h)
//   kPacked  NAME.weight_packed, .weight_scale, .weight_zero_point
//   kInt8    NAME.weight, .weight_scale                 blocks of Q8_0 where f16 holds the scales
//   kFp8     NAME.weight, .weight_scale(_inv)           f32, as int8 without blocks
// What lies in the folder as NAME.weight in F32, F16 or BF16 is not quantised, whatever the lists
// of config.json say.
#pragma once

#include <memory>

#include "model/checkpoint.h"
#include "model/quantisation.h"
#include "model/safetensors_checkpoint.h"

namespace coppice::model {

std::unique_ptr<Checkpoint> MakeQuantisedCheckpoint(std::unique_ptr<StoredTensors> stored,
                                                    const Quantisation& quantisation);

}  // namespace coppice::model
