#include "worker/suffix_drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "tests/testing/temp_dir.h"
#include "worker/sequence.h"
#include "worker/suffix_corpus_file.h"

namespace coppice::worker {
namespace {

using decoding::SuffixSource;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- How often matches are taken.

TEST(SuffixAcceptanceTest, LongerMatchesAreTrustedMoreUntilTheyFail) {
  SuffixAcceptance acceptance;
  EXPECT_LT(acceptance.Of(SuffixSource::kPrompt, 2), acceptance.Of(SuffixSource::kPrompt, 8));
  EXPECT_LT(acceptance.Of(SuffixSource::kPrompt, 8), acceptance.Of(SuffixSource::kPrompt, 32));
  for (int i = 0; i < 100; ++i) acceptance.Record(SuffixSource::kPrompt, 8, 1, false);
  EXPECT_LT(acceptance.Of(SuffixSource::kPrompt, 8), 0.1);
  EXPECT_GT(acceptance.Of(SuffixSource::kPrompt, 32), 0.8);
  EXPECT_GT(acceptance.Of(SuffixSource::kAnswer, 8), 0.5);  // another source
  for (int i = 0; i < 100; ++i) acceptance.Record(SuffixSource::kPrompt, 8, 1, true);
  EXPECT_GT(acceptance.Of(SuffixSource::kPrompt, 8), 0.6);
}

// Two siblings of which one is taken: together they were expected to hold one continuation.
TEST(SuffixAcceptanceTest, SiblingsCountByTheirShares) {
  SuffixAcceptance acceptance;
  for (int i = 0; i < 400; ++i) {
    acceptance.Record(SuffixSource::kPrompt, 3, 0.75, true);
    acceptance.Record(SuffixSource::kPrompt, 3, 0.25, false);
  }
  EXPECT_GT(acceptance.Of(SuffixSource::kPrompt, 3), 0.9);
}

TEST(SuffixAcceptanceTest, WhatFailedIsTrustedAgainAfterManyRounds) {
  SuffixAcceptance acceptance;
  const double before = acceptance.Of(SuffixSource::kCorpus, 5);
  for (int i = 0; i < 100; ++i) acceptance.Record(SuffixSource::kCorpus, 5, 1, false);
  for (int i = 0; i < 100; ++i) acceptance.Fade();
  EXPECT_LT(acceptance.Of(SuffixSource::kCorpus, 5), 0.1);
  for (int i = 0; i < 8000; ++i) acceptance.Fade();
  EXPECT_NEAR(acceptance.Of(SuffixSource::kCorpus, 5), before, 0.01);
}

// ---- One sequence.

class SuffixDraftsTest : public ::testing::Test {
 protected:
  std::unique_ptr<Sequence> Make(const std::vector<TokenId>& prompt) {
    auto sequence = std::make_unique<Sequence>();
    sequence->prompt = prompt;
    sequence->params.sampling.temperature = 0;
    sequence->params.max_tokens = 64;
    sequence->params.method = decoding::FirstMethod(sequence->params).value();
    sequence->draft = decoding::DraftSizeOf(sequence->params);
    sequence->decoder = decoding::MakeBeamDecoder(sequence->params).value();
    return sequence;
  }
  SizerLimits Limits(const Sequence& sequence) {
    SizerLimits limits;
    limits.max_depth = 60;
    limits.max_nodes = 60;
    limits.draft = sequence.draft;
    return limits;
  }
  decoding::DraftForest Propose(Sequence* sequence, double cost_of_node = 0.01) {
    ++sequence->round;
    sequence->forest = drafts_.Propose(
        sequence, Limits(*sequence), /*windows=*/false,
        [&](double layers, int nodes) { return layers / (1 + cost_of_node * nodes); });
    return sequence->forest;
  }
  // The target takes the first `taken` nodes of a chain.
  void Record(Sequence* sequence, int taken) {
    decoding::Verdict verdict;
    verdict.stats.layers = taken + 1;
    for (int i = 0; i < sequence->forest.size(); ++i) verdict.accepted.push_back(i < taken);
    drafts_.Record(sequence, verdict);
  }

  SuffixDrafts drafts_{SuffixDraftOptions()};
};

// Its last 16 tokens are the first ones.
const std::vector<TokenId> kRepeats = [] {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(1 + i % 24);
  return prompt;
}();

TEST_F(SuffixDraftsTest, AChainIsAsDeepAsItPays) {
  const auto sequence = Make(kRepeats);
  EXPECT_EQ(Propose(sequence.get(), 0.01).depth(), 15);
  const int depth = Propose(sequence.get(), 0.3).depth();
  EXPECT_GT(depth, 0);
  EXPECT_LT(depth, 12);
  EXPECT_EQ(Propose(sequence.get(), 2).depth(), 0);
}

TEST_F(SuffixDraftsTest, ASequenceWhoseDraftsFailHasFewerAndLaterSomeAgain) {
  const auto sequence = Make(kRepeats);
  for (int round = 0; round < 60; ++round) {
    if (Propose(sequence.get(), 0.3).size() > 0) Record(sequence.get(), 0);
  }
  int drafted = 0, rounds = 0;
  for (; rounds < 3000; ++rounds) {
    if (Propose(sequence.get(), 0.3).size() == 0) continue;
    Record(sequence.get(), 0);
    ++drafted;
  }
  EXPECT_GT(drafted, 0);
  EXPECT_LT(drafted, rounds / 20);
}

TEST_F(SuffixDraftsTest, DraftsThatAreTakenGrow) {
  const auto sequence = Make(kRepeats);
  const int before = Propose(sequence.get(), 0.3).depth();
  for (int round = 0; round < 30; ++round) {
    Propose(sequence.get(), 0.3);
    Record(sequence.get(), sequence->forest.size());
  }
  EXPECT_GT(Propose(sequence.get(), 0.3).depth(), before + 2);
}

TEST_F(SuffixDraftsTest, NodesAreCountedByWhereTheyWereFound) {
  const auto sequence = Make(kRepeats);
  Propose(sequence.get());
  Record(sequence.get(), 5);
  const SuffixDrafts::Count& count = drafts_.counts().at(SuffixSource::kPrompt);
  EXPECT_EQ(count.drafted, 15u);
  EXPECT_EQ(count.taken, 5u);
}

TEST_F(SuffixDraftsTest, MemoryIsGivenBackAndBounded) {
  const auto one = Make(kRepeats), other = Make(kRepeats);
  Propose(one.get());
  const size_t bytes = drafts_.index_bytes();
  EXPECT_GT(bytes, 0u);
  Propose(other.get());
  EXPECT_EQ(drafts_.index_bytes(), 2 * bytes);
  drafts_.Forget(one.get());
  drafts_.Forget(one.get());
  EXPECT_EQ(drafts_.index_bytes(), bytes);
  drafts_.Forget(other.get());
  EXPECT_EQ(drafts_.index_bytes(), 0u);
  EXPECT_EQ(Propose(one.get()).depth(), 15);  // made again
  drafts_.Forget(one.get());

  SuffixDraftOptions options;
  options.index_bytes = 1;
  drafts_ = SuffixDrafts(options);
  EXPECT_GT(Propose(one.get()).size(), 0);  // the first that comes
  EXPECT_EQ(Propose(other.get()).size(), 0);
  EXPECT_EQ(Propose(other.get()).num_roots, 1);
}

// Where several beams live, layers are decided that no node is part of.
TEST_F(SuffixDraftsTest, ARefusedNodeSaysNothingOfThoseBelowIt) {
  const auto sequence = Make(kRepeats);
  Propose(sequence.get());
  decoding::Verdict verdict;
  verdict.stats.layers = 10;
  verdict.accepted.assign(sequence->forest.size(), false);
  drafts_.Record(sequence.get(), verdict);
  EXPECT_NEAR(sequence->suffixes->misses[0].seen, 1, 1e-9);
}

TEST_F(SuffixDraftsTest, ALayerThatWasNotDecidedSaysNothing) {
  const auto sequence = Make(kRepeats);
  Propose(sequence.get());
  decoding::Verdict verdict;
  verdict.stats.layers = 1;
  verdict.accepted.assign(sequence->forest.size(), false);
  verdict.accepted[0] = true;
  drafts_.Record(sequence.get(), verdict);
  EXPECT_EQ(sequence->suffixes->misses[0].seen, 0);
  EXPECT_GT(sequence->suffixes->misses[0].expected, 0);
}

// A round whose forest was given up for lack of KV teaches nothing.
TEST_F(SuffixDraftsTest, AForestThatWasGivenUpIsNotCounted) {
  const auto sequence = Make(kRepeats);
  Propose(sequence.get());
  sequence->forest = decoding::DraftForest::Empty(1);
  decoding::Verdict verdict;
  verdict.stats.layers = 1;
  drafts_.Record(sequence.get(), verdict);
  EXPECT_EQ(drafts_.counts().at(SuffixSource::kPrompt).taken, 0u);
  EXPECT_EQ(Propose(sequence.get(), 0.2).depth(), Propose(sequence.get(), 0.2).depth());
}

// ---- The file of a corpus.

class SuffixCorpusFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  test::TempDir dir_;
};

TEST_F(SuffixCorpusFileTest, IdsAreReadLineByLine) {
  const auto corpus = LoadSuffixCorpus({Write("a.ids", "1 2 3\n\n  4 5\n")}, "", 6);
  ASSERT_TRUE(corpus.ok()) << corpus.status();
  EXPECT_EQ((*corpus)->size(), 8u);  // with the end of each line
  EXPECT_EQ((*corpus)->Find({{1, 2}}).length, 2);
  EXPECT_EQ((*corpus)->Find({{3, 4}}).length, 0);
}

// Of one long line too, while it is read and while it is sorted.
TEST_F(SuffixCorpusFileTest, ALongFileShowsProgress) {
  std::string line;
  for (int i = 0; i < 200000; ++i) absl::StrAppend(&line, i * 7919 % 97, " ");
  int calls = 0;
  ASSERT_TRUE(LoadSuffixCorpus({Write("long.ids", line)}, "", 97, [&] { ++calls; }).ok());
  const int read = 200000 >> 16;
  EXPECT_GE(calls, read + 2);  // of more than 3 million comparisons
  calls = 0;
  ASSERT_TRUE(LoadSuffixCorpus({Write("short.ids", "1 2\n")}, "", 97, [&] { ++calls; }).ok());
  EXPECT_EQ(calls, 0);
}

TEST_F(SuffixCorpusFileTest, ABadFileIsRefusedByNameAndLine) {
  const auto error = [](const SuffixCorpusFile& file) {
    return std::string(LoadSuffixCorpus(file, "/no/model", 6).status().message());
  };
  EXPECT_THAT(error({Write("b.ids", "1 2\n3 6\n")}),
              HasSubstr("b.ids: line 2: \"6\" is no token id of the model, which are 0 to 5"));
  EXPECT_THAT(error({Write("c.ids", "1 x\n")}), HasSubstr("line 1: \"x\""));
  EXPECT_THAT(error({Write("d.ids", "-1\n")}), HasSubstr("line 1: \"-1\""));
  EXPECT_THAT(error({dir_.path() + "/none.ids"}), HasSubstr("none.ids: cannot be read"));
  EXPECT_THAT(error({Write("empty.ids", "")}), HasSubstr("or is empty"));
  EXPECT_THAT(error({Write("e.ids", "1 2 3 4 5\n"), 40}),
              HasSubstr("takes at least 48 bytes, --suffix_corpus_bytes is 40"));
  EXPECT_TRUE(LoadSuffixCorpus({Write("f.ids", "1 2 3 4 5\n"), 48}, "", 6).ok());
  EXPECT_THAT(error({Write("g.txt", "a text\n")}), HasSubstr("g.txt: a text needs a tokenizer"));
  EXPECT_EQ(*LoadSuffixCorpus({}, "", 6), nullptr);
}

}  // namespace
}  // namespace coppice::worker
