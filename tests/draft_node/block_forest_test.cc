// Forests of a block drafter with a tiny one: their rows against the reference in double
// precision, what sessions keep of the passes, and how deep they are.
#include "draft_node/block_forest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "comm/channel.h"
#include "comm/communicator.h"
#include "decoding/drafter.h"
#include "decoding/method.h"
#include "draft_node/draft_service.h"
#include "draft_node/draft_session.h"
#include "draft_node/forest_builder.h"
#include "kernels/element.h"
#include "model/model_runner.h"
#include "proto/convert.h"
#include "sampling/rng.h"
#include "tests/model/reference_dflash.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_dflash.h"

namespace coppice::draft_node {
namespace {

using ::testing::HasSubstr;

constexpr int kVocab = 96, kHidden = 32, kMaxRows = 64;

// The state of a token, which the row after it brings. It depends on the path up to the token.
std::vector<double> StateAfter(const std::vector<TokenId>& path) {
  uint64_t hash = sampling::kRootHash;
  for (const TokenId token : path) hash = sampling::ExtendHash(hash, token);
  std::vector<double> state;
  for (int i = 0; i < kHidden; ++i) {
    const auto bits = sampling::Finalize(hash + i) >> 40;
    state.push_back(
        kernels::Bf16ToFloat(kernels::FloatToBf16(static_cast<float>(bits) / (1 << 22) - 2)));
  }
  return state;
}
void AppendBf16(const std::vector<double>& state, std::vector<uint16_t>* values) {
  for (const double value : state)
    values->push_back(kernels::FloatToBf16(static_cast<float>(value)));
}
std::vector<TokenId> First(const std::vector<TokenId>& path, size_t count) {
  return {path.begin(), path.begin() + static_cast<int64_t>(count)};
}

class BlockForestTest : public ::testing::Test {
 protected:
  void Load(const test::TinyDFlashOptions& options) {
    target_ = test::MakeTinyLlama({.layers = 4});
    draft_ = test::MakeTinyDFlash(target_, options);
    test::WriteTinyLlama(target_, target_dir_.path());
    test::WriteTinyLlama(draft_, dir_.path());
    model::ModelRunnerOptions load;
    load.dir = dir_.path();
    load.target = target_dir_.path();
    load.kv_bytes = 1 << 20;
    load.threads = 1;
    load.max_rows = kMaxRows;
    auto runner = model::ModelRunner::Load(load, single_.get());
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }
  static decoding::DecodingParams Params() {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = decoding::FindMethod("gumbel_coupling");
    params.beam_width = 2;
    params.draft_top_k = 40;
    return params;
  }
  std::unique_ptr<DraftSession> Open(const std::vector<TokenId>& prompt) {
    auto session = std::make_unique<DraftSession>(Params(), prompt, runner_->blocks(),
                                                  StateNeedsOf(runner_->config()));
    session->ShowLogProbs();
    decoding::RowStates states;
    states.first = 1;
    states.count = static_cast<uint32_t>(prompt.size() - 1);
    for (size_t t = 1; t < prompt.size(); ++t)
      AppendBf16(StateAfter(First(prompt, t)), &states.values);
    EXPECT_TRUE(session->TakeStates(states).ok());
    while (session->CanPrefill()) {
      model::StepBuilder step = runner_->NewStep();
      EXPECT_TRUE(session->AppendPrefill(7, &step, runner_->commits()).ok());
      EXPECT_TRUE(runner_->Submit(std::move(step)).ok());
      EXPECT_TRUE(runner_->Wait().ok());
    }
    return session;
  }
  // A request for a forest below roots that end after `path` and each of `tails`, of one length. All
  // states that rows may lack come with it.
  decoding::DraftRequest Request(DraftSession* session, const std::vector<TokenId>& prompt,
                                 const std::vector<TokenId>& stable,
                                 const std::vector<std::vector<TokenId>>& tails, int depth) {
    decoding::DraftRequest request;
    request.width = 3;
    request.depth = depth;
    request.stable_length = static_cast<uint32_t>(stable.size());
    const size_t known = session->stable_tokens().size();
    request.stable_tokens.assign(stable.begin() + static_cast<int64_t>(known), stable.end());
    EXPECT_TRUE(session->ExtendStable(static_cast<int>(stable.size()), request.stable_tokens).ok());
    std::vector<TokenId> path = prompt;
    path.insert(path.end(), stable.begin(), stable.end());
    decoding::RowStates states;
    states.first = static_cast<uint32_t>(prompt.size() + known);
    for (size_t t = states.first; t < path.size(); ++t) {
      AppendBf16(StateAfter(First(path, t)), &states.values);
      ++states.count;
    }
    EXPECT_TRUE(session->TakeStates(states).ok());
    request.roots.tree.num_roots = 1;
    for (const std::vector<TokenId>& tail : tails) {
      TreePlace above = TreePlace(RootId{0});
      std::vector<TokenId> here = path;
      for (const TokenId token : tail) {
        NodeId node{-1};
        for (int i = 0; i < request.roots.tree.size(); ++i) {
          if (request.roots.tree.parent[i] == above && request.roots.tree.token[i] == token)
            node = NodeId{i};
        }
        if (Index(node) < 0) {
          node = NodeId{request.roots.tree.size()};
          request.roots.tree.Add(above, token);
          request.states.nodes.push_back(node);
          AppendBf16(StateAfter(here), &request.states.values);
        }
        above = TreePlace(node);
        here.push_back(token);
      }
      request.roots.ends.push_back(above.node());
      request.state.root_score.push_back(-1);
      request.state.root_multiplicity.push_back(1);
    }
    request.state.slot_root = {0, static_cast<int32_t>(tails.size()) - 1};
    request.state.layers_committed = static_cast<uint32_t>(stable.size() + tails[0].size());
    request.state.root_hash = decoding::RootHashes(request.roots, session->stable_hash());
    return request;
  }
  absl::StatusOr<decoding::DraftForest> Grow(DraftSession* session,
                                             decoding::DraftRequest request) {
    auto builder = ForestBuilder::Start(std::move(request), session, runner_->blocks());
    if (!builder.ok()) return builder.status();
    (*builder)->UseBlocks({runner_->config().block, runner_->markov()}, kVocab, kMaxRows);
    EXPECT_TRUE((*builder)->at_last_level());
    EXPECT_LE((*builder)->rows(), kMaxRows);
    const uint64_t before = runner_->steps();
    model::StepBuilder step = runner_->NewStep();
    const int expected = (*builder)->rows();
    const absl::Status appended = (*builder)->AppendRows(&step);
    if (!appended.ok()) return appended;
    EXPECT_EQ(step.rows(), expected);
    EXPECT_TRUE(runner_->Submit(std::move(step)).ok());
    const auto rows = runner_->Wait();
    EXPECT_TRUE(rows.ok()) << rows.status();
    const absl::Status consumed =
        (*builder)->Consume(**rows, runner_->threads(), runner_->commits());
    if (!consumed.ok()) return consumed;
    EXPECT_TRUE((*builder)->done());
    EXPECT_EQ(runner_->steps(), before + 1);
    EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
    return (*builder)->Sent();
  }
  // Whether each node's log-probability is that of the row after its parent by the reference.
  void ExpectRows(const decoding::DraftForest& forest, const std::vector<TokenId>& context,
                  const std::vector<std::vector<TokenId>>& tails, bool in_place) {
    const model::ReferenceDFlash reference(draft_, target_);
    ASSERT_EQ(forest.log_probs.size(), forest.token.size());
    for (int i = 0; i < forest.size(); ++i) {
      int depth = 0;  // of the parent
      TreePlace place = forest.parent[i];
      for (TreePlace up = place; !up.is_root(); up = forest.parent[Index(up.node())]) ++depth;
      const std::vector<TokenId>& tail = tails[Index(forest.RootOf(place))];
      std::vector<TokenId> path = context;
      path.insert(path.end(), tail.begin(), tail.end());
      std::vector<std::vector<double>> states;
      for (size_t t = 1; t < path.size(); ++t) states.push_back(StateAfter(First(path, t)));
      const int rows = forest.depth() + (in_place ? 1 : 0);
      std::vector<double> logits = reference.BlockLogits(
          states, path.back(), rows)[static_cast<size_t>(depth + (in_place ? 1 : 0))];
      if (runner_->markov() != nullptr) {
        const TokenId before = place.is_root() ? path.back() : forest.token[Index(place.node())];
        const std::vector<double> bias = reference.MarkovBias(before);
        for (int v = 0; v < kVocab; ++v) logits[v] += bias[v];
      }
      const std::vector<float> floats(logits.begin(), logits.end());
      const sampling::Distribution row = decoding::DraftRow(floats, Params(), depth);
      EXPECT_NEAR(forest.log_probs[i], sampling::LogProbOf(row, forest.token[i]), 2e-4) << i;
    }
  }

  test::TempDir dir_, target_dir_;
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  test::TinyLlama target_, draft_;
  std::unique_ptr<model::ModelRunner> runner_;
};

const std::vector<TokenId> kPrompt = {3,  9,  27, 81, 50, 8,  24, 72, 23, 69,
                                      14, 42, 30, 90, 77, 38, 17, 51, 60, 84};

TEST_F(BlockForestTest, ItsRowsAreThoseOfTheBlocksOfTheRoots) {
  Load({});
  const auto session = Open(kPrompt);
  const std::vector<std::vector<TokenId>> tails = {{5, 6}, {5, 7}};
  const auto forest = Grow(session.get(), Request(session.get(), kPrompt, {40, 41}, tails, 4));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->depth(), 4);
  std::vector<TokenId> context = kPrompt;
  context.insert(context.end(), {40, 41});
  ExpectRows(*forest, context, tails, /*in_place=*/true);
}

TEST_F(BlockForestTest, ANodeAddsTheBiasOfItsTokenToTheRowOfItsLevel) {
  Load({.markov_rank = 8, .dspark = true});
  const auto session = Open(kPrompt);
  const std::vector<std::vector<TokenId>> tails = {{5}, {70}};
  const auto forest = Grow(session.get(), Request(session.get(), kPrompt, {}, tails, 4));
  ASSERT_TRUE(forest.ok()) << forest.status();
  ExpectRows(*forest, kPrompt, tails, /*in_place=*/false);
}

// Masks leave nothing behind: what was accepted gets K and V of its own states.
TEST_F(BlockForestTest, AGrownSessionDraftsWhatAFreshOneDrafts) {
  Load({.markov_rank = 8});
  const auto grown = Open(kPrompt);
  auto forest = Grow(grown.get(), Request(grown.get(), kPrompt, {}, {{5}}, 4));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(runner_->blocks()->nodes(grown->sequence()), 1);  // the root
  forest = Grow(grown.get(), Request(grown.get(), kPrompt, {5, 11}, {{12, 13}, {14, 15}}, 4));
  ASSERT_TRUE(forest.ok()) << forest.status();
  const std::vector<TokenId> stable = {5, 11, 14, 15};
  const auto warm = Grow(grown.get(), Request(grown.get(), kPrompt, stable, {{16}, {17}}, 4));
  const auto fresh = Open(kPrompt);
  const auto cold = Grow(fresh.get(), Request(fresh.get(), kPrompt, stable, {{16}, {17}}, 4));
  ASSERT_TRUE(warm.ok() && cold.ok()) << warm.status() << cold.status();
  EXPECT_EQ(warm->token, cold->token);
  EXPECT_EQ(warm->log_probs, cold->log_probs);
}

TEST_F(BlockForestTest, IsAsDeepAsABlockAndAPassAllow) {
  Load({.block = 4});
  const auto session = Open(kPrompt);
  const auto forest = Grow(session.get(), Request(session.get(), kPrompt, {}, {{5}}, 9));
  ASSERT_TRUE(forest.ok()) << forest.status();
  EXPECT_EQ(forest->depth(), 3);
  BlockForest many({runner_->config().block, nullptr}, 3, kVocab);
  EXPECT_EQ(many.rows_of_root(), 4);
  many.Limit(/*roots=*/10, /*rows=*/39);
  EXPECT_EQ(many.levels(), 2);
  many.Limit(/*roots=*/10, /*rows=*/5);
  EXPECT_EQ(many.levels(), 1);
}

// A block begins with the root's token, so it ends a position later than levels of an EAGLE-3 head.
TEST_F(BlockForestTest, ABlockBeyondTheContextIsRefusedAndTheNodeLivesOn) {
  Load({.block = 4});
  const int positions = runner_->config().max_positions;
  const auto leaders = *comm::ServerChannel::Bind("direct://127.0.0.1:*");
  const auto leader = *comm::ClientChannel::Connect(leaders->endpoint());
  const SteadyClock clock;
  DraftServiceOptions options;
  options.max_rows = kMaxRows;
  DraftService service(options, runner_.get(), leaders.get(), nullptr, &clock);
  const auto error_of = [&](uint64_t id, int prompt, int depth = 3) {
    proto::DraftCommand open, states, draft;
    open.mutable_open()->set_session_id(id);
    for (int i = 0; i < prompt; ++i) open.mutable_open()->add_prompt(i % kVocab);
    *open.mutable_open()->mutable_decoding() = proto::DecodingToMessage(Params());
    decoding::RowStates rows;
    rows.first = 1;
    rows.count = static_cast<uint32_t>(prompt - 1);
    rows.values.assign(int64_t{prompt - 1} * kHidden, 0x3f80);
    states.mutable_states()->set_session_id(id);
    *states.mutable_states()->mutable_states() = proto::StatesToMessage(rows);
    decoding::DraftRequest request;
    request.session_id = id;
    request.width = 3;
    request.depth = depth;
    request.roots.tree.num_roots = 1;
    request.roots.ends = {request.roots.tree.Add(RootId{0}, 5)};
    request.state.root_score = {-1};
    request.state.root_multiplicity = {1};
    request.state.slot_root = {0, 0};
    request.state.layers_committed = 1;
    request.states.nodes = request.roots.ends;
    request.states.values.assign(kHidden, 0x3f80);
    *draft.mutable_draft() = proto::DraftRequestToMessage(request);
    for (const proto::DraftCommand& command : {open, states, draft})
      EXPECT_TRUE(leader->Send(command).ok());
    proto::DraftReply reply;
    for (int i = 0; i < 5000; ++i) {
      EXPECT_TRUE(service.RunOnce(2).ok());
      while (leader->Receive(&reply)) {
        if (!reply.announces() && !reply.prefilled()) return reply.error();
      }
    }
    return std::string("no reply");
  };
  EXPECT_EQ(error_of(1, positions - 4), "");
  EXPECT_THAT(error_of(2, positions - 3), HasSubstr("depth: the request needs"));
  EXPECT_EQ(error_of(3, 9), "");
  EXPECT_EQ(error_of(4, positions - 4, /*depth=*/9), "") << "a block has three levels";
}

TEST_F(BlockForestTest, StatesThatAreNoNumbersEndTheSessionAlone) {
  Load({.markov_rank = 8});
  const auto session = Open(kPrompt);
  auto request = Request(session.get(), kPrompt, {}, {{5}}, 3);
  std::fill(request.states.values.begin(), request.states.values.end(), uint16_t{0x7fc0});
  const auto forest = Grow(session.get(), std::move(request));
  EXPECT_THAT(std::string(forest.status().message()), HasSubstr("draft logits after node"));
  const auto other = Open(kPrompt);
  EXPECT_TRUE(Grow(other.get(), Request(other.get(), kPrompt, {}, {{6}}, 3)).ok());
}

}  // namespace
}  // namespace coppice::draft_node
