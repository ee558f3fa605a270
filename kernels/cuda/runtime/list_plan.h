// Which rows of a step the device lists, and how: the tasks of the kernels (candidate_lists.h), and
// what their results mean. Called by CudaStepRows. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/ops/candidate_lists.h"
#include "plan/step_plan.h"
#include "sampling/candidate_list.h"

namespace coppice::kernels::cuda {

struct ListPlan {
  struct OfNeed {
    int32_t first_list = -1;  // the need's lists follow each other; -1 = the row goes whole
    int32_t lists = 0;
    int32_t sums = -1, raw_sums = -1;  // index of the SumTask; -1 = not wanted
  };
  std::vector<OfNeed> needs;
  std::vector<ListTask> lists;
  std::vector<SumTask> sums;
  std::vector<TokenBias> bias;  // biases of the plan
  size_t entries = 0;           // number of ListEntry, over all pieces
  size_t record_words = 0;

  bool IsListed(int need) const { return needs[need].first_list >= 0; }
};

// f32 keys of a noisy list may be too low by this much, in nats, where the largest key that is left
// out is `key`. Derived in lab/measurements/2026-11-22-cuda-noise.md (kernels/cuda/README.md, "Candidate lists").
double NoisyKeyError(double key);

// Rows go whole where a candidate list would not be shorter, where the device has no room for it,
// and, unless `always`, where all of them together are a small copy.
ListPlan MakeListPlan(const StepPlan& plan, const LogitRows& rows, bool always);

// What the device found of a listed need. records, sums: as the kernels wrote them; *sums must
// outlive the result.
sampling::FoundRow ReadFound(const StepPlan& plan, const ListPlan& lists, int need,
                             const LogitRows& rows, const uint32_t* records, const ChunkSums* sums);

}  // namespace coppice::kernels::cuda
