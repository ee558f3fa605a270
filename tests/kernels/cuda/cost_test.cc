// What the simulated device counts of a step, against counts by hand; and by those, which kernel of
// attention is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "kernels/cuda/ops/row_product.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/rope_table.h"
#include "model/model_runner.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::kernels {
namespace {

namespace fake = cuda::fake;

class CostTest : public testing::Test {
 protected:
  ~CostTest() override {
    fake::Configure({});
    fake::Recover();
  }
};

// One request: `rows` rows at the end of `tokens` tokens.
StepPlan ChunkPlan(int tokens, int rows) {
  StepPlan plan = PlanOfRows(rows);
  plan.segments = {{0, rows, tokens}};
  plan.table.resize((tokens + kBlockSize - 1) / kBlockSize);
  std::iota(plan.table.begin(), plan.table.end(), 1);
  plan.table_begin = {0, static_cast<int32_t>(plan.table.size())};
  for (int r = 0; r < rows; ++r) {
    plan.position[r] = tokens - rows + r;
    plan.slot[r] = kBlockSize + plan.position[r];
  }
  plan.chain.clear();
  plan.chain_begin.assign(rows + 1, 0);
  return plan;
}

// Requests of one row each at the end of `tokens` tokens, of which the first `common`, whole
// blocks, are in the same blocks.
StepPlan RequestsPlan(int requests, int tokens, int common) {
  StepPlan plan = PlanOfRows(requests);
  plan.segments.clear();
  plan.table_begin = {0};
  int32_t next = 1 + common / kBlockSize;
  for (int r = 0; r < requests; ++r) {
    plan.segments.push_back({r, 1, tokens});
    plan.position[r] = tokens - 1;
    for (int first = 0; first < tokens; first += kBlockSize)
      plan.table.push_back(first < common ? 1 + first / kBlockSize : next++);
    plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
    plan.slot[r] = plan.table.back() * kBlockSize + (tokens - 1) % kBlockSize;
  }
  return plan;
}

struct Heads {
  int q, kv, dim;
};

std::map<std::string, fake::Totals> AttentionTotals(const Heads& heads, const StepPlan& plan,
                                                    DType dtype,
                                                    const AttentionRule& rule = {.scale = 0.1f}) {
  const auto backend = TestBackend::Make("cuda");
  const auto pool =
      (*backend)
          ->MakeKvPool({1, heads.kv, heads.dim, static_cast<int64_t>(plan.table.size()) + 1, dtype})
          .value();
  const int64_t width = int64_t{heads.q + 2 * heads.kv} * heads.dim;
  const Tensor qkv = backend->Put(std::vector<float>(plan.rows() * width, 0.5f), width, dtype);
  const Tensor out = backend->Poisoned(plan.rows(), int64_t{heads.q} * heads.dim, dtype);
  fake::ClearTotals();
  RunOps(backend->get(), plan, [&](Ops* ops) { ops->Attention(0, rule, qkv, *pool, out); });
  return fake::TotalsByName();
}

TEST_F(CostTest, AttentionByTilesReadsKAndVOnceForAllRows) {
  fake::Configure({.multiprocessors = 1});  // lists are not cut finer
  for (const int rows : {1, 3}) {
    const auto totals = AttentionTotals({8, 2, 64}, ChunkPlan(150, rows), DType::kBF16);
    ASSERT_EQ(totals.count("attention T16"), 1u);
    const fake::Totals& of = totals.at("attention T16");
    const int64_t packed = 4 * rows, head_bytes = 64 * 2;
    EXPECT_EQ(of.launches, 1);
    EXPECT_EQ(of.bytes, 2 * (2 * 150 + 2 * packed) * head_bytes) << rows;  // K, V; q, out
    EXPECT_EQ(of.flops, 2 * 4 * int64_t{16} * 192 * 64) << rows;           // three tiles of 64
  }
}

TEST_F(CostTest, AttentionByTilesReadsASharedPrefixOnce) {
  fake::Configure({.multiprocessors = 1});  // lists are not cut finer
  const int64_t packed = 4 * 4, head_bytes = 64 * 2;
  for (const int common : {0, 160}) {
    const auto totals = AttentionTotals({8, 2, 64}, RequestsPlan(4, 180, common), DType::kBF16);
    const fake::Totals& of = totals.at("attention T16");
    const int64_t tokens = common + 4 * (180 - common);
    EXPECT_EQ(of.launches, 1);
    EXPECT_EQ(of.bytes, 2 * (2 * tokens + 2 * packed) * head_bytes) << common;  // K, V; q, out
  }
}

TEST_F(CostTest, SplitsWriteAndReadTheirParts) {
  // 4 multiprocessors, so that one head of 2000 tokens is cut.
  const auto totals = AttentionTotals({4, 1, 64}, ChunkPlan(2000, 1), DType::kBF16);
  const fake::Totals& of = totals.at("attention T16");
  const int64_t whole = (2 * 2000 + 4) * 128 + 4 * 128;
  const int64_t split = 4 * 128 + 2 * 4 * (64 + 2) * 4;  // q again; a part written and read
  const int64_t more = of.bytes - whole - 2 * 4 * (64 + 2) * 4;
  EXPECT_GT(more, 0);
  EXPECT_EQ(more % split, 0);
  EXPECT_EQ(of.flops, 4 * int64_t{16} * 2048 * 64);
}

// A block of T16 has four warps; each reads 24 matrices of 512 bytes for a KV tile.
TEST_F(CostTest, AttentionByTilesMovesItsTilesThroughSharedMemory) {
  fake::Configure({.multiprocessors = 132, .count_only = true});
  AttentionTotals({4, 1, 128}, ChunkPlan(150, 3), DType::kBF16);
  const std::vector<fake::Counted> work = fake::WorkInOrder();
  const auto of = std::find_if(work.begin(), work.end(), [](const fake::Counted& piece) {
    return piece.name == "attention T16";
  });
  ASSERT_NE(of, work.end());
  EXPECT_EQ(of->cost.shared_bytes, 3 * (2 * 64 * 128 * 2 + 4 * 24 * 512));
  EXPECT_EQ(of->cost.cold_bytes, 2 * 150 * 128 * 2);
  EXPECT_EQ(of->cost.blocks, 3);  // a KV tile each, as most multiprocessors would be idle
  EXPECT_EQ(of->cost.block_bytes, 2 * 64 * 128 * 2);
  EXPECT_EQ(of->threads, 128);
}

TEST_F(CostTest, AttentionByRowsWhereNoTileFits) {
  const StepPlan plan = ChunkPlan(100, 2);
  const auto only = [&](const Heads& heads, DType dtype) {
    std::vector<std::string> names;
    for (const auto& [name, of] : AttentionTotals(heads, plan, dtype)) {
      if (absl::StartsWith(name, "attention")) names.push_back(name);
    }
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(only({4, 1, 256}, DType::kF16), ElementsAre("attention T16"));
  EXPECT_THAT(only({4, 1, 256}, DType::kF32), ElementsAre("attention by rows"));
  EXPECT_THAT(only({65, 1, 256}, DType::kBF16), ElementsAre("attention by rows"));
  EXPECT_THAT(only({65, 1, 128}, DType::kBF16), ElementsAre("attention T128"));
  fake::Configure({.block_shared_bytes = 99 << 10});
  EXPECT_THAT(only({4, 1, 256}, DType::kF16), ElementsAre("attention by rows"));
  EXPECT_THAT(only({65, 1, 128}, DType::kBF16), ElementsAre("attention by rows"));
  EXPECT_THAT(only({32, 1, 128}, DType::kBF16), ElementsAre("attention T64"));
  EXPECT_EQ(AttentionTotals({4, 1, 256}, plan, DType::kF16).at("attention by rows").bytes,
            4 * 2 * (99 + 100 + 2) * 256 * 2);
}

TEST_F(CostTest, AttentionReadsItsWindow) {
  fake::Configure({.multiprocessors = 1});  // lists are not cut finer
  const StepPlan plan = ChunkPlan(200, 3);
  const AttentionRule rule = {.scale = 0.1f, .window = 60};
  // The first row sees positions from 138 on, which lies in the KV tile of 128.
  const int64_t head_bytes = 64 * 2, packed = 4 * 3;
  EXPECT_EQ(AttentionTotals({8, 2, 64}, plan, DType::kBF16, rule).at("attention T16").bytes,
            2 * (2 * (200 - 128) + 2 * packed) * head_bytes);
  EXPECT_EQ(AttentionTotals({4, 1, 64}, plan, DType::kF32, rule).at("attention by rows").bytes,
            4 * 2 * (3 * 60 + 3) * 64 * 4);
}

// Rotated rows of random values and what they attend to; names of attention kernels that ran.
std::vector<float> AttendedRows(TestBackend* backend, const Heads& heads, DType dtype,
                                std::vector<std::string>* names) {
  const StepPlan plan = ChunkPlan(150, 30);
  const auto pool =
      (*backend)
          ->MakeKvPool({1, heads.kv, heads.dim, static_cast<int64_t>(plan.table.size()) + 1, dtype})
          .value();
  const auto rope = (*backend)->MakeRope({256, PlainFrequencies(heads.dim, 1e4)}).value();
  const HeadSteps steps = {.rope = rope.get()};
  const AttentionRule rule = {.scale = 0.1f};
  const int64_t width = int64_t{heads.q + 2 * heads.kv} * heads.dim;
  const Tensor out = backend->Poisoned(30, int64_t{heads.q} * heads.dim, dtype);
  const StepPlan before = ChunkPlan(120, 120);
  const Tensor first = backend->Put(RandomFloats(120 * width, 1), width, dtype);
  const Tensor qkv = backend->Put(RandomFloats(30 * width, 2), width, dtype);
  RunOps(backend->get(), before,
         [&](Ops* ops) { ops->RopeAndStoreKv(0, steps, first, pool.get()); });
  fake::ClearTotals();
  RunOps(backend->get(), plan, [&](Ops* ops) {
    ops->RopeAndStoreKv(0, steps, qkv, pool.get());
    ops->Attention(0, rule, qkv, *pool, out);
  });
  names->clear();
  for (const auto& [name, of] : fake::TotalsByName()) {
    if (absl::StartsWith(name, "attention")) names->push_back(name);
  }
  return backend->Read(out);
}

// Off unless it is asked for, and then only where the device, the type and the head allow it.
TEST_F(CostTest, WideAttention) {
  fake::Configure({.multiprocessors = 1});  // lists are not cut finer
  using testing::ElementsAre;
  std::vector<std::string> names;
  for (const int dim : {64, 128}) {
    const auto plain = TestBackend::Make("cuda"), wide = TestBackend::MakeWide();
    const std::vector<float> want = AttendedRows(plain.get(), {4, 1, dim}, DType::kBF16, &names);
    EXPECT_THAT(names, ElementsAre("attention T128"));
    EXPECT_EQ(AttendedRows(wide.get(), {4, 1, dim}, DType::kBF16, &names), want);
    EXPECT_THAT(names, ElementsAre("attention T128 by wgmma"));
    AttendedRows(wide.get(), {4, 1, 96}, DType::kBF16, &names);
    EXPECT_THAT(names, ElementsAre("attention T128"));
    AttendedRows(wide.get(), {4, 1, dim}, DType::kF32, &names);
    EXPECT_THAT(names, ElementsAre("attention by rows"));
  }
  for (const auto& [major, minor] : {std::pair(8, 0), std::pair(8, 9), std::pair(9, 1)}) {
    fake::DeviceSettings settings;
    settings.major = major;
    settings.minor = minor;
    settings.multiprocessors = 1;
    fake::Configure(settings);
    AttendedRows(TestBackend::MakeWide().get(), {4, 1, 64}, DType::kBF16, &names);
    EXPECT_THAT(names, ElementsAre("attention T128")) << major << "." << minor;
  }
}

// A code and a sixteenth of two bytes for each weight, as often as 64 rows need them.
TEST_F(CostTest, ProductsWithWeightsInBlocksReadTheBlocks) {
  const std::vector<float> values(128 * 256, 0.5f);
  const MatrixSource source = {values.data(), DType::kF32, 128, 256, 256};
  for (const DType format : {DType::kQ8_0, DType::kQ4_0}) {
    const auto backend = TestBackend::Make("cuda");
    const auto w = (*backend)->Pack({source}, format, {}).value();
    for (const int rows : {8, 64, 128}) {
      const Tensor x = backend->Put(std::vector<float>(rows * 256, 0.5f), 256, DType::kBF16);
      const Tensor y = backend->Poisoned(rows, 128, DType::kF32);
      fake::ClearTotals();
      RunOps(backend->get(), PlanOfRows(rows), [&](Ops* ops) { ops->MatMul(*w, x, y, false); });
      const auto totals = fake::TotalsByName();
      ASSERT_EQ(totals.count("block product"), 1u);
      const fake::Totals& of = totals.at("block product");
      const int64_t w_bytes = 128 * 256 * (format == DType::kQ8_0 ? 34 : 18) / 32;
      const int64_t runs = cuda::ProductRuns(128, 256);
      EXPECT_EQ(of.launches, 1);
      EXPECT_EQ(of.bytes, w_bytes * ((rows + 63) / 64) + 2 * 2 * rows * 256 + 4 * rows * 128 +
                              (runs > 1 ? 8 * runs * rows * 128 : 0));
      EXPECT_EQ(of.flops, int64_t{2} * rows * 128 * 256);
    }
  }
}

// Every kernel of a step says what it does, as often as the decoder has it.
TEST_F(CostTest, AStepOfAModel) {
  const test::TempDir dir;
  test::TinyLlamaOptions tiny;  // 2 layers, hidden 32, 4 and 2 heads of 8, 48, vocabulary 96
  tiny.dtype = "BF16";
  test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir.path());
  model::ModelRunnerOptions options;
  options.dir = dir.path();
  options.backend = "cuda";
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto one = comm::MakeSingleCommunicator();
  const auto runner = model::ModelRunner::Load(options, one.get()).value();
  int cached = 0;
  const model::SequenceHandle sequence = runner->blocks()->Open({1, 2, 3, 4}, &cached);
  model::StepBuilder step = runner->NewStep();
  const auto slots = runner->blocks()->AppendPrefix(sequence, {1, 2, 3}).value();
  step.AddPrefixRows(sequence, {1, 2, 3}, slots);
  const model::KvNode node = runner->blocks()->AddNode(sequence, model::kPrefixEnd, 4).value();
  step.AddNodeRow(sequence, node, 4, RowNeed());
  fake::ClearTotals();
  ASSERT_TRUE(runner->Submit(std::move(step)).ok());
  ASSERT_TRUE(runner->Wait().ok());
  const std::map<std::string, fake::Totals> totals = fake::TotalsByName();
  EXPECT_EQ(totals.count("undeclared"), 0u);

  const auto expect = [&](const std::string& name, int64_t launches, int64_t bytes) {
    ASSERT_EQ(totals.count(name), 1u) << name;
    EXPECT_EQ(totals.at(name).launches, launches) << name;
    EXPECT_EQ(totals.at(name).bytes, bytes) << name;
  };
  // Four rows; from the output projection of the last layer on one.
  expect("embedding", 1, 4 * 32 * (2 + 4));
  expect("norm", 5, (4 + 4 + 4 + 1 + 1) * 32 * (2 * 4 + 2));
  expect("rope and KV store", 2, 2 * 4 * (6 * 8 * (2 + 2 + 4) + 2 * 8 * (2 + 2 * 2)));
  expect("activation", 2, (4 + 1) * 48 * 3 * 2);
  expect("gather of rows", 1, 2 * 32 * 4 + 2 * 32 * 2);
  expect("product 64 x 32", 2, 2 * (64 * 32 + 4 * 32 + 4 * 64) * 2);
  expect("product 96 x 32", 3,
         2 * 96 * 32 * 2 + (4 + 1) * (32 + 96) * 2 + (96 * 32 + 32) * 2 + 96 * 4);
  expect("product 32 x 48", 2, 2 * 32 * 48 * 2 + (4 + 1) * (48 * 2 + 2 * 32 * 4));
  expect("product 32 x 32", 2, 2 * 32 * 32 * 2 + (4 + 1) * (32 * 2 + 2 * 32 * 4));
  EXPECT_EQ(totals.at("product 64 x 32").flops, 2 * 2 * 4 * 64 * 32);
  EXPECT_EQ(totals.at("copy to host").bytes, 96 * 4);
}

// Four rows with two of six experts each: eight pairs, and weights of all experts, since the device
// alone knows how many have rows.
TEST_F(CostTest, ALayerOfExperts) {
  constexpr int64_t d = 40, f = 24, kExperts = 6, kRows = 4, kPairs = 8;
  const auto backend = TestBackend::Make("cuda");
  const auto pack = [&](int64_t outputs, int64_t inputs) {
    const std::vector<float> values = RandomFloats(outputs * inputs, outputs);
    return PackOne(backend->get(), {values.data(), DType::kF32, outputs, inputs, inputs},
                   DType::kBF16);
  };
  std::vector<std::unique_ptr<Weight>> gate_up, down;
  for (int64_t e = 0; e < kExperts; ++e) {
    gate_up.push_back(pack(2 * f, d));
    down.push_back(pack(d, f));
  }
  const auto router = pack(kExperts, d);
  const Tensor x = backend->Put(RandomFloats(kRows * d, 1), d, DType::kBF16);
  const Tensor out = backend->Poisoned(kRows, d, DType::kF32);
  fake::ClearTotals();
  RunOps(backend->get(), PlanOfRows(kRows), [&](Ops* ops) {
    ops->MixExperts({router.get(), gate_up, down, Activation::kSilu, 2, true}, x, out);
  });
  const std::map<std::string, fake::Totals> totals = fake::TotalsByName();
  EXPECT_EQ(totals.count("undeclared"), 0u);
  int64_t launches = 0;
  for (const auto& [name, of] : totals) {
    if (name.find("copy") == std::string::npos) launches += of.launches;
  }
  EXPECT_EQ(launches, 7);
  // A block for each expert reads the four rows.
  EXPECT_EQ(totals.at("scores of experts").bytes, 2 * d * (kExperts + kExperts * kRows) + 4 * 24);
  EXPECT_EQ(totals.at("scores of experts").flops, 2 * kRows * kExperts * d);
  EXPECT_EQ(totals.at("choice of experts").launches, 1);
  EXPECT_EQ(totals.at("list of experts").launches, 1);
  EXPECT_EQ(totals.at("activation").bytes, kPairs * f * 3 * 2);
  const fake::Totals& products = totals.at("product of experts");
  EXPECT_EQ(products.launches, 2);
  EXPECT_EQ(products.flops, 2 * kPairs * 3 * f * d);
  EXPECT_EQ(products.bytes,
            2 * kExperts * 3 * f * d + 2 * kPairs * (d + 2 * f) + kPairs * (2 * f + 4 * d));
  EXPECT_EQ(totals.at("sum of experts").bytes, 4 * d * (kPairs + kRows));
}

TEST_F(CostTest, ADraftVocabularyReadsItsRowsAndWritesAll) {
  const auto backend = TestBackend::Make("cuda");
  const auto scatter = (*backend)->PackScatter({1, 4, 6}, 16).value();
  const Tensor kept = backend->Put(std::vector<float>(2 * 3, 1.0f), 3, DType::kF32);
  const Tensor wide = backend->Poisoned(2, 16, DType::kF32);
  fake::ClearTotals();
  RunOps(backend->get(), PlanOfRows(2), [&](Ops* ops) { ops->Scatter(*scatter, kept, wide); });
  EXPECT_EQ(fake::TotalsByName().at("scatter of logits").launches, 1);
  EXPECT_EQ(fake::TotalsByName().at("scatter of logits").bytes, 2 * (16 * (4 + 4) + 3 * 4));
}

TEST_F(CostTest, CountingOnlyComputesNothing) {
  fake::Configure({.count_only = true});
  const auto backend = TestBackend::Make("cuda");
  const Tensor gate_up = backend->Put(std::vector<float>(2 * 16, 1.0f), 16, DType::kF32);
  const Tensor out = backend->Put(std::vector<float>(2 * 8, 5.0f), 8, DType::kF32);
  fake::ClearTotals();
  RunOps(backend->get(), PlanOfRows(2),
         [&](Ops* ops) { ops->Activate(Activation::kSilu, gate_up, out); });
  EXPECT_EQ(fake::TotalsByName().at("activation").launches, 1);
  fake::Configure({});
  EXPECT_THAT(backend->Read(out), testing::Each(5.0f));
}

}  // namespace
}  // namespace coppice::kernels
