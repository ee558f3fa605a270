// Which rows and heads of attention a thread computes together. Rows whose tables begin alike share
// units, so that a block is read once for all of them; they are divided only where threads would
// otherwise be idle. What a unit holds changes no bit of a row. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_unit.h"

namespace coppice::kernels::cpu {

struct AttentionSchedule {
  std::vector<AttentionUnit> units;
  // Thread t begins with the units [begin[t], begin[t + 1]).
  std::vector<int64_t> begin;  // [threads + 1]
};

AttentionSchedule ScheduleAttention(const AttentionArgs& args, int threads);

}  // namespace coppice::kernels::cpu
