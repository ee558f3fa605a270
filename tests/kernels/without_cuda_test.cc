// A build without the CUDA backend says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace coppice::kernels {
namespace {

TEST(MakeBackendTest, NamesWhatThisBuildLacks) {
  const auto cuda = MakeBackend({.kind = "cuda"});
  EXPECT_EQ(cuda.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(cuda.status().message(), testing::HasSubstr("no CUDA backend"));
}

}  // namespace
}  // namespace coppice::kernels
