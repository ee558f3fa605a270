// What a watched round shows (decoding/round_forest.h), from whole rounds with real (tiny) models:
// for every method and decoding, the nodes are those that were drafted, what was taken is what the
// statistics count, the paths are those of the answer, and the probabilities are the draft's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "decoding/drafter.h"
#include "decoding/method.h"
#include "lab/experiments/local_replica.h"
#include "sampling/distribution.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

using decoding::PathId;

constexpr int kVocab = 300;
constexpr TokenId kEos = 2;
const std::vector<TokenId> kPrompt = {5, 60, 7, 8, 139};

// The tree that who watches builds from the rounds alone.
struct Watched {
  std::vector<int> parent = {-1};  // [paths]
  std::vector<TokenId> token = {-1};
  int nodes = 0, accepted = 0, rounds_with_nodes = 0, own_tokens = 0;

  std::vector<TokenId> Tokens(PathId path) const {
    std::vector<TokenId> tokens;
    for (int at = Index(path); at > 0; at = parent[at]) tokens.push_back(token[at]);
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

  void Add(const decoding::RoundForest& round) {
    ASSERT_EQ(round.first_path, static_cast<int>(parent.size()));
    for (const PathId root : round.roots) ASSERT_LT(Index(root), round.first_path);
    for (size_t i = 0; i < round.path_token.size(); ++i) {
      ASSERT_LT(Index(round.path_parent[i]), static_cast<int>(parent.size()));
      parent.push_back(Index(round.path_parent[i]));
      token.push_back(round.path_token[i]);
    }
    std::set<PathId> drafted;
    for (int i = 0; i < round.nodes.size(); ++i) {
      const PathId path = round.node_path[i];
      if (path == decoding::kNoPath) continue;
      ++accepted;
      EXPECT_TRUE(drafted.insert(path).second) << "two nodes of one path";
      EXPECT_EQ(token[Index(path)], round.nodes.token[i]);
      const TreePlace above = round.nodes.parent[i];
      const PathId parent_path =
          above.is_root() ? round.roots[Index(above.root())] : round.node_path[Index(above.node())];
      EXPECT_EQ(parent[Index(path)], Index(parent_path)) << "node " << i;
    }
    nodes += round.nodes.size();
    rounds_with_nodes += round.nodes.size() > 0 ? 1 : 0;
    own_tokens += static_cast<int>(round.path_token.size() - drafted.size());
  }
};

// log q of every node, from whole draft rows. Of rows with the scope `row`.
class DraftReference {
 public:
  DraftReference(const std::string& draft, const decoding::DecodingParams& params)
      : params_(params) {
    auto replica = lab::LocalReplica::Load(test::CheckedReplica::OptionsOf(draft, draft));
    replica_ = *std::move(replica);
  }
  double LogProb(const std::vector<TokenId>& before, TokenId token) {
    auto found = rows_.find(before);
    if (found == rows_.end()) {
      const std::vector<float> all = *replica_->DraftLogits(kPrompt, before);
      const auto last = absl::MakeConstSpan(all).subspan(all.size() - kVocab);
      const sampling::Distribution row =
          decoding::DraftRow(last, params_, sampling::RowPath(static_cast<int>(before.size())));
      found = rows_.emplace(before, row).first;
    }
    return sampling::LogProbOf(found->second, token);
  }

 private:
  const decoding::DecodingParams params_;
  std::unique_ptr<lab::LocalReplica> replica_;
  std::map<std::vector<TokenId>, sampling::Distribution> rows_;
};

class RoundForestTest : public ::testing::TestWithParam<test::MethodCase> {
 protected:
  RoundForestTest() {
    test::TinyLlamaOptions options;
    options.vocab = kVocab;
    options.seed = 1;
    test::WriteTinyLlama(test::MakeTinyLlama(options), target_.path());
    options.seed = 2;
    test::WriteTinyLlama(test::MakeTinyLlama(options), other_.path());
  }
  test::TempDir target_, other_;
};

TEST_P(RoundForestTest, ShowsWhatWasDraftedAndDecided) {
  const bool drafts = GetParam().method->form != decoding::DraftForm::kNone;
  for (const std::string& draft : {target_.path(), other_.path()}) {
    auto loaded = lab::LocalReplica::Load(test::CheckedReplica::OptionsOf(target_.path(), draft));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    lab::LocalReplica& replica = **loaded;
    Watched sum;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << "seed " << seed);
      const decoding::DecodingParams params = GetParam().Params(/*max_tokens=*/12, kEos, seed);
      DraftReference reference(draft, params);
      ASSERT_TRUE(replica.Open(kPrompt, params, drafts).ok());
      replica.ShowRounds();
      Watched watched;
      DecodingStats stats;
      decoding::DraftForest forest = decoding::DraftForest::Empty(1);
      while (true) {
        const std::vector<PathId> roots(replica.decoder().roots().begin(),
                                        replica.decoder().roots().end());
        const auto verdict = replica.Round(forest);
        ASSERT_TRUE(verdict.ok()) << verdict.status();
        stats.Merge(verdict->stats);
        ASSERT_TRUE(replica.round_forest().has_value());
        const decoding::RoundForest round = *replica.round_forest();
        EXPECT_EQ(round.roots, roots);
        EXPECT_EQ(round.nodes.token, forest.token);
        EXPECT_EQ(round.nodes.parent, forest.parent);
        watched.Add(round);
        if (HasFatalFailure()) return;
        ASSERT_EQ(round.log_probs.size(), round.nodes.token.size());
        for (int i = 0; i < round.nodes.size(); ++i) {
          std::vector<TokenId> before =
              watched.Tokens(round.roots[Index(round.nodes.RootOf(NodeId{i}))]);
          const TreePlace above = round.nodes.parent[i];
          round.nodes.AppendPath(above, &before);
          const double want = reference.LogProb(before, round.nodes.token[i]);
          if (std::isfinite(want)) {
            EXPECT_NEAR(round.log_probs[i], want, 1e-6) << "node " << i;
          } else {
            EXPECT_EQ(round.log_probs[i], want) << "node " << i;
          }
        }
        const auto layer = replica.decoder().last_layer();
        ASSERT_EQ(round.outputs.size(), layer.size());
        for (size_t i = 0; i < layer.size(); ++i) {
          EXPECT_EQ(watched.Tokens(round.outputs[i].path),
                    replica.decoder().paths().Tokens(layer[i].path));
          EXPECT_EQ(round.outputs[i].log_score, layer[i].log_score);
          EXPECT_EQ(round.outputs[i].finished, layer[i].finished);
        }
        if (replica.decoder().finished()) break;
        const int depth = std::min(3, replica.decoder().max_useful_depth());
        forest =
            drafts && depth > 0
                ? *replica.Draft(GetParam().DraftWidth(4), depth)
                : decoding::DraftForest::Empty(static_cast<int>(replica.decoder().roots().size()));
      }
      EXPECT_EQ(watched.nodes, stats.drafted_nodes);
      EXPECT_EQ(watched.accepted, stats.accepted_nodes);
      for (const decoding::Hypothesis& hypothesis : replica.decoder().Result()) {
        bool found = false;
        for (int path = 0; path < static_cast<int>(watched.parent.size()); ++path)
          found |= watched.Tokens(PathId{path}) == hypothesis.tokens;
        EXPECT_TRUE(found) << "an answer that no round has shown";
      }
      replica.Close();
      sum.nodes += watched.nodes;
      sum.accepted += watched.accepted;
      sum.own_tokens += watched.own_tokens;
    }
    EXPECT_GT(sum.own_tokens, 0);
    EXPECT_TRUE(drafts || sum.nodes == 0);
    // A draft that is sure of nothing drafts no path.
    if (!drafts || GetParam().method->form == decoding::DraftForm::kPath) continue;
    EXPECT_GT(sum.nodes, 0);
    EXPECT_TRUE(sum.accepted > 0 || draft != target_.path());
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, RoundForestTest,
                         ::testing::ValuesIn(test::MethodCases([](const decoding::MethodRow&) {
                           return true;
                         })),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace coppice::worker
