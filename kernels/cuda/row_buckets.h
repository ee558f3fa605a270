// The row counts of steps on the device: rows are padded to the next of these sizes. Matrix products
// are tuned for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace coppice::kernels::cuda {

inline constexpr int64_t kRowBuckets[] = {1,  2,  4,   8,   16,  24,  32,  40, 48,
                                          64, 96, 128, 192, 256, 320, 384, 512};

// The least bucket that holds so many rows; above the table each is half as large again.
inline int64_t RowBucket(int64_t rows) {
  for (const int64_t bucket : kRowBuckets) {
    if (rows <= bucket) return bucket;
  }
  int64_t bucket = 512;
  while (bucket < rows) bucket += bucket / 2;
  return bucket;
}

// The same in tensors that have room for `most` rows: `most` ends the last bucket.
inline int64_t PaddedRows(int64_t rows, int64_t most) {
  return std::max(rows, std::min(RowBucket(rows), most));
}

// Every value of PaddedRows up to `most`, ascending.
inline std::vector<int64_t> RowBucketsUpTo(int64_t most) {
  std::vector<int64_t> buckets;
  for (int64_t rows = 1; rows <= most; rows = buckets.back() + 1)
    buckets.push_back(PaddedRows(rows, most));
  return buckets;
}

}  // namespace coppice::kernels::cuda
