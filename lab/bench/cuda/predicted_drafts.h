// Drafts that are predicted but not all built: what a decoder of the same shape enqueues, with the
// weights of other formats, or with what a head on hidden states does besides. Pure.
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
  bool reads_states = false;  // a head on the target's hidden states (EAGLE-3)
};
std::vector<PredictedDraft> PredictedDrafts();

// The same work with weights in groups of 32 that share a scale of 16 bits, widened in registers by
// a kernel of ours, which overlaps if the launch before does.
Work WithFormat(Work work, const ModelShape& shape, WeightFormat format);

// What the head does besides a decoder layer: QKV reads the token's embedding and the state, each
// with a norm of its own. The first level has `again` rows of each of `requests` besides those of
// `work`, rows of the path that was accepted, now with their true states, and fuses three states of
// each row into one.
struct StateRows {
  int requests = 0, roots = 0, again = 0;  // rows of a request
};
Work WithStates(const Work& work, const ModelShape& shape, const StateRows& rows);

// The first `levels` levels of forests.
Work FirstLevels(const Work& forests, int levels);

}  // namespace coppice::bench
