// Fills the parts of a KV pool that hold nothing with NaN, so that whoever reads them shows it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/backend.h"
#include "model/model_runner.h"
#include "plan/step_plan.h"

namespace coppice::test {

// data: of the runner's pool, in host memory, laid out as KvPoolShape says. Returns how many pages
// were filled.
inline int64_t PoisonFreePages(model::ModelRunner* runner, void* data) {
  const kernels::KvPoolShape& shape = runner->kv_pool()->shape;
  const size_t page = size_t{kBlockSize} * shape.kv_heads * shape.head_dim *
                      kernels::DTypeSize(shape.dtype);  // of K or V of one layer
  const std::vector<int32_t> free = runner->blocks()->free_pages();
  for (int64_t plane = 0; plane < 2 * shape.layers; ++plane) {
    for (const int32_t id : free)
      std::memset(static_cast<uint8_t*>(data) + (plane * shape.blocks + id) * page, 0xff, page);
  }
  return static_cast<int64_t>(free.size());
}

}  // namespace coppice::test
