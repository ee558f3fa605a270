// Layers of experts (Ops::MixExperts): six launches around the activation, each a function here.
// Which experts a row takes, and how many rows an expert has, is known to the device alone, so
// every launch has a grid for the most that there can be. The bits of a row depend on the row and
// the weights alone. Launch errors are left for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// Lists of one layer, in device memory. A pair: a row and one of its experts; their number is rows *
// chosen. Written by the functions below, in their order.
struct ExpertLists {
  float* scores = nullptr;    // [rows, experts]
  int32_t* chosen = nullptr;  // [rows, chosen] experts, ascending
  float* shares = nullptr;    // [rows, chosen]
  int32_t* begin = nullptr;   // [experts + 1] first pair of each expert
  int32_t* used = nullptr;    // [1 + experts] how many experts have rows, and which, ascending
  int32_t* source = nullptr;  // [pairs] the row of a pair: by expert, then by row
  int32_t* place = nullptr;   // [rows, chosen] the pair

  bool operator==(const ExpertLists&) const = default;
};

struct ExpertsArgs {
  const void* router = nullptr;          // [experts, columns]
  const void* const* gate_up = nullptr;  // [experts] of [2 inner, columns]
  const void* const* down = nullptr;     // [experts] of [columns, inner]
  Activation activation = Activation::kSilu;
  int32_t experts = 0, chosen = 0;
  bool normalised = false;
  const void* x = nullptr;     // [rows, columns] of `dtype`
  float* out = nullptr;        // [rows, columns]
  DType dtype = DType::kBF16;  // of the matrices and x
  int32_t rows = 0;
  bool after_gather = false;  // the rows are those with needs
  int64_t columns = 0, inner = 0;
  ExpertLists lists;
  void* gate_up_out = nullptr;  // [pairs, 2 inner] of `dtype`
  void* activated = nullptr;    // [pairs, inner] of `dtype`
  float* outputs = nullptr;     // [pairs, columns]

  int64_t pairs() const { return int64_t{rows} * chosen; }
  // Experts that can have rows.
  int64_t most_used() const { return std::min<int64_t>(experts, pairs()); }
  bool operator==(const ExpertsArgs&) const = default;
};

// Rows that only pad the step have no pairs, and zeros as their output.
void ScoreExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream);
void ChooseExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream);
void ListExperts(const StepView& step, const ExpertsArgs& args, cudaStream_t stream);
// Of each pair the row of x through the gate and up of its expert; through down. An output is summed
// from its first input to its last.
void EnterExperts(const ExpertsArgs& args, cudaStream_t stream);
void LeaveExperts(const ExpertsArgs& args, cudaStream_t stream);
// Adds the outputs of a row's pairs times their shares, in ascending order of the experts.
void AddShares(const StepView& step, const ExpertsArgs& args, cudaStream_t stream);
// EnterExperts leaves what this takes.
ActivateArgs ActivationOf(const ExpertsArgs& args);

inline constexpr int kExpertLaunches = 7;

}  // namespace coppice::kernels::cuda
