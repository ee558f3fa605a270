// What speculation would gain on one GPU: Llama-3.1-8B with several drafts, by requests and
// context, with what limits each; and the goals that need no GPU to be judged.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/device_model.h"

namespace coppice::bench {

// The chance that a layer is covered by this many nodes, if it is `p` by seven. The rest falls as
// nodes^-0.56: 2, 4 and 8 nodes gave 2.38, 3.00 and 3.49 layers of forests four deep, W = 4
// (lab/measurements/2026-11-22-draft-forests.md, independent of position in the forest).
double CoverageOf(double p, int nodes);
// Layers that a step with a forest decides: 1 + p + .. + p^depth.
double LayersOf(double p, int nodes, int depth);

struct TableOptions {
  bool overlap = false;      // launches overlap
  bool details = false;      // prints what each kernel of a draft's pass takes
  std::string tuning_cache;  // a folder for products as the predicted times choose them
};
absl::Status PredictTable(const DeviceModel& device, const TableOptions& options,
                          kernels::cuda::DeviceStream* stream);

}  // namespace coppice::bench
