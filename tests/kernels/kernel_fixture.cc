#include "tests/kernels/kernel_fixture.h"

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"

namespace coppice::kernels {
namespace {

class BodyAlone : public Pass {
 public:
  explicit BodyAlone(absl::FunctionRef<void(Ops*)> body) : body_(body) {}
  void Body(Ops* ops) override { body_(ops); }
  void Head(Ops*) override {}

 private:
  absl::FunctionRef<void(Ops*)> body_;
};

}  // namespace

void KernelTest::SetUp() {
  cpu::SetKernelTarget(GetParam());
  communicator_ = comm::MakeSingleCommunicator();
  one_thread_ = std::make_unique<ThreadTeam>(1);
  three_threads_ = std::make_unique<ThreadTeam>(3);
  BackendOptions options;
  options.communicator = communicator_.get();
  options.threads = one_thread_.get();
  single_ = MakeBackend(options).value();
  options.threads = three_threads_.get();
  team_ = MakeBackend(options).value();
}

void KernelTest::TearDown() { cpu::ResetKernelTarget(); }

std::string TargetParamName(const testing::TestParamInfo<cpu::KernelTarget>& info) {
  std::string name = absl::AsciiStrToUpper(cpu::KernelTargetName(info.param));
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

StepPlan PlanOfRows(int64_t rows) {
  StepPlan plan;
  plan.token.assign(rows, 0);
  plan.position.assign(rows, 0);
  plan.slot.assign(rows, 0);
  plan.chain_begin.assign(rows + 1, 0);
  plan.segments = {{0, static_cast<int32_t>(rows), 1}};
  plan.table_begin = {0, 0};
  return plan;
}

void RunOps(Backend* backend, const StepPlan& plan, absl::FunctionRef<void(Ops*)> body) {
  BodyAlone pass(body);
  const absl::Status submitted = backend->Submit(plan, &pass);
  ASSERT_TRUE(submitted.ok()) << submitted;
  const auto rows = backend->Wait();
  ASSERT_TRUE(rows.ok()) << rows.status();
}

Tensor TensorOf(float* values, int64_t rows, int64_t columns) {
  return {values, DType::kF32, rows, columns};
}

Tensor TensorOf(std::vector<float>* values, int64_t columns) {
  return TensorOf(values->data(), static_cast<int64_t>(values->size()) / columns, columns);
}

std::unique_ptr<Weight> PackOne(Backend* backend, const MatrixSource& source, DType dtype) {
  return backend->Pack(absl::MakeConstSpan(&source, 1), dtype, {}).value();
}

}  // namespace coppice::kernels
