// Runs a test once for every instruction set that this processor and this build support. Runs
// single ops as the pass of a step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/cpu/kernel_target.h"

namespace coppice::kernels {

// Backends with one and with three threads. The test's parameter selects the instruction set.
class KernelTest : public testing::TestWithParam<cpu::KernelTarget> {
 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  std::unique_ptr<comm::Communicator> communicator_;
  std::unique_ptr<ThreadTeam> one_thread_, three_threads_;

 protected:
  std::unique_ptr<Backend> single_;
  std::unique_ptr<Backend> team_;
};

// "AVX512_BF16", "AVX512", "AVX2" or "SCALAR".
std::string TargetParamName(const testing::TestParamInfo<cpu::KernelTarget>& info);

#define COPPICE_ON_ALL_TARGETS(Suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Targets, Suite, testing::ValuesIn(cpu::SupportedKernelTargets()), \
                           TargetParamName)

// `count` values in [-1, 1); the same seed gives the same values.
std::vector<float> RandomFloats(int64_t count, uint64_t seed);

// Prefill rows of token 0 at position 0, which write to the sink. No block table.
StepPlan PlanOfRows(int64_t rows);

// Runs the ops as the body of a pass, waits for them, and expects no error.
void RunOps(Backend* backend, const StepPlan& plan, absl::FunctionRef<void(Ops*)> body);

// A tensor over values of the test, which must outlive it.
Tensor TensorOf(float* values, int64_t rows, int64_t columns);
Tensor TensorOf(std::vector<float>* values, int64_t columns);

// Packs one whole matrix, without a bias.
std::unique_ptr<Weight> PackOne(Backend* backend, const MatrixSource& source, DType dtype);

}  // namespace coppice::kernels
