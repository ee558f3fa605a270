// Drafts that are predicted: what a decoder of their shape enqueues, with weights in bf16 or as other
// formats would have them. Pure.
#pragma once

#include <vector>

#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/predicted_step.h"

namespace coppice::bench {

// How matrices are kept. In kInt4 head and QKV are kInt8, as by --weight_dtype.
enum class WeightFormat { kBf16, kInt8, kInt4 };

struct PredictedDraft {
  const char* name;
  ModelShape shape;
  WeightFormat format = WeightFormat::kBf16;
};
std::vector<PredictedDraft> PredictedDrafts();

// The same work with weights in groups of 32 that share a scale of 16 bits, widened in registers by
// a kernel of ours, which overlaps if the launch before does.
Work WithFormat(Work work, const ModelShape& shape, WeightFormat format);

// The first `levels` levels of forests.
Work FirstLevels(const Work& forests, int levels);

}  // namespace coppice::bench
