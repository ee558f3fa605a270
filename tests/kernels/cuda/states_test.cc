#include <numeric>

#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kSlots = 5 * kBlockSize;

// Slots 16, 19, 22, .. in another order than the rows, which pad the step by three.
StepPlan PlanOfSlots(int rows) {
  StepPlan plan;
  for (int r = 0; r < rows; ++r) {
    plan.token.push_back(r);
    plan.slot.push_back(kBlockSize + 3 * ((r * 7 + 2) % rows));
  }
  plan.position.assign(rows, 0);
  plan.chain_begin.assign(rows + 1, 0);
  return plan;
}
constexpr int kPadding = 3;

// The states of a pool, which a test can read.
class TestStates {
 public:
  explicit TestStates(int columns)
      : values(RandomValues<dev::bf16>(int64_t{kSlots} * columns, columns)),
        view{values.data(), columns} {}
  float At(int32_t slot, int column) const {
    return dev::ToFloat(values[int64_t{slot} * view.columns + column]);
  }

  DeviceArray<dev::bf16> values;
  DeviceStates view;
};

void TestStore(int rows, int columns, const std::vector<int>& needs) {
  TestStates states(columns);
  StepPlan plan = PlanOfSlots(rows);
  for (const int row : needs) plan.needs.push_back({.row = row});
  TestStep step(plan);
  step.view.rows += kPadding;
  step.view.needs += kPadding;
  std::vector<float> values = RandomValues<float>((rows + kPadding) * columns, 7, 300.0f);
  values[0] = 1.00390625f;  // halfway between two bf16 values: to the even one
  values[1] = 1.01171875f;
  const DeviceArray<float> x(values);
  std::vector<float> want(kSlots * columns);
  for (int i = 0; i < kSlots * columns; ++i) want[i] = states.At(i / columns, i % columns);
  const int stored = needs.empty() ? rows : static_cast<int>(needs.size());
  for (int r = 0; r < stored; ++r) {
    const int32_t slot = plan.slot[needs.empty() ? r : needs[r]];
    for (int c = 0; c < columns; ++c) {
      want[slot * columns + c] = dev::ToFloat(dev::FromFloat<dev::bf16>(values[r * columns + c]));
    }
  }
  StoreStates(step.view, {x.data(), states.view, !needs.empty()}, nullptr);
  WaitForDevice();
  for (int i = 0; i < kSlots * columns; ++i) {
    ASSERT_EQ(states.At(i / columns, i % columns), want[i]) << "slot " << i / columns;
  }
  if (needs.empty()) {
    EXPECT_EQ(states.At(plan.slot[0], 0), 1.0f);
    EXPECT_EQ(states.At(plan.slot[0], 1), 1.015625f);
  }
}

TEST(CudaStates, SlotsOfTheRowsKeepWhatIsStoredAndOthersStay) {
  for (const int columns : {8, 64, 576, 4096}) {
    for (const int rows : {1, 5, 17}) TestStore(rows, columns, {});
  }
}

TEST(CudaStates, GatheredRowsAreThoseWithNeeds) {
  for (const int columns : {8, 2056}) {
    TestStore(5, columns, {4});
    TestStore(17, columns, {0, 3, 9, 16});
  }
}

// Rows with a state of the plan, in another order, and rows that take the slot before their own in a
// chain: of two slots, or of more.
TEST(CudaStates, RowsTakeTheirStateFromThePlanOrTheirChain) {
  for (const int columns : {8, 64, 2056, 4096}) {
    TestStates states(columns);
    StepPlan plan = PlanOfSlots(6);
    plan.state = {2, -1, 0, -1, 1, -1};
    plan.chain_begin = {0, 0, 2, 4, 9, 9, 11};
    plan.chain = {70, 17, 18, 19, 20, 21, 22, 71, 23, 72, 24};
    const std::vector<dev::bf16> given = RandomValues<dev::bf16>(3 * columns, 9);
    plan.states.resize(given.size());
    std::memcpy(plan.states.data(), given.data(), given.size() * sizeof(uint16_t));
    TestStep step(plan);
    step.view.rows += kPadding;
    DeviceArray<float> x((6 + kPadding) * columns);
    LoadStates(step.view, {states.view, x.data()}, nullptr);
    WaitForDevice();
    const int32_t before[6] = {-1, 70, -1, 71, -1, 72};
    for (int r = 0; r < 6 + kPadding; ++r) {
      for (int c = 0; c < columns; ++c) {
        const float want = r >= 6               ? 0.0f
                           : plan.state[r] >= 0 ? dev::ToFloat(given[plan.state[r] * columns + c])
                                                : states.At(before[r], c);
        ASSERT_EQ(x[r * columns + c], want) << "row " << r << " column " << c;
      }
    }
  }
}

TEST(CudaStates, SlotsAreGatheredInTheirOrder) {
  for (const int columns : {8, 576, 4096}) {
    TestStates states(columns);
    const DeviceArray<int32_t> slots(std::vector<int32_t>{33, 0, 79, 34, 33});
    DeviceArray<dev::bf16> out(slots.size() * columns);
    GatherStates(states.view, slots.data(), static_cast<int64_t>(slots.size()), out.data(),
                 nullptr);
    WaitForDevice();
    for (size_t i = 0; i < slots.size(); ++i) {
      for (int c = 0; c < columns; ++c) {
        ASSERT_EQ(dev::ToFloat(out[i * columns + c]), states.At(slots[i], c)) << i << " " << c;
      }
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
