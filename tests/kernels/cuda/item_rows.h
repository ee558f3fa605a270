// Which rows of the plan an item of a work list has.
#pragma once

#include "kernels/cuda/ops/work_list.h"

namespace coppice::kernels::cuda {

// Row i of the item.
inline int RowOf(const WorkList& list, const AttentionItem& item, int i) {
  return item.listed < 0 ? item.first_row + i : list.rows[item.listed + i];
}

}  // namespace coppice::kernels::cuda
