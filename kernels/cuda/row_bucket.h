// Sizes of steps: the rows of a step are padded to the next bucket. Algorithms of matrix products are
// chosen for these sizes. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice::kernels::cuda {

// The least size of a table that holds so many rows: algorithms are chosen for these sizes.
int64_t RowBucket(int64_t rows);

// The same in tensors that have room for `most` rows: `most` ends the last bucket.
int64_t PaddedRows(int64_t rows, int64_t most);

// Every value of PaddedRows for 1 to `most` rows, ascending.
std::vector<int64_t> RowBucketsUpTo(int64_t most);

}  // namespace coppice::kernels::cuda
