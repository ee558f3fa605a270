// Which rows a sequence has in a step, and what it holds of the KV pool: with known roots, and with
// a forest for which there is no room.
#include "worker/verify_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "decoding/method.h"
#include "worker/kv_commit.h"

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr int kTokens = 64;

// Every token is as likely as any other.
class FlatRows : public sampling::RowSource {
 public:
  absl::Span<const float> Logits(int) override { return logits_; }

 private:
  std::vector<float> logits_ = std::vector<float>(kTokens, 0.0f);
};

// A forest of one layer in which every root has this number of children.
decoding::DraftForest OneLayer(int roots, int children) {
  decoding::DraftForest forest = decoding::DraftForest::Empty(roots);
  for (int root = 0; root < roots; ++root) {
    for (TokenId token = 0; token < children; ++token) {
      forest.Add(RootId{root}, token);
    }
  }
  forest.layer_begin = {0, forest.size()};
  return forest;
}

// A forest with more nodes than eight blocks have slots.
decoding::DraftForest TooLarge(int roots) {
  decoding::DraftForest forest = OneLayer(roots, 60);
  const int first = forest.size();
  for (int parent = 0; parent < 60; ++parent) {
    for (TokenId token = 0; token < 2; ++token) {
      forest.Add(NodeId{parent}, token);
    }
  }
  forest.layer_begin = {0, first, forest.size()};
  return forest;
}

// A sequence of three beams that runs its rounds without a model.
class Beams {
 public:
  explicit Beams(int num_blocks, const char* method = "dsbd", double frequency_penalty = 0)
      : blocks_({.num_blocks = num_blocks, .prefix_cache = false}) {
    sequence_.prompt = {1, 2, 3, 4};
    sequence_.params.kind = sampling::DecodingKind::kBeamSampling;
    sequence_.params.method = decoding::FindMethod(method);
    sequence_.params.beam_width = sequence_.params.num_hypotheses = 3;
    sequence_.params.max_tokens = 50;
    sequence_.params.seed = 3;
    sequence_.params.sampling.frequency_penalty = frequency_penalty;
    sequence_.decoder = *decoding::MakeBeamDecoder(sequence_.params);
    sequence_.kv = blocks_.Open(sequence_.prompt, nullptr);
    EXPECT_TRUE(blocks_.AppendPrefix(sequence_.kv, {1, 2, 3}).ok());
    sequence_.forest = decoding::DraftForest::Empty(1);
    EXPECT_TRUE(Round());
  }
  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }
  model::BlockManager& blocks() { return blocks_; }
  int roots() const { return static_cast<int>(sequence_.decoder->roots().size()); }
  void KnowRoots(int count) {
    sequence_.known_roots.assign(roots(), {});
    for (int root = 0; root < count; ++root) {
      sequence_.known_roots[root].whole.assign(kTokens, 0.0f);
    }
  }
  // Reserves the rows of the next round and adds them to *step.
  VerifyRows Rows(model::StepBuilder* step) {
    auto rows = ReserveRows(&sequence_, &blocks_);
    EXPECT_TRUE(rows.ok()) << rows.status();
    AppendRows(sequence_, step, &*rows);
    return *std::move(rows);
  }
  bool Round() {
    model::StepBuilder step(&blocks_, kTokens);
    const VerifyRows rows = Rows(&step);
    FlatRows logits;
    const decoding::Verdict verdict = sequence_.decoder->Advance(sequence_.forest, &logits);
    std::vector<KvCopy> copies;
    const bool committed = CommitVerdict(verdict, rows.node_kv, &sequence_, &blocks_, &copies);
    blocks_.EndRound();
    sequence_.forest = decoding::DraftForest::Empty(roots());
    return committed;
  }

 private:
  model::BlockManager blocks_;
  Sequence sequence_;
};

constexpr int kRoomy = 100;

TEST(VerifyStepTest, WithAForestAKnownRootNeedsNoRow) {
  Beams beams(kRoomy);
  ASSERT_EQ(beams.roots(), 3);
  beams.sequence().forest = OneLayer(3, 1);
  beams.KnowRoots(2);
  model::StepBuilder step(&beams.blocks(), kTokens);
  EXPECT_THAT(beams.Rows(&step).need, ElementsAre(-1, -1, 0, 1, 2, 3));
  EXPECT_EQ(step.rows(), 4);
}

// A verdict needs a pass. If all roots are known, a round without a draft runs them again.
TEST(VerifyStepTest, WithoutAForestEveryRootHasARow) {
  for (const int known : {0, 1, 3}) {
    SCOPED_TRACE(known);
    Beams beams(kRoomy);
    ASSERT_EQ(beams.roots(), 3);
    beams.KnowRoots(known);
    model::StepBuilder step(&beams.blocks(), kTokens);
    EXPECT_THAT(beams.Rows(&step).need, ElementsAre(0, 1, 2));
    EXPECT_EQ(step.rows(), 3);
  }
}

// The candidate list of a row is made with the penalties of its own path.
TEST(VerifyStepTest, EveryRowHasThePenaltiesOfItsPath) {
  Beams beams(kRoomy, "gumbel_coupling", /*frequency_penalty=*/0.5);
  for (int round = 0; round < 20 && beams.roots() < 2; ++round) ASSERT_TRUE(beams.Round());
  const decoding::PathTree& paths = beams.sequence().decoder->paths();
  const std::vector<decoding::PathId> roots(beams.sequence().decoder->roots().begin(),
                                            beams.sequence().decoder->roots().end());
  ASSERT_GT(roots.size(), 1u);
  const TokenId again = paths.token(roots[0]);
  decoding::DraftForest forest = OneLayer(static_cast<int>(roots.size()), 1);
  forest.token.assign(forest.size(), again);
  // A second layer, of one node.
  forest.Add(NodeId{0}, again);
  forest.layer_begin.push_back(forest.size());
  beams.sequence().forest = forest;
  model::StepBuilder step(&beams.blocks(), kTokens);
  beams.Rows(&step);
  const StepPlan plan = step.Take();
  ASSERT_EQ(plan.needs.size(), roots.size() + forest.size());
  for (size_t row = 0; row < plan.needs.size(); ++row) {
    SCOPED_TRACE(row);
    const RowNeed& need = plan.needs[row];
    ASSERT_EQ(need.form, RowNeed::Form::kGumbel);
    std::vector<TokenId> path;
    const TreePlace place = forest.PlaceOf(static_cast<int>(row));
    forest.AppendPath(place, &path);
    for (TokenId token : paths.Tokens(roots[Index(forest.RootOf(place))])) path.push_back(token);
    std::map<TokenId, double> want;
    for (TokenId token : path) want[token] -= 0.5;
    const std::map<TokenId, double> got(plan.bias.begin() + need.bias_begin,
                                        plan.bias.begin() + need.bias_end);
    EXPECT_EQ(got, want);
  }
}

// If a forest is given up, its known rows are not used either.
TEST(VerifyStepTest, AForestWithoutRoomIsGivenUp) {
  Beams beams(8);
  ASSERT_EQ(beams.roots(), 3);
  beams.KnowRoots(3);
  beams.sequence().forest = TooLarge(3);
  model::StepBuilder step(&beams.blocks(), kTokens);
  const VerifyRows rows = beams.Rows(&step);
  EXPECT_EQ(rows.root_kv.size(), 3u);
  EXPECT_THAT(rows.node_kv, IsEmpty());
  EXPECT_THAT(rows.need, ElementsAre(0, 1, 2));
  EXPECT_EQ(step.rows(), 3);
  EXPECT_EQ(beams.sequence().forest.size(), 0);
  EXPECT_EQ(beams.sequence().forest.num_roots, 3);
}

// The same beams hold the same blocks with forests that never fit and without forests.
TEST(VerifyStepTest, WhatAForestWithoutRoomHadTakenIsThereForTheNext) {
  Beams beams(8), plain(8);
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    ASSERT_EQ(beams.roots(), plain.roots());
    beams.sequence().forest = TooLarge(beams.roots());
    ASSERT_TRUE(beams.Round());
    ASSERT_TRUE(plain.Round());
    ASSERT_TRUE(beams.blocks().CheckIntegrity().ok()) << beams.blocks().CheckIntegrity();
    EXPECT_EQ(beams.blocks().nodes(beams.sequence().kv), plain.blocks().nodes(plain.sequence().kv));
    EXPECT_EQ(beams.sequence().decoder->layers_committed(), round + 2);
    EXPECT_THAT(beams.sequence().decoder->roots(),
                ElementsAreArray(plain.sequence().decoder->roots()));
  }
  beams.sequence().forest = OneLayer(beams.roots(), 4);
  const int nodes = beams.sequence().forest.size();
  model::StepBuilder step(&beams.blocks(), kTokens);
  EXPECT_EQ(static_cast<int>(beams.Rows(&step).node_kv.size()), nodes);
  EXPECT_EQ(beams.sequence().forest.size(), nodes);
  beams.blocks().Close(beams.sequence().kv);
  beams.blocks().EndRound();
  EXPECT_EQ(beams.blocks().counts().used, 0);
  EXPECT_TRUE(beams.blocks().CheckIntegrity().ok()) << beams.blocks().CheckIntegrity();
}

// What the trie must hold after a round, from the tokens of the beams alone: every token of a beam
// behind the prefix once, but for the last, which has KV only when it was drafted.
int NodesOfBeams(const Beams& beams, int prefix, const std::function<bool(int, TokenId)>& drafted) {
  std::set<std::vector<TokenId>> held;
  const decoding::PathTree& paths = beams.sequence().decoder->paths();
  for (const decoding::PathId root : beams.sequence().decoder->roots()) {
    std::vector<TokenId> path = paths.Tokens(root);
    if (!drafted(static_cast<int>(path.size()), path.back())) path.pop_back();
    for (; static_cast<int>(path.size()) > prefix; path.pop_back()) held.insert(path);
  }
  return static_cast<int>(held.size());
}

// The tokens that the beams without their last tokens have in common.
int CommonLength(const Beams& beams) {
  const decoding::PathTree& paths = beams.sequence().decoder->paths();
  std::vector<TokenId> common = paths.Tokens(beams.sequence().decoder->roots()[0]);
  for (const decoding::PathId root : beams.sequence().decoder->roots()) {
    std::vector<TokenId> path = paths.Tokens(root);
    path.pop_back();
    const auto apart = std::mismatch(common.begin(), common.end(), path.begin(), path.end());
    common.erase(apart.first, common.end());
  }
  return static_cast<int>(common.size());
}

// Half of all tokens are drafted below every beam, so that of most rounds some beams were drafted
// and others were not. Those that are dropped leave no KV behind.
TEST(VerifyStepTest, OnlyTheBeamsKeepTheirKv) {
  constexpr int kDrafted = kTokens / 2, kPrompt = 4;
  Beams beams(kRoomy, "gumbel_coupling");
  int drafted_roots = 0, other_roots = 0, apart = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const int layers = beams.sequence().decoder->layers_committed();
    beams.sequence().forest = OneLayer(beams.roots(), kDrafted);
    ASSERT_TRUE(beams.Round());
    ASSERT_TRUE(beams.blocks().CheckIntegrity().ok()) << beams.blocks().CheckIntegrity();
    const auto drafted = [&](int length, TokenId last) {
      const bool was = length == layers + 1 && last < kDrafted;
      ++(was ? drafted_roots : other_roots);
      return was;
    };
    const int prefix = beams.blocks().prefix_length(beams.sequence().kv) - kPrompt;
    EXPECT_EQ(prefix, CommonLength(beams));
    EXPECT_EQ(beams.blocks().nodes(beams.sequence().kv), NodesOfBeams(beams, prefix, drafted));
    apart += beams.blocks().nodes(beams.sequence().kv) > 0;
  }
  EXPECT_GT(drafted_roots, 0);
  EXPECT_GT(other_roots, 0);
  EXPECT_GT(apart, 0);
}

}  // namespace
}  // namespace coppice::worker
