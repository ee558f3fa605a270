#include "kernels/cuda/ops/row_bucket.h"

#include <gtest/gtest.h>

#include <set>

namespace coppice::kernels::cuda {
namespace {

TEST(RowBucketTest, HoldsTheRowsAndIsOfATable) {
  int64_t before = 0;
  for (int64_t rows = 1; rows < 3000; ++rows) {
    const int64_t bucket = RowBucket(rows);
    EXPECT_GE(bucket, rows);
    EXPECT_GE(bucket, before);
    EXPECT_EQ(RowBucket(bucket), bucket);
    before = bucket;
  }
  EXPECT_EQ(RowBucket(34), 40);
  EXPECT_EQ(RowBucket(513), 768);
}

TEST(RowBucketTest, StepsUpToTheLastBucketArePaddedAndLargerOnesAreNot) {
  std::set<int64_t> sizes;
  for (int64_t rows = 1; rows <= kMostPaddedRows; ++rows) sizes.insert(PaddedRows(rows));
  EXPECT_EQ(sizes, std::set<int64_t>(
                       {1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 320, 384, 512}));
  for (const int64_t rows : {513, 514, 700, 4096}) EXPECT_EQ(PaddedRows(rows), rows);
}

TEST(RowBucketTest, NoRowsStayNoRows) {
  EXPECT_EQ(PaddedShape(0, 0), StepShape());
  EXPECT_EQ(PaddedShape(5, 0), (StepShape{8, 0}));
}

// The head works on the first rows of what the body worked on.
TEST(RowBucketTest, NeedsNeverHaveMoreRowsThanTheBody) {
  for (int64_t rows = 1; rows < 700; ++rows) {
    for (int64_t needs = 0; needs <= rows; ++needs) {
      const StepShape shape = PaddedShape(rows, needs);
      ASSERT_GE(shape.rows, rows);
      ASSERT_GE(shape.needs, needs);
      ASSERT_LE(shape.needs, shape.rows) << needs << " of " << rows;
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
