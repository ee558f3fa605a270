// A layer of experts (Ops::MixExperts). Each expert multiplies all rows that chose it at once, so
// its weights are read once, and those of experts that no row chose are not read. The bits of a row
// depend only on that row: products are batch-invariant, and a row adds its experts in ascending
// order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"

namespace coppice::kernels::cpu {

// The expert of a row, and its share.
struct ExpertShare {
  int64_t row = 0;
  float share = 0;
};

// Which experts the rows take: for each expert its rows, ascending. scores [rows, experts]. A score
// that is not a number makes all shares of its row so.
std::vector<std::vector<ExpertShare>> RouteRows(const float* scores, int64_t rows, int64_t experts,
                                                int chosen, bool normalised);

// Memory of MixExperts, kept from call to call.
struct ExpertScratch {
  std::vector<float> scores, in, gate_up, activated, out;
};

// x and out [rows, d]. out must not be x.
void MixExperts(const Experts& experts, const float* x, int64_t rows, float* out, ThreadTeam* team,
                MatMulScratch* products, ExpertScratch* scratch);

}  // namespace coppice::kernels::cpu
