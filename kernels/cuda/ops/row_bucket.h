// Sizes of steps. A step computes on more rows than its plan has, up to the next bucket: then a few
// launches recorded once (graph_cache.h), and a few chosen algorithms, serve every step. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice::kernels::cuda {

// The least size of a table that holds this many rows: algorithms are chosen for these sizes.
int64_t RowBucket(int64_t rows);

// Larger steps are computed as they are, launch by launch, because launches are a small part of
// their time.
inline constexpr int64_t kMostPaddedRows = 512;

// The number of rows that are computed for this many: that of the bucket, or the number itself.
int64_t PaddedRows(int64_t rows);

// The sizes from which the grids of a step follow. Rows after those of the plan have token 0 at
// position 0, see nothing and write to the sink. Rows after the needs are not read.
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
