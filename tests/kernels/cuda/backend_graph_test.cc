// Steps by graphs and steps launched op by op: the same bits, whatever came before. On a GPU too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/steps/graph_cache.h"
#include "tests/kernels/cuda/small_decoder.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

using Form = RowNeed::Form;

class BackendGraphTest : public testing::TestWithParam<DType> {
 protected:
  static SmallDecoder Cuda(bool graphs, bool always_list = false) {
    return SmallDecoder(TestBackend::Make("cuda", always_list, graphs), GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Types, BackendGraphTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

void ExpectSameBits(absl::Span<const float> got, absl::Span<const float> want,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
}

// Random steps by graphs, op by op, and on the CPU. Returns how many needs they had.
int CompareSteps(SmallFamily family, DType dtype, int count) {
  SmallDecoder graphs(TestBackend::Make("cuda"), dtype, SmallDecoder::kMaxRows, family);
  SmallDecoder single(TestBackend::Make("cuda", /*always_list=*/false, /*graphs=*/false), dtype,
                      SmallDecoder::kMaxRows, family);
  SmallDecoder cpu(TestBackend::Make("cpu"), dtype, SmallDecoder::kMaxRows, family);
  RandomSteps steps(7);
  const double tolerance = dtype == DType::kF32 ? 1e-4 : 1.5e-1;
  int needs = 0;
  for (int i = 0; i < count; ++i) {
    const StepPlan plan = steps.Next(Form::kWhole);
    const StepRows* got = graphs.Run(plan);
    const StepRows* want = single.Run(plan);
    const StepRows* reference = cpu.Run(plan);
    if (got == nullptr || want == nullptr || reference == nullptr) return needs;
    for (int need = 0; need < static_cast<int>(plan.needs.size()); ++need, ++needs) {
      const std::string what = absl::StrCat("step ", i, " need ", need, " of ", plan.rows());
      ExpectSameBits(got->Whole(need), want->Whole(need), what);
      EXPECT_LT(RelativeDistance({got->Whole(need).begin(), got->Whole(need).end()},
                                 {reference->Whole(need).begin(), reference->Whole(need).end()}),
                tolerance)
          << what;
    }
    if (testing::Test::HasFailure()) return needs;
  }
  return needs;
}

TEST_P(BackendGraphTest, TheBitsOfSingleLaunchesAndTheRowsOfTheCpu) {
  EXPECT_GT(CompareSteps(SmallFamily::kLlama, GetParam(), 80), 200);
}

TEST_P(BackendGraphTest, DecodersOfOtherFamilies) {
  for (const SmallFamily family :
       {SmallFamily::kWindows, SmallFamily::kLearned, SmallFamily::kAfterSum}) {
    SCOPED_TRACE(static_cast<int>(family));
    EXPECT_GT(CompareSteps(family, GetParam(), 40), 80);
  }
}

TEST_P(BackendGraphTest, CandidateListsAndFetchesOfTheSameBits) {
  SmallDecoder graphs = Cuda(true, /*always_list=*/true);
  SmallDecoder single = Cuda(false, /*always_list=*/true);
  RandomSteps steps(8);
  for (int i = 0; i < 40; ++i) {
    const StepPlan plan = steps.Next(Form::kTop);
    const StepRows* got = graphs.Run(plan);
    const StepRows* want = single.Run(plan);
    if (got == nullptr || want == nullptr) return;
    StepPlan fetch;
    for (int need = 0; need < static_cast<int>(plan.needs.size()); ++need) {
      ASSERT_NE(got->Listed(need), nullptr);
      ASSERT_NE(want->Listed(need), nullptr);
      const TokenList& a = got->Listed(need)->lists[0];
      const TokenList& b = want->Listed(need)->lists[0];
      EXPECT_EQ(a.tokens, b.tokens);
      ExpectSameBits(a.logits, b.logits, absl::StrCat("step ", i, " need ", need));
      if (need % 3 == i % 3) fetch.fetch.push_back(need);
    }
    if (fetch.fetch.empty()) continue;
    got = graphs.Run(fetch);
    want = single.Run(fetch);
    if (got == nullptr || want == nullptr) return;
    for (const int need : fetch.fetch)
      ExpectSameBits(got->Whole(need), want->Whole(need), absl::StrCat("fetch ", i, " ", need));
  }
}

TEST_P(BackendGraphTest, StepsOfEverySizeOfBucketAndBeyond) {
  constexpr int kMaxRows = 513;
  SmallDecoder graphs(TestBackend::Make("cuda"), GetParam(), kMaxRows);
  SmallDecoder cpu(TestBackend::Make("cpu"), GetParam(), kMaxRows);
  const double tolerance = GetParam() == DType::kF32 ? 1e-4 : 1.5e-1;
  for (const int rows : {1, 2, 3, 40, 41, 512, 513}) {
    const StepPlan plan = PrefillPlan(rows, std::min(rows, 2));
    const StepRows* reference = cpu.Run(plan);
    for (int run = 0; run < (rows < 100 ? 3 : rows == 512 ? 2 : 1); ++run) {
      const StepRows* got = graphs.Run(plan);
      if (got == nullptr || reference == nullptr) return;
      for (int need = 0; need < static_cast<int>(plan.needs.size()); ++need) {
        EXPECT_LT(RelativeDistance({got->Whole(need).begin(), got->Whole(need).end()},
                                   {reference->Whole(need).begin(), reference->Whole(need).end()}),
                  tolerance)
            << rows << " rows, run " << run << ", need " << need;
      }
    }
  }
}

// Passes of one shape, one after the other at one address, over tensors of their own.
TEST_P(BackendGraphTest, AGraphIsForItsOwnTensorsAlone) {
  const auto backend = TestBackend::Make("cuda");
  constexpr int kRows = 3, kColumns = 8;
  struct Gate {
    std::vector<float> values;
    Tensor in, out;
  };
  // More than are remembered.
  std::vector<Gate> gates(cuda::GraphCache::kMost + 3);
  for (size_t i = 0; i < gates.size(); ++i) {
    gates[i].values = Rounded(RandomFloats(kRows * 2 * kColumns, i + 1), GetParam());
    gates[i].in = backend->Put(gates[i].values, 2 * kColumns, GetParam());
    gates[i].out = backend->Poisoned(kRows, kColumns, GetParam());
  }
  const StepPlan plan = PlanOfRows(kRows);
  const auto run = [&](const Gate& gate) {
    RunOps(backend->get(), plan,
           [&](Ops* ops) { ops->Activate(Activation::kSilu, gate.in, gate.out); });
    return backend->Read(gate.out);
  };
  std::vector<std::vector<float>> first;
  for (const Gate& gate : gates) first.push_back(run(gate));
  for (size_t i = 1; i < gates.size(); ++i) EXPECT_NE(first[i], first[0]);
  for (const size_t i : {0, 1, 0, 1, 0, 1}) {  // one launch, a capture, replays
    backend->Overwrite(gates[i].out, std::vector<float>(kRows * kColumns, NAN));
    EXPECT_EQ(run(gates[i]), first[i]) << i;
  }
  for (size_t round = 0; round < 2; ++round) {
    for (size_t i = 0; i < gates.size(); ++i) EXPECT_EQ(run(gates[i]), first[i]) << i;
  }
}

// The block of uploads moves when a plan is too large for it; graphs that read the old one are not
// used any more.
TEST_P(BackendGraphTest, PlansThatOutgrowTheUploadBlock) {
  SmallDecoder graphs = Cuda(true), single = Cuda(false);
  StepPlan small = PlanOfRows(2);
  small.segments = {{0, 2, 1}};
  small.table = {1};
  small.table_begin = {0, 1};
  small.needs = {{.row = 0}, {.row = 1}};
  small.slot = {16, 17};
  small.position = {0, 1};
  small.token = {3, 4};
  StepPlan large = small;
  large.table.resize(100000, 2);  // entries that no row sees
  large.table_begin = {0, 100000};
  StepPlan other = small;
  other.token = {5, 6};
  for (const StepPlan* plan : {&small, &small, &other, &large, &small, &other, &other, &large}) {
    const StepRows* got = graphs.Run(*plan);
    const StepRows* want = single.Run(*plan);
    if (got == nullptr || want == nullptr) return;
    for (int need = 0; need < 2; ++need)
      ExpectSameBits(got->Whole(need), want->Whole(need), absl::StrCat("need ", need));
  }
}

}  // namespace
}  // namespace coppice::kernels
