// Draft forests of an EAGLE-3 head whose levels the device chooses: the same nodes as the host
// chooses. Each node of a level begins with the state of the node above that the device chose.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/host_threads.h"
#include "comm/communicator.h"
#include "decoding/method.h"
#include "draft_node/device_forests.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "sampling/rng.h"
#include "tests/kernels/cuda/two_roots.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_eagle3.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::draft_node {
namespace {

namespace fake = kernels::cuda::fake;

constexpr int kIds = 200, kColumns = 32, kPromptTokens = 21;

class HeadForestsTest : public testing::Test {
 protected:
  using Paths = std::set<std::vector<int32_t>>;  // tokens from the root on, then the root

  HeadForestsTest() {
    const test::TinyLlama target =
        test::MakeTinyLlama({.hidden = kColumns, .layers = 6, .vocab = kIds});
    test::WriteTinyLlama(target, target_.path());
    test::WriteTinyLlama(test::MakeTinyEagle3(target), head_.path());
  }
  ~HeadForestsTest() override { EXPECT_THAT(fake::Violations(), testing::IsEmpty()); }

  std::unique_ptr<model::ModelRunner> NewRunner(bool graphs) {
    model::ModelRunnerOptions options;
    options.dir = head_.path();
    options.target = target_.path();
    options.backend = "cuda";
    options.graphs = graphs;
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    auto runner = model::ModelRunner::Load(options, single_.get());
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *std::move(runner);
  }
  // States that differ from row to row and from round to round, as a target would send them.
  static std::vector<uint16_t> States(uint64_t seed, int rows) {
    std::vector<uint16_t> states;
    for (int i = 0; i < rows * kColumns; ++i) {
      const uint64_t word = sampling::Finalize(seed * 100003 + static_cast<uint64_t>(i));
      states.push_back(kernels::FloatToBf16(static_cast<float>(word >> 40) * 0x1p-23f - 1.0f));
    }
    return states;
  }

  // Rounds of a session: after each, two tokens are accepted, of which one was a root.
  std::vector<Paths> Rounds(model::ModelRunner* runner, uint64_t seed, int width, int depth,
                            bool on_device) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.beam_width = 2;
    params.draft_top_k = 24;
    params.seed = seed;
    std::vector<TokenId> prompt;
    for (int i = 0; i < kPromptTokens; ++i)
      prompt.push_back(static_cast<TokenId>((seed * 13 + i * 29) % kIds));
    DraftSession session(params, prompt, runner->blocks(), StateNeedsOf(runner->config()));
    EXPECT_TRUE(
        session.TakeStates({1, kPromptTokens - 1, {}, States(seed, kPromptTokens - 1)}).ok());
    while (session.CanPrefill()) {
      model::StepBuilder prefill = runner->NewStep();
      EXPECT_TRUE(session.AppendPrefill(8, &prefill, runner->commits()).ok());
      EXPECT_TRUE(runner->Submit(std::move(prefill)).ok());
      EXPECT_TRUE(runner->Wait().ok());
    }
    std::vector<Paths> paths;
    for (int round = 0; round < 4; ++round) {
      decoding::DraftRequest request = TwoRoots(session, width, depth);
      request.states.nodes = {NodeId{0}, NodeId{1}};
      const std::vector<uint16_t> state =
          States(seed + 17 * round + 1000, 1);  // both roots' parent
      for (int root = 0; root < 2; ++root)
        request.states.values.insert(request.states.values.end(), state.begin(), state.end());
      auto builder = ForestBuilder::Start(std::move(request), &session, runner->blocks());
      EXPECT_TRUE(builder.ok()) << builder.status();
      if (!builder.ok()) return paths;
      on_device ? GrowOnDevice(builder->get(), runner) : GrowOnHost(builder->get(), runner);
      paths.push_back(PathsOf((*builder)->Sent()));
      builder->reset();
      EXPECT_EQ(runner->blocks()->CheckIntegrity(), absl::OkStatus());
      const int length = session.stable_length();
      const TokenId bonus = static_cast<TokenId>(50 + 7 * round);
      EXPECT_TRUE(session.ExtendStable(length + 2, {30 + round % 2, bonus}).ok());
      const auto row = static_cast<uint32_t>(kPromptTokens + length + 1);  // of the bonus token
      EXPECT_TRUE(session.TakeStates({row, 1, {}, States(seed + 31 * round + 5000, 1)}).ok());
    }
    return paths;
  }
  static void GrowOnHost(ForestBuilder* builder, model::ModelRunner* runner) {
    while (!builder->done()) {
      model::StepBuilder step = runner->NewStep();
      ASSERT_TRUE(builder->AppendRows(&step).ok());
      ASSERT_TRUE(runner->Submit(std::move(step)).ok());
      const auto rows = runner->Wait();
      ASSERT_TRUE(rows.ok()) << rows.status();
      ASSERT_TRUE(builder->Consume(**rows, HostThreads::Serial(), runner->commits()).ok());
    }
  }
  static void GrowOnDevice(ForestBuilder* builder, model::ModelRunner* runner) {
    ASSERT_TRUE(builder->GrowsOnDevice(*runner));
    const absl::Status submitted = SubmitForests({builder}, runner);
    ASSERT_TRUE(submitted.ok()) << submitted;
    const auto grown = WaitForForests({builder}, runner);
    ASSERT_TRUE(grown.ok()) << grown.status();
    ASSERT_TRUE(grown->front().ok()) << grown->front();
  }
  static Paths PathsOf(const decoding::DraftForest& forest) {
    Paths paths;
    for (int32_t node = 0; node < forest.size(); ++node) {
      std::vector<int32_t> path;
      forest.AppendPath(NodeId{node}, &path);
      path.push_back(Index(forest.RootOf(NodeId{node})));
      paths.insert(path);
    }
    return paths;
  }

  const test::TempDir target_, head_;
  const std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
};

// f32 keys may order near ties otherwise: one forest may differ.
TEST_F(HeadForestsTest, AreThoseOfTheHost) {
  const auto host = NewRunner(/*graphs=*/true), device = NewRunner(/*graphs=*/true);
  int forests = 0, same = 0;
  for (const auto& [width, depth] : {std::pair(4, 4), {2, 3}, {6, 2}, {3, 8}}) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const std::vector<Paths> want = Rounds(host.get(), seed, width, depth, false);
      const std::vector<Paths> got = Rounds(device.get(), seed, width, depth, true);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) same += got[i] == want[i] ? 1 : 0;
      forests += static_cast<int>(want.size());
      EXPECT_GE(want.back().size(), static_cast<size_t>(width * (depth - 1)));
    }
  }
  EXPECT_GE(same, forests - 1) << "of " << forests;
}

// By graphs or launch by launch: the same forests.
TEST_F(HeadForestsTest, GraphsGrowTheSameForests) {
  const auto with = NewRunner(/*graphs=*/true), without = NewRunner(/*graphs=*/false);
  const int64_t graphs = fake::CountWork().graph_launches;
  for (uint64_t seed = 1; seed <= 3; ++seed)
    EXPECT_EQ(Rounds(with.get(), seed, 4, 4, true), Rounds(without.get(), seed, 4, 4, true));
  EXPECT_GT(fake::CountWork().graph_launches, graphs);
}

}  // namespace
}  // namespace coppice::draft_node
