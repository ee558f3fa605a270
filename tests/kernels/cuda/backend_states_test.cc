// Hidden states beside K and V on the CUDA backend, against the CPU backend: the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "kernels/cuda/steps/state_download.h"
#include "kernels/element.h"
#include "tests/kernels/cuda/ops_fixture.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

// The type of the pool.
class BackendStatesTest : public testing::TestWithParam<DType> {
 protected:
  static constexpr int kColumns = 72, kBlocks = 6, kSlots = kBlocks * kBlockSize;

  std::unique_ptr<KvPool> MakePool(TestBackend* backend, int64_t blocks = kBlocks) const {
    const DType dtype = GetParam() == DType::kI8 ? DType::kI8 : backend->StoredAs(GetParam());
    KvPoolShape shape = {2, 2, 16, blocks, dtype};
    shape.state_columns = kColumns;
    return (*backend)->MakeKvPool(shape).value();
  }
  // Slots 16, 17, .., in another order than the rows.
  static StepPlan PlanOfSlots(int rows) {
    StepPlan plan = PlanOfRows(rows);
    for (int r = 0; r < rows; ++r) plan.slot[r] = kBlockSize + (r * 7 + 3) % rows;
    return plan;
  }
  static std::vector<uint16_t> ReadStates(TestBackend* backend, const KvPool& pool,
                                          const std::vector<int32_t>& slots) {
    std::vector<uint16_t> states(slots.size() * pool.shape.state_columns, 0xffff);
    const absl::Status read = (*backend)->ReadStates(pool, slots, states.data());
    EXPECT_TRUE(read.ok()) << read;
    return states;
  }
  static std::vector<int32_t> AllSlots(int count = kSlots) {
    std::vector<int32_t> slots(count);
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
  }
  template <class Run>
  void ExpectSame(const Run& run) {
    EXPECT_EQ(run(cuda_.get()), run(cpu_.get()));
  }

  std::unique_ptr<TestBackend> cpu_ = TestBackend::Make("cpu");
  std::unique_ptr<TestBackend> cuda_ = TestBackend::Make("cuda");
};

INSTANTIATE_TEST_SUITE_P(Pools, BackendStatesTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kI8),
                         TypeName);

TEST_P(BackendStatesTest, WhatRowsStoreIsReadAgainAndOthersAreZero) {
  for (const int rows : {1, 5, 40}) {
    ExpectSame([&](TestBackend* backend) {
      const auto pool = MakePool(backend);
      const Tensor x = backend->Put(RandomFloats(rows * kColumns, rows), kColumns, DType::kF32);
      RunOps(backend->get(), PlanOfSlots(rows), [&](Ops* ops) { ops->StoreStates(x, pool.get()); });
      std::vector<uint16_t> all = ReadStates(backend, *pool, AllSlots());
      const std::vector<uint16_t> some = ReadStates(backend, *pool, {17, 16, 17, 95});
      all.insert(all.end(), some.begin(), some.end());
      return all;
    });
  }
}

TEST_P(BackendStatesTest, GatheredRowsAreThoseWithNeeds) {
  ExpectSame([&](TestBackend* backend) {
    const auto pool = MakePool(backend);
    const Tensor x = backend->Put(RandomFloats(9 * kColumns, 1), kColumns, DType::kF32);
    StepPlan plan = PlanOfSlots(9);
    for (const int row : {1, 4, 8}) plan.needs.push_back({.row = row});
    RunOps(backend->get(), plan, [&](Ops* ops) {
      ops->GatherRows({x});
      ops->StoreStates(x, pool.get());
    });
    return ReadStates(backend, *pool, AllSlots());
  });
}

TEST_P(BackendStatesTest, CommitsTakeStatesAlong) {
  ExpectSame([&](TestBackend* backend) {
    const auto pool = MakePool(backend);
    const Tensor x = backend->Put(RandomFloats(40 * kColumns, 1), kColumns, DType::kF32);
    RunOps(backend->get(), PlanOfSlots(40), [&](Ops* ops) { ops->StoreStates(x, pool.get()); });
    StepPlan plan = PlanOfRows(0);
    for (int i = 0; i < 20; ++i) plan.commits.push_back({16 + 2 * i, 95 - i});
    RunOps(backend->get(), plan, [&](Ops* ops) { ops->CommitKv(pool.get()); });
    return ReadStates(backend, *pool, AllSlots());
  });
}

// Several steps of one list of ops, so that the last ones are replayed from a graph: each brings
// other states, and chains of other slots. The larger one moves the block of the plan.
TEST_P(BackendStatesTest, RowsBeginWithTheStatesOfTheirPlanOrChain) {
  ExpectSame([&](TestBackend* backend) {
    const auto pool = MakePool(backend);
    const Tensor stored = backend->Put(RandomFloats(40 * kColumns, 1), kColumns, DType::kF32);
    RunOps(backend->get(), PlanOfSlots(40),
           [&](Ops* ops) { ops->StoreStates(stored, pool.get()); });
    const Tensor x = backend->Poisoned(400, kColumns, DType::kF32);
    std::vector<float> all;
    std::mt19937_64 generator(5);
    for (const int rows : {7, 6, 8, 7, 390, 7, 8}) {
      StepPlan plan = PlanOfRows(rows);
      plan.chain_begin = {0};
      const int given = 1 + static_cast<int>(generator() % rows);
      for (int r = 0; r < rows; ++r) {
        plan.state.push_back(generator() % 2 == 0 ? static_cast<int32_t>(generator() % given) : -1);
        for (int i = 0; i < 2 + static_cast<int>(generator() % 3); ++i)
          plan.chain.push_back(16 + static_cast<int32_t>(generator() % 40));
        plan.chain_begin.push_back(static_cast<int32_t>(plan.chain.size()));
      }
      for (const float value : RandomFloats(given * kColumns, rows))
        plan.states.push_back(FloatToBf16(value));
      RunOps(backend->get(), plan, [&](Ops* ops) { ops->LoadStates(*pool, x); });
      std::vector<float> values = backend->Read(x);
      values.resize(rows * kColumns);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
}

// Of activations as the backends keep them; several steps, so that the last ones are replayed.
TEST_P(BackendStatesTest, RowsAreReplacedByTheStatesOfTheirPlan) {
  ExpectSame([&](TestBackend* backend) {
    std::vector<float> all;
    for (const int rows : {7, 6, 300, 7, 6}) {
      StepPlan plan = PlanOfRows(rows);
      for (int r = 0; r < rows; ++r) plan.state.push_back(r % 3 == 1 ? -1 : (r * 5 + 2) % rows);
      for (const float value : RandomFloats(rows * kColumns, rows))
        plan.states.push_back(FloatToBf16(value));
      // Values that every type holds.
      std::vector<float> before(rows * kColumns);
      for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 97) - 40;
      const Tensor x = backend->Put(before, kColumns, DType::kF32);
      RunOps(backend->get(), plan, [&](Ops* ops) { ops->PutStates(x); });
      std::vector<float> values = backend->Read(x);
      values.resize(rows * kColumns);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  });
}

TEST_P(BackendStatesTest, MoreStatesThanOneCopyHolds) {
  const int columns = 4096, blocks = 50;
  const size_t piece = cuda::StateDownload::kMostBytes / (columns * sizeof(uint16_t));
  ASSERT_GT(blocks * kBlockSize, static_cast<int>(piece));
  ExpectSame([&](TestBackend* backend) {
    KvPoolShape shape = {1, 1, 16, blocks, DType::kF32};
    shape.state_columns = columns;
    const auto pool = (*backend)->MakeKvPool(shape).value();
    const int rows = 700;
    std::vector<float> values(int64_t{rows} * columns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 16 % 30011);
    const Tensor x = backend->Put(values, columns, DType::kF32);
    StepPlan plan = PlanOfRows(rows);
    std::iota(plan.slot.begin(), plan.slot.end(), kBlockSize);
    RunOps(backend->get(), plan, [&](Ops* ops) { ops->StoreStates(x, pool.get()); });
    return ReadStates(backend, *pool, AllSlots(blocks * kBlockSize));
  });
}

TEST_P(BackendStatesTest, PoolsCountTheirStates) {
  const auto with = MakePool(cuda_.get());
  KvPoolShape shape = with->shape;
  shape.state_columns = 0;
  EXPECT_EQ(with->bytes - (*cuda_)->MakeKvPool(shape).value()->bytes,
            size_t{kSlots} * kColumns * sizeof(uint16_t));
  shape.state_columns = 12;
  const absl::Status odd = (*cuda_)->MakeKvPool(shape).status();
  EXPECT_EQ(odd.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(odd.message(), testing::HasSubstr("states of 12: the CUDA kernels take a multiple"));
}

}  // namespace
}  // namespace coppice::kernels
