#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

using testing::HasSubstr;

TEST(MakeBackendTest, RefusesUnknownKindsAndMissingThreads) {
  const auto tpu = MakeBackend({.kind = "tpu"});
  EXPECT_EQ(tpu.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tpu.status().message()), HasSubstr("tpu"));
  const auto alone = MakeBackend({.kind = "cpu"});
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("needs threads"));
}

TEST(DTypeTest, SpelledAsInSafetensors) {
  EXPECT_STREQ(DTypeName(DType::kF32), "F32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF16), "F16");
  EXPECT_EQ(DTypeSize(DType::kF32), 4u);
  EXPECT_EQ(DTypeSize(DType::kBF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kF16), 2u);
}

class BackendTest : public KernelTest {};

TEST_P(BackendTest, DescribesTargetAndThreads) {
  EXPECT_STREQ(single_->name(), "cpu");
  EXPECT_THAT(single_->description(),
              HasSubstr(absl::StrCat("cpu ", cpu::KernelTargetName(GetParam()), ", ")));
  EXPECT_THAT(single_->description(), HasSubstr("1 thread"));
  EXPECT_THAT(team_->description(), HasSubstr("3 threads"));
}

COPPICE_ON_ALL_TARGETS(BackendTest);

}  // namespace
}  // namespace coppice::kernels
