// Drafts whose head has fewer ids than the vocabulary (model/draft_vocabulary.h), with every method
// that drafts: they propose these ids alone, and change nothing where drafts must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "decoding/method.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

using testing::AnyOfArray;
using testing::Each;

constexpr int kVocab = 400;
constexpr TokenId kEos = 2;

test::TinyLlama Model(uint64_t seed, int layers) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.layers = layers;
  options.seed = seed;
  return test::MakeTinyLlama(options);
}

bool Drafts(const decoding::MethodRow& row) { return row.form != decoding::DraftForm::kNone; }

bool DraftsReproducibly(const decoding::MethodRow& row) { return Drafts(row) && row.reproducible; }

class DraftVocabularyTest : public testing::TestWithParam<test::MethodCase> {
 protected:
  DraftVocabularyTest() { test::WriteTinyLlama(Model(1, 2), target_.path()); }
  // A draft that is the target but for its head.
  void WriteDraft(const std::vector<int>& head) {
    head_ = head;
    test::TinyLlama draft = Model(1, 2);
    test::ReduceHead(&draft, head);
    test::WriteTinyLlama(draft, draft_.path());
  }
  static decoding::DecodingParams Params(uint64_t seed) {
    decoding::DecodingParams params = GetParam().Params(/*max_tokens=*/12, kEos, seed);
    params.min_tokens = 3;  // until then the stop token has a bias
    if (GetParam().fixed_sampling()) return params;
    params.sampling.temperature = seed % 2 == 0 ? 1 : 0.7;
    params.sampling.top_p = seed % 3 == 1 ? 0.9 : 0;
    params.sampling.frequency_penalty = seed % 3 == 2 ? 0.5 : 0;
    return params;
  }
  static int Width() { return GetParam().DraftWidth(6); }
  lab::LocalReplicaOptions Options(bool always_list) const {
    lab::LocalReplicaOptions options =
        test::CheckedReplica::OptionsOf(target_.path(), draft_.path());
    options.always_list = always_list;
    return options;
  }
  // Nodes and proposals of the forests of a decode have tokens of the head, and the proposals are
  // distributions over them. Returns the number of nodes.
  int ExpectForestsOfTheHead(lab::LocalReplica* replica, uint64_t seed);

  std::vector<int> head_;
  test::TempDir target_, draft_;
};

int DraftVocabularyTest::ExpectForestsOfTheHead(lab::LocalReplica* replica, uint64_t seed) {
  int nodes = 0;
  EXPECT_TRUE(replica->Open({5, 6, static_cast<TokenId>(7 + seed)}, Params(seed), true).ok());
  decoding::DraftForest forest = decoding::DraftForest::Empty(1);
  while (true) {
    const absl::Status round = replica->Round(forest).status();
    EXPECT_TRUE(round.ok()) << round;
    if (!round.ok() || replica->decoder().finished()) break;
    const int depth = std::min(3, replica->decoder().max_useful_depth());
    forest = decoding::DraftForest::Empty(static_cast<int>(replica->decoder().roots().size()));
    if (depth > 0) forest = replica->Draft(Width(), depth).value();
    EXPECT_EQ(forest.Validate(kVocab), absl::OkStatus());
    // What the target has drawn already is drafted whatever the draft can say.
    std::vector<int> tokens = head_;
    for (const TokenId token : replica->decoder().draft_state().slot_token) tokens.push_back(token);
    for (const auto& child : replica->decoder().draft_state().known_children)
      tokens.push_back(child.token);
    EXPECT_THAT(forest.token, Each(AnyOfArray(tokens)));
    for (const decoding::Proposal& proposal : forest.proposals) {
      EXPECT_THAT(proposal.row.tokens, Each(AnyOfArray(head_)));
      double mass = 0;
      for (const double log_prob : proposal.row.log_probs) mass += sampling::Exp(log_prob);
      EXPECT_NEAR(mass, 1, 1e-9);
    }
    nodes += forest.size();
  }
  replica->Close();
  return nodes;
}

std::vector<int> EveryFourth() {
  std::vector<int> ids;
  for (int id = 2; id < kVocab; id += 4) ids.push_back(id);
  return ids;
}

TEST_P(DraftVocabularyTest, ForestsHaveTokensOfTheHeadAlone) {
  // The second head has fewer ids than a level asks for, and one of them ends the text.
  for (const std::vector<int>& head : {EveryFourth(), {kEos, 11, 399}}) {
    WriteDraft(head);
    for (const bool always_list : {false, true}) {
      const auto replica = lab::LocalReplica::Load(Options(always_list)).value();
      int nodes = 0;
      for (uint64_t seed = 0; seed < 3; ++seed)
        nodes += ExpectForestsOfTheHead(replica.get(), seed);
      EXPECT_GT(nodes, 0);
    }
  }
}

class ReproducibleDraftVocabularyTest : public DraftVocabularyTest {};

TEST_P(ReproducibleDraftVocabularyTest, ChangesNothing) {
  WriteDraft(EveryFourth());
  test::CheckedReplica replica(Options(/*always_list=*/false));
  int passes_plain = 0, passes = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::vector<TokenId> prompt = {5, 6, static_cast<TokenId>(7 + seed)};
    const auto plain = replica.Decode(prompt, Params(seed), 0, 0);
    const auto drafted = replica.Decode(prompt, Params(seed), Width(), 3);
    ASSERT_EQ(drafted.hypotheses.size(), plain.hypotheses.size());
    for (size_t i = 0; i < plain.hypotheses.size(); ++i) {
      EXPECT_EQ(drafted.hypotheses[i].tokens, plain.hypotheses[i].tokens);
      EXPECT_EQ(drafted.hypotheses[i].joint_log_probability,
                plain.hypotheses[i].joint_log_probability);
    }
    passes_plain += plain.passes;
    passes += drafted.passes;
  }
  EXPECT_LE(passes, passes_plain);
}

INSTANTIATE_TEST_SUITE_P(Methods, DraftVocabularyTest, testing::ValuesIn(test::MethodCases(Drafts)),
                         [](const auto& info) { return info.param.Name(); });
INSTANTIATE_TEST_SUITE_P(Methods, ReproducibleDraftVocabularyTest,
                         testing::ValuesIn(test::MethodCases(DraftsReproducibly)),
                         [](const auto& info) { return info.param.Name(); });

}  // namespace
}  // namespace coppice::worker
