// Draft forests whose levels the device chooses, over the simulated device: the same nodes as the
// host chooses from the same rows, and the same tokens in the end.
#include "draft_node/device_forests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/kernels/cuda/two_roots.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::draft_node {
namespace {

namespace fake = kernels::cuda::fake;
using testing::AnyOfArray;
using testing::Each;

constexpr int kVocab = 611;

struct Shape {
  std::string name, method;
  sampling::DecodingKind kind;
  int width;
  double temperature = 1;
  int top_k = 0;
  int draft_width = 6, draft_depth = 4;
  bool duplicates = true;  // multiset semantics
  bool refill = true;
  bool bias = false;
  std::string dtype = "F32";
  std::vector<int> head = {};  // ids of the draft's head; empty: all
};

std::vector<int> EveryFifth() {
  std::vector<int> ids;
  for (int id = 2; id < kVocab; id += 5) ids.push_back(id);
  return ids;
}

// Every path of a forest from a root on, as root and tokens: whatever the order of its nodes.
std::set<std::vector<int32_t>> PathsOf(const decoding::DraftForest& forest) {
  std::set<std::vector<int32_t>> paths;
  for (int32_t node = 0; node < forest.size(); ++node) {
    std::vector<int32_t> path;
    forest.AppendPath(NodeId{node}, &path);
    path.push_back(Index(forest.RootOf(NodeId{node})));
    paths.insert(path);
  }
  return paths;
}

class DeviceForestsTest : public testing::TestWithParam<Shape> {
 protected:
  DeviceForestsTest() {
    Write(target_.path(), 1, 2, {});
    Write(draft_.path(), 2, 1, GetParam().head);
  }
  ~DeviceForestsTest() override { EXPECT_THAT(fake::Violations(), testing::IsEmpty()); }

  static void Write(const std::string& dir, uint64_t seed, int layers,
                    const std::vector<int>& head) {
    test::TinyLlamaOptions options;
    options.vocab = kVocab;
    options.layers = layers;
    options.seed = seed;
    options.dtype = GetParam().dtype;
    test::TinyLlama model = test::MakeTinyLlama(options);
    if (!head.empty()) test::ReduceHead(&model, head);
    test::WriteTinyLlama(model, dir);
  }
  lab::LocalReplicaOptions Options(bool device_forests) const {
    lab::LocalReplicaOptions options =
        test::CheckedReplica::OptionsOf(target_.path(), draft_.path());
    options.backend = "cuda";
    options.kv_bytes = 1 << 20;
    options.exact = true;  // a draft changes how many rows a step has
    options.device_forests = device_forests;
    return options;
  }
  static decoding::DecodingParams Params(uint64_t seed) {
    const Shape& shape = GetParam();
    decoding::DecodingParams params;
    params.kind = shape.kind;
    params.method = decoding::FindMethod(shape.method);
    params.beam_width = params.num_hypotheses = shape.width;
    params.sampling.temperature = shape.temperature;
    params.sampling.top_k = shape.top_k;
    params.set_semantics = !shape.duplicates;
    params.refill = shape.refill;
    params.max_tokens = 8;
    params.draft_top_k = 24;
    params.min_tokens = 4;  // until then the stop tokens have a bias
    params.stop_ids = {2, 40, 77, 301};
    if (shape.bias)
      params.sampling.logit_bias = {{17, 6.0}, {17, 1.0}, {18, 6.5}, {40, 5.0}, {5, -3.0}};
    params.seed = seed;
    return params;
  }
  test::TempDir target_, draft_;
};

// Two replicas decode one sequence; both get the forests of the host. At every round the device's
// is compared. f32 keys may order near ties otherwise: one forest may differ.
TEST_P(DeviceForestsTest, AreThoseOfTheHost) {
  auto host = lab::LocalReplica::Load(Options(false)).value();
  auto device = lab::LocalReplica::Load(Options(true)).value();
  fake::ClearTotals();
  int forests = 0, same = 0, nodes = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    const std::vector<TokenId> prompt = {5, 6, static_cast<TokenId>(7 + seed), 9};
    ASSERT_TRUE(host->Open(prompt, Params(seed), true).ok());
    ASSERT_TRUE(device->Open(prompt, Params(seed), true).ok());
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    while (true) {
      ASSERT_TRUE(device->Round(forest).ok());
      ASSERT_TRUE(host->Round(forest).ok());
      if (host->decoder().finished()) break;
      const int depth = std::min(GetParam().draft_depth, host->decoder().max_useful_depth());
      if (depth == 0) {
        forest = decoding::DraftForest::Empty(static_cast<int>(host->decoder().roots().size()));
        continue;
      }
      const decoding::DraftForest grown = device->Draft(GetParam().draft_width, depth).value();
      forest = host->Draft(GetParam().draft_width, depth).value();
      EXPECT_EQ(grown.Validate(kVocab), absl::OkStatus());
      EXPECT_EQ(device->CheckIntegrity(), absl::OkStatus());
      // What the target has drawn already is drafted whatever the draft can say.
      if (std::vector<int> said = GetParam().head; !said.empty()) {
        for (const TokenId token : device->decoder().draft_state().slot_token)
          said.push_back(token);
        EXPECT_THAT(grown.token, Each(AnyOfArray(said)));
      }
      ++forests;
      nodes += forest.size();
      same += PathsOf(grown) == PathsOf(forest) ? 1 : 0;
    }
    device->Close();
    host->Close();
  }
  EXPECT_GE(forests, 4);
  EXPECT_GT(fake::TotalsByName()["choice of levels"].launches, forests);
  EXPECT_GT(nodes, forests * GetParam().draft_width);  // of several levels
  EXPECT_GE(same, forests - 1) << "of " << forests;
}

// What is drafted changes no token.
TEST_P(DeviceForestsTest, ChangeNothing) {
  test::CheckedReplica replica(Options(true));
  const int64_t launches = fake::CountWork().graph_launches;
  for (uint64_t seed = 0; seed < 1; ++seed) {
    const std::vector<TokenId> prompt = {5, 6, static_cast<TokenId>(7 + seed)};
    const auto plain = replica.Decode(prompt, Params(seed), 0, 0);
    const auto drafted =
        replica.Decode(prompt, Params(seed), GetParam().draft_width, GetParam().draft_depth);
    ASSERT_EQ(drafted.hypotheses.size(), plain.hypotheses.size());
    for (size_t i = 0; i < plain.hypotheses.size(); ++i) {
      EXPECT_EQ(drafted.hypotheses[i].tokens, plain.hypotheses[i].tokens);
      EXPECT_EQ(drafted.hypotheses[i].joint_log_probability,
                plain.hypotheses[i].joint_log_probability);
    }
  }
  EXPECT_GT(fake::CountWork().graph_launches, launches);
}

// What a forest costs the host, on a model whose forests have been grown before.
class ForestCostTest : public testing::Test {
 protected:
  struct Cost {
    int64_t up = 0, down = 0, graphs = 0, launches = 0;
  };

  ForestCostTest() {
    test::TinyLlamaOptions options;
    options.vocab = kVocab;
    test::WriteTinyLlama(test::MakeTinyLlama(options), dir_.path());
  }
  Cost Draft(bool device_forests, int depth) {
    lab::LocalReplicaOptions options = test::CheckedReplica::OptionsOf(dir_.path(), dir_.path());
    options.backend = "cuda";
    options.kv_bytes = 1 << 20;
    options.device_forests = device_forests;
    auto replica = lab::LocalReplica::Load(options).value();
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kMultinomial;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.draft_top_k = 8;
    params.sampling.top_k = 20;  // rows of the target are short
    params.max_tokens = 40;
    Cost cost;
    EXPECT_TRUE(replica->Open({5, 6, 7}, params, true).ok());
    decoding::DraftForest forest = decoding::DraftForest::Empty(1);
    for (int round = 0; round < 5; ++round) {
      EXPECT_TRUE(replica->Round(forest).ok());
      const fake::WorkCounts before = fake::CountWork();
      forest = replica->Draft(4, depth).value();
      const fake::WorkCounts after = fake::CountWork();
      cost = {after.copies_up - before.copies_up, after.copies_down - before.copies_down,
              after.graph_launches - before.graph_launches, after.launches - before.launches};
    }
    EXPECT_EQ(forest.depth(), depth);
    replica->Close();
    return cost;
  }
  using Paths = std::vector<std::set<std::vector<int32_t>>>;  // of each forest
  // Grows forests of these widths and depths together, each below a prompt of its own; so many
  // times, the last time by graphs if there were others.
  Paths GrowTogether(const std::vector<std::pair<int, int>>& shapes, int times = 1);
  static Paths Grow(absl::Span<ForestBuilder* const> builders, model::ModelRunner* runner);

  test::TempDir dir_;
};

ForestCostTest::Paths ForestCostTest::GrowTogether(const std::vector<std::pair<int, int>>& shapes,
                                                   int times) {
  model::ModelRunnerOptions options;
  options.dir = dir_.path();
  options.backend = "cuda";
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto single = comm::MakeSingleCommunicator();
  const auto runner = model::ModelRunner::Load(options, single.get()).value();
  std::vector<std::unique_ptr<DraftSession>> sessions;
  for (const auto& [width, depth] : shapes) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.beam_width = 2;
    params.draft_top_k = 10 * width;
    params.seed = width;
    sessions.push_back(std::make_unique<DraftSession>(
        params, std::vector<TokenId>{9, static_cast<TokenId>(width)}, runner->blocks()));
    DraftSession* const session = sessions.back().get();
    model::StepBuilder prefill = runner->NewStep();
    EXPECT_TRUE(session->AppendPrefill(10, &prefill, runner->commits()).ok());
    EXPECT_TRUE(runner->Submit(std::move(prefill)).ok());
    EXPECT_TRUE(runner->Wait().ok());
  }
  Paths paths;
  for (int time = 0; time < times; ++time) {
    std::vector<std::unique_ptr<ForestBuilder>> owned;
    std::vector<ForestBuilder*> builders;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto [width, depth] = shapes[i];
      DraftSession* const session = sessions[i].get();
      owned.push_back(
          ForestBuilder::Start(TwoRoots(*session, width, depth), session, runner->blocks())
              .value());
      builders.push_back(owned.back().get());
      EXPECT_TRUE(builders.back()->GrowsOnDevice(*runner));
    }
    const fake::WorkCounts before = fake::CountWork();
    paths = Grow(builders, runner.get());
    const fake::WorkCounts after = fake::CountWork();
    if (time > 1) {
      EXPECT_EQ(after.graph_launches - before.graph_launches, 2);
      EXPECT_EQ(after.launches, before.launches);
    }
  }
  return paths;
}

ForestCostTest::Paths ForestCostTest::Grow(absl::Span<ForestBuilder* const> builders,
                                           model::ModelRunner* runner) {
  const int64_t questions = fake::CountCallsOf("cudaEventQuery");
  EXPECT_TRUE(SubmitForests(builders, runner).ok());
  EXPECT_EQ(fake::CountCallsOf("cudaEventQuery"), questions);  // all levels are queued
  runner->WaitForHead();
  const auto results = WaitForForests(builders, runner).value();
  EXPECT_THAT(results, testing::Each(absl::OkStatus()));
  Paths paths;
  for (ForestBuilder* const builder : builders) {
    EXPECT_TRUE(builder->done());
    EXPECT_EQ(builder->Sent().Validate(kVocab), absl::OkStatus());
    paths.push_back(PathsOf(builder->Sent()));
  }
  EXPECT_EQ(runner->blocks()->CheckIntegrity(), absl::OkStatus());
  return paths;
}

// All levels are queued before the host asks the first time, with one copy before the first and one
// behind the last.
TEST_F(ForestCostTest, OneWaitForAllLevels) {
  for (const int depth : {2, 5, 8}) {
    const Cost device = Draft(true, depth), host = Draft(false, depth);
    EXPECT_EQ(device.down, 1) << depth;
    EXPECT_EQ(device.up, 1);      // the plans of all levels
    EXPECT_EQ(device.graphs, 2);  // all levels but the last head, and this
    EXPECT_EQ(device.launches, 0);
    EXPECT_EQ(host.down, depth);
    EXPECT_EQ(host.up, depth);
  }
}

// One level, or more than the kernels have room for, goes through the host.
TEST_F(ForestCostTest, OtherDepthsGoThroughTheHost) {
  for (const int depth : {1, 9}) EXPECT_EQ(Draft(true, depth).down, depth);
}

// Forests of other widths and depths beside it change no forest.
TEST_F(ForestCostTest, ForestsOfManyShapesTogether) {
  const std::vector<std::pair<int, int>> shapes = {{3, 2}, {1, 4}, {6, 3}, {2, 2}, {5, 8}};
  const auto together = GrowTogether(shapes);
  for (size_t i = 0; i < shapes.size(); ++i)
    EXPECT_EQ(GrowTogether({shapes[i]})[0], together[i]) << i;
}

// The whole forest is captured the second time that its rows are of these numbers.
TEST_F(ForestCostTest, GraphsGrowTheSameForests) {
  for (const auto& shapes : std::vector<std::vector<std::pair<int, int>>>{
           {{3, 4}}, {{5, 8}}, {{3, 2}, {6, 3}, {2, 2}}}) {
    EXPECT_EQ(GrowTogether(shapes, 4), GrowTogether(shapes));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Methods, DeviceForestsTest,
    testing::Values(
        Shape{"Draws", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, 0.9},
        Shape{"Sets", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 3, 1.1, 0, 5, 3,
              false},
        Shape{"NoRefill", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, 0.8, 0, 6, 4,
              true, false},
        Shape{"TopK", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 2, 1, 20, 9, 5},
        Shape{"Narrow", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, 1, 0, 2, 3},
        Shape{"One", "gumbel_coupling", sampling::DecodingKind::kMultinomial, 1, 0.7, 0, 3, 4},
        Shape{"Bias", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, 0.9, 0, 6, 4,
              true, true, true},
        Shape{"BFloat16", "gumbel_coupling", sampling::DecodingKind::kBeamSampling, 4, 0.9, 0, 12,
              3, true, true, false, "BF16"},
        Shape{.name = "DraftVocabulary",
              .method = "gumbel_coupling",
              .kind = sampling::DecodingKind::kBeamSampling,
              .width = 4,
              .temperature = 0.9,
              .bias = true,
              .head = EveryFifth()},
        // Fewer than the list of a row, and than its support; one of them is a stop token.
        Shape{.name = "HeadOfThree",
              .method = "gumbel_coupling",
              .kind = sampling::DecodingKind::kBeamSampling,
              .width = 4,
              .head = {17, 77, 600}},
        Shape{.name = "BeamSearchDraftVocabulary",
              .method = "speculative_beam_search",
              .kind = sampling::DecodingKind::kBeamSearch,
              .width = 4,
              .head = EveryFifth()},
        Shape{"Greedy", "gumbel_coupling", sampling::DecodingKind::kMultinomial, 1, 0, 0, 4, 4},
        Shape{"BeamSearch", "speculative_beam_search", sampling::DecodingKind::kBeamSearch, 4, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice::draft_node
