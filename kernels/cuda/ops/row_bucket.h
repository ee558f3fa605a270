// Sizes of steps. A step computes on more rows than its plan has, up to the next bucket: then a few
// launches recorded once (graph_cache.h), and a few chosen algorithms, serve every step. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice::kernels::cuda {

// The least size of a table that holds so many rows: algorithms are chosen for these sizes.
int64_t RowBucket(int64_t rows);

// Larger steps are computed as they are, launch by launch: there the launches are a small part.
inline constexpr int64_t kMostPaddedRows = 512;

// The rows that are computed for so many: those of the bucket, or as many as there are.
int64_t PaddedRows(int64_t rows);

// What grids of a step follow from. Rows behind those of the plan are of token 0 at position 0, see
// nothing and write to the sink; rows behind the needs are not looked at.
struct StepShape {
  int32_t rows = 0, needs = 0;

  bool operator==(const StepShape&) const = default;
};
StepShape PaddedShape(int64_t rows, int64_t needs);
// The same in tensors that have room for `most` rows: `most` ends the last bucket.
int64_t PaddedRows(int64_t rows, int64_t most);

// Every value of PaddedRows for 1 to `most` rows, ascending.
std::vector<int64_t> RowBucketsUpTo(int64_t most);

}  // namespace coppice::kernels::cuda
