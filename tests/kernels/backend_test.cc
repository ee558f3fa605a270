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

class KernelChoiceTest : public testing::Test {
 protected:
  ~KernelChoiceTest() override { cpu::ResetKernelTarget(); }
  absl::StatusOr<std::unique_ptr<Backend>> Make(const std::string& kernels) {
    return MakeBackend(
        {.threads = &threads_, .communicator = communicator_.get(), .cpu_kernels = kernels});
  }
  ThreadTeam threads_{1};
  const std::unique_ptr<comm::Communicator> communicator_ = comm::MakeSingleCommunicator();
};

TEST_F(KernelChoiceTest, TakesTheNamedInstructionSet) {
  const cpu::KernelTarget best = cpu::SupportedKernelTargets().back();
  EXPECT_EQ(cpu::CurrentKernelTarget(), best);
  for (const cpu::KernelTarget target : cpu::SupportedKernelTargets()) {
    const std::string name = cpu::KernelTargetName(target);
    EXPECT_THAT(Make(name).value()->description(), HasSubstr(absl::StrCat("cpu ", name, ", ")));
    EXPECT_EQ(cpu::CurrentKernelTarget(), target);
  }
  ASSERT_TRUE(Make("Scalar").ok());
  EXPECT_EQ(cpu::CurrentKernelTarget(), cpu::KernelTarget::kScalar);
  ASSERT_TRUE(Make("best").ok());  // leaves what was chosen
  EXPECT_EQ(cpu::CurrentKernelTarget(), cpu::KernelTarget::kScalar);
}

TEST_F(KernelChoiceTest, RefusesUnknownAndAbsentOnes) {
  const auto unknown = Make("abacus");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(unknown.status().message(),
            "--kernels: 'abacus', expected one of best, scalar, AVX2, AVX-512, AVX-512 BF16");
  for (const char* name : {"avx2", "avx512", "avx512_bf16"}) {
    const auto made = Make(name);
    if (made.ok()) continue;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("this processor or this build"));
  }
}

TEST(DTypeTest, SpelledAsInSafetensors) {
  EXPECT_STREQ(DTypeName(DType::kF32), "F32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF16), "F16");
  EXPECT_EQ(DTypeSize(DType::kF32), 4u);
  EXPECT_EQ(DTypeSize(DType::kBF16), 2u);
  EXPECT_EQ(DTypeSize(DType::kI8), 1u);
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
