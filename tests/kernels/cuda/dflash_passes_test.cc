// Passes of block drafters on the CUDA backend, compared with the double-precision reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/model/dflash_run.h"

namespace coppice::model {
namespace {

class CudaDFlashTest : public testing::Test {
 protected:
  ~CudaDFlashTest() override {
    EXPECT_THAT(kernels::cuda::fake::Violations(), testing::IsEmpty());
    kernels::cuda::fake::Recover();
  }
};

TEST_F(CudaDFlashTest, LogitsOfABlockAreThoseOfTheReference) {
  EXPECT_LT(ErrorOfABlock({}, "cuda"), 2e-5);
  EXPECT_LT(ErrorOfABlock({.block = 7, .markov_rank = 8, .dspark = true}, "cuda"), 2e-5);
  EXPECT_LT(ErrorOfABlock({.dtype = "BF16"}, "cuda"), 8e-2);
}

TEST_F(CudaDFlashTest, BlocksOfOnePassDoNotSeeEachOther) {
  EXPECT_LT(ErrorOfTwoBlocks({}, "cuda"), 2e-5);
}

}  // namespace
}  // namespace coppice::model
