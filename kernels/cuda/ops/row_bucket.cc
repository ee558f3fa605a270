#include "kernels/cuda/ops/row_bucket.h"

#include <algorithm>

namespace coppice::kernels::cuda {

int64_t RowBucket(int64_t rows) {
  constexpr int64_t kBuckets[] = {1,  2,  4,   8,   16,  24,  32,  40, 48,
                                  64, 96, 128, 192, 256, 320, 384, 512};
  for (const int64_t bucket : kBuckets) {
    if (rows <= bucket) return bucket;
  }
  int64_t bucket = 512;
  while (bucket < rows) bucket += bucket / 2;
  return bucket;
}

int64_t PaddedRows(int64_t rows) {
  return rows == 0 || rows > kMostPaddedRows ? rows : RowBucket(rows);
}

StepShape PaddedShape(int64_t rows, int64_t needs) {
  return {static_cast<int32_t>(PaddedRows(rows)), static_cast<int32_t>(PaddedRows(needs))};
}

int64_t PaddedRows(int64_t rows, int64_t most) {
  return std::max(rows, std::min(RowBucket(rows), most));
}

std::vector<int64_t> RowBucketsUpTo(int64_t most) {
  std::vector<int64_t> buckets;
  for (int64_t rows = 1; rows <= most; rows = buckets.back() + 1)
    buckets.push_back(PaddedRows(rows, most));
  return buckets;
}

}  // namespace coppice::kernels::cuda
