// Replicas of several ranks on the CUDA backend, by NCCL and through the host: the same decisions
// as one rank, rows alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <tuple>

#include "kernels/cuda/ops/row_bucket.h"
#include "nlohmann/json.hpp"
#include "sampling/logits_processing.h"
#include "tests/kernels/cuda/ranks_fixture.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;
using testing::Each;
using testing::HasSubstr;

const std::vector<TokenId> kPrompt = {1, 403, 407, 261, 378};

class RanksTest : public RanksFixture,
                  public testing::WithParamInterface<std::tuple<std::string, int>> {
 protected:
  RanksTest() { options_.collectives.kind = std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }

  Greedy Decode(int ranks, const std::vector<TokenId>& prompt, int count) {
    Greedy greedy;
    const auto ends = RunRanks(
        ranks, [&](ModelRunner* runner) { return DecodeGreedily(runner, prompt, count, &greedy); });
    EXPECT_THAT(ends, Each(absl::OkStatus()));
    return greedy;
  }
  void ExpectAlike(const Greedy& got, const Greedy& want, double tolerance) {
    EXPECT_EQ(got.tokens, want.tokens);
    ASSERT_EQ(got.rows.size(), want.rows.size());
    for (size_t i = 0; i < want.rows.size(); ++i)
      EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), tolerance) << i;
  }
};

TEST_P(RanksTest, ChooseTheTokensOfOneRank) {
  options_.dir = "tests/models/stories260k";
  const Greedy want = Decode(1, kPrompt, 24);
  const int64_t replays = fake::CountWork().graph_launches;
  ExpectAlike(Decode(ranks(), kPrompt, 24), want, 1e-5);
  // Sums that only enqueue are captured with the rest of the step.
  const bool captured = options_.collectives.kind == "nccl";
  EXPECT_THAT(description_, HasSubstr(captured ? "NCCL 2." : "sums through the host"));
  EXPECT_GT(fake::CountWork().graph_launches - replays, (captured ? 2 : 1) * ranks() * 15);
  EXPECT_EQ(fake::CountLive().total(), 0);
}

// A body sums its rows, padded to a size of graphs, once for the embedding and twice for each
// layer; the last layer only has rows that are needed. Sums through the host are counted there.
TEST_P(RanksTest, SumsBetweenDevicesAreCounted) {
  options_.dir = "tests/models/stories260k";
  constexpr int64_t kLayers = 5, kHidden = 64;
  const int64_t summed_rows = (2 * kLayers - 1) * kernels::cuda::PaddedRows(kPrompt.size() - 1) +
                              3 * (2 * kLayers + 1) * kernels::cuda::PaddedRows(2);
  const int64_t bytes = summed_rows * kHidden * sizeof(float) * ranks();
  const auto ends = RunRanks(ranks(), [&](ModelRunner* runner) {
    EXPECT_EQ(runner->collective_bytes(), 0);
    Greedy greedy;
    const absl::Status decoded = DecodeGreedily(runner, kPrompt, 3, &greedy);
    EXPECT_EQ(runner->collective_bytes(), options_.collectives.kind == "nccl" ? bytes : 0);
    return decoded;
  });
  EXPECT_THAT(ends, Each(absl::OkStatus()));
}

// Plans that grow by little from step to step. Ranks whose shards have other sizes need a larger
// block at other steps; the simulated NCCL notices a sum that some ranks launch op by op.
TEST_F(RanksFixture, SumsAreCapturedOnAllRanksOrNone) {
  const test::TempDir dir;
  test::TinyLlamaOptions tiny;
  tiny.hidden = 64;
  tiny.layers = 1;
  tiny.heads = 8;
  tiny.kv_heads = 4;
  test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir.path());
  options_.dir = dir.path();
  options_.dtype = "bf16";
  options_.max_rows = 256;
  options_.collectives.kind = "nccl";
  const auto ends = RunRanks(3, [](ModelRunner* runner) -> absl::Status {
    BlockManager* blocks = runner->blocks();
    int cached = 0;
    const SequenceHandle sequence = blocks->Open(kPrompt, &cached);
    // A chain, and one node more below one of its nodes: a block of almost 64 KiB, twice so that
    // there is a graph, then ever larger.
    for (const int fork : {0, 0, 15, 30, 45, 60, 75, 90}) {
      StepBuilder step = runner->NewStep();
      KvNode last = kPrefixEnd, parent = kPrefixEnd;
      for (int i = 0; i < 166; ++i) {
        COPPICE_ASSIGN_OR_RETURN(last, blocks->AddNode(sequence, last, 5 + i % 50));
        step.AddNodeRow(sequence, last, 5 + i % 50, RowNeed());
        if (i + 1 == fork) parent = last;
      }
      COPPICE_ASSIGN_OR_RETURN(const KvNode other, blocks->AddNode(sequence, parent, 60));
      step.AddNodeRow(sequence, other, 60, RowNeed());
      COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
      COPPICE_RETURN_IF_ERROR(runner->Wait().status());
      blocks->Retain(sequence, {});
    }
    blocks->Close(sequence);
    return absl::OkStatus();
  });
  EXPECT_THAT(ends, Each(absl::OkStatus()));
}

// Rank 0 measures, and the others take what it has found. The tuning file cannot be written, so
// that nobody finds anything there.
TEST_P(RanksTest, OneRankTunesForAll) {
  test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({.vocab = 96}), dir.path());
  options_.dir = dir.path();
  options_.max_rows = 8;
  const std::vector<TokenId> prompt = {4, 5, 6};
  const Greedy want = Decode(1, prompt, 3);
  options_.tuning_cache = "/proc/none";
  const auto timed = [&](int ranks) {
    const int64_t before = fake::CountCallsOf("cudaEventElapsedTime");
    ExpectAlike(Decode(ranks, prompt, 3), want, 1e-5);
    return fake::CountCallsOf("cudaEventElapsedTime") - before;
  };
  const int64_t of_one = timed(1);
  EXPECT_GT(of_one, 0);
  // Three ranks have shards of two sizes; ranks that measure all would take `ranks()` times as
  // many.
  EXPECT_LT(timed(ranks()), 0.8 * ranks() * of_one);
}

TEST_P(RanksTest, ShapesThatDoNotDivide) {
  for (const test::TinyLlamaOptions& tiny : std::vector<test::TinyLlamaOptions>{
           {.vocab = 97},
           {.vocab = 97, .tied = true},
           {.intermediate = 51},
           {.hidden = 64, .heads = 8, .kv_heads = 2, .attention_bias = true, .mlp_bias = true}}) {
    const test::TempDir dir;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir.path());
    options_.dir = dir.path();
    const std::vector<TokenId> prompt = {4, 5, 6, 7, 8};
    const Greedy want = Decode(1, prompt, 6);
    ExpectAlike(Decode(ranks(), prompt, 6), want, 1e-5);
  }
}

// Each rank has the rows of the head whose ids are its own.
TEST_P(RanksTest, DraftVocabularies) {
  const test::TempDir dir;
  test::TinyLlama tiny = test::MakeTinyLlama({.vocab = 97});
  std::vector<int> ids;
  for (int id = 1; id < 97; id += 1 + id % 3) ids.push_back(id);
  test::ReduceHead(&tiny, ids);
  test::WriteTinyLlama(tiny, dir.path());
  options_.dir = dir.path();
  const std::vector<TokenId> prompt = {4, 5, 6, 7, 8};
  // -infinity as 0, where it is expected.
  const auto finite = [&](Greedy greedy) {
    for (std::vector<float>& row : greedy.rows) {
      for (size_t id = 0; id < row.size(); ++id) {
        if (std::find(ids.begin(), ids.end(), id) != ids.end()) continue;
        EXPECT_EQ(row[id], -std::numeric_limits<float>::infinity()) << id;
        row[id] = 0;
      }
    }
    return greedy;
  };
  const Greedy want = finite(Decode(1, prompt, 6));
  ExpectAlike(finite(Decode(ranks(), prompt, 6)), want, 1e-5);
}

TEST_P(RanksTest, RowsInBf16AreThoseOfOneRankUpToTheRounding) {
  options_.dir = "tests/models/stories260k";
  options_.dtype = "bf16";
  const Greedy want = Decode(1, kPrompt, 1), got = Decode(ranks(), kPrompt, 1);
  ASSERT_EQ(got.rows.size(), 2u);
  for (int i = 0; i < 2; ++i)
    EXPECT_LT(kernels::RelativeDistance(got.rows[i], want.rows[i]), 3e-2) << i;
}

// Each rank lists its part of the vocabulary; what a list does not cover is fetched whole.
TEST_P(RanksTest, CandidateListsAreJoinedAndFetched) {
  options_.dir = "tests/models/stories260k";
  std::vector<float> want;
  for (const int count : {1, ranks()}) {
    const auto ends = RunRanks(count, [&](ModelRunner* runner) -> absl::Status {
      for (const double cover : {0.0, 0.9999999}) {
        RowNeed need;
        need.form = count == 1 ? RowNeed::Form::kWhole : RowNeed::Form::kTop;
        need.count = 5;
        need.sums = true;
        need.cover = cover;
        int cached = 0;
        const SequenceHandle sequence = runner->blocks()->Open({403}, &cached);
        StepBuilder step = runner->NewStep();
        COPPICE_ASSIGN_OR_RETURN(const KvNode node,
                                 runner->blocks()->AddNode(sequence, kPrefixEnd, 403));
        const int place = step.AddNodeRow(sequence, node, 403, need);
        COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
        COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, runner->Wait());
        const std::vector<float> whole(rows->Whole(place).begin(), rows->Whole(place).end());
        if (count == 1) {
          want = whole;
        } else if (cover > 0) {
          EXPECT_LT(kernels::RelativeDistance(whole, want), 1e-5);
        } else {
          const TokenList& list = rows->Listed(place)->lists[0];
          EXPECT_GE(list.tokens.size(), 5u);
          const auto best = std::max_element(want.begin(), want.end()) - want.begin();
          EXPECT_THAT(list.tokens, testing::Contains(best));
          for (size_t i = 0; i < list.tokens.size(); ++i)
            EXPECT_NEAR(list.logits[i], want[list.tokens[i]], 1e-3);
        }
        runner->blocks()->Close(sequence);
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(ends, Each(absl::OkStatus()));
  }
}

// What leaves the devices is lists: as much for each rank, whatever the vocabulary.
TEST_P(RanksTest, DevicesSendListsRatherThanRows) {
  constexpr int kVocab = 20011, kRows = 16;
  const test::TempDir dir;
  test::WriteTinyLlama(test::MakeTinyLlama({.heads = 4, .kv_heads = 4, .vocab = kVocab}),
                       dir.path());
  options_.dir = dir.path();
  std::vector<std::vector<TokenId>> best[2];
  size_t bytes[2] = {0, 0};
  for (const bool listed : {false, true}) {
    const auto ends = RunRanks(ranks(), [&](ModelRunner* runner) -> absl::Status {
      int cached = 0;
      const SequenceHandle sequence = runner->blocks()->Open({403}, &cached);
      StepBuilder step = runner->NewStep();
      for (int i = 0; i < kRows; ++i) {
        RowNeed need;
        need.form = RowNeed::Form::kTop;
        need.count = 5;
        need.sums = true;
        if (!listed) need = RowNeed();
        COPPICE_ASSIGN_OR_RETURN(const KvNode node,
                                 runner->blocks()->AddNode(sequence, kPrefixEnd, 403 + i));
        step.AddNodeRow(sequence, node, 403 + i, need);
      }
      const size_t before = fake::CountWork().bytes_down;
      COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
      COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, runner->Wait());
      bytes[listed] = fake::CountWork().bytes_down - before;
      for (int i = 0; i < kRows; ++i) {
        std::vector<TokenId> five;
        if (listed) {
          five = rows->Listed(i)->lists[0].tokens;
        } else {
          five = sampling::TopTokens(
              std::vector<double>(rows->Whole(i).begin(), rows->Whole(i).end()), 5);
          std::sort(five.begin(), five.end());
        }
        best[listed].push_back(five);
      }
      runner->blocks()->Close(sequence);
      return absl::OkStatus();
    });
    EXPECT_THAT(ends, Each(absl::OkStatus()));
  }
  EXPECT_EQ(best[true], best[false]);
  // Sums through the host cross, too: two a layer and one for the embedding.
  const size_t sums =
      options_.collectives.kind == "host" ? ranks() * 5 * kRows * 32 * sizeof(float) : 0;
  const size_t row_bytes = kRows * kVocab * sizeof(float);
  EXPECT_EQ(bytes[false], row_bytes + sums);
  EXPECT_LT(bytes[true], row_bytes / 8 + sums);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RanksTest,
                         testing::Combine(testing::Values("nccl", "host"),
                                          testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

using RanksOnDevicesTest = RanksFixture;

TEST_F(RanksOnDevicesTest, RanksOfOneDeviceExchangeThroughTheHost) {
  fake::Configure({.devices = 1});
  options_.dir = "tests/models/stories260k";
  Greedy greedy;
  const auto decode = [&](ModelRunner* runner) {
    return DecodeGreedily(runner, kPrompt, 2, &greedy);
  };
  EXPECT_THAT(RunRanks(2, decode), Each(absl::OkStatus()));
  EXPECT_THAT(description_,
              HasSubstr("sums through the host because ranks 0 and 1 share a device"));
  options_.collectives.kind = "nccl";
  for (const absl::Status& end : RunRanks(2, decode)) {
    EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(end.message(), HasSubstr("--communicator=nccl: ranks 0 and 1 share a device; "
                                         "--communicator=host works without it"));
  }
  options_.collectives.kind = "ncll";
  for (const absl::Status& end : RunRanks(2, decode))
    EXPECT_THAT(end.message(),
                HasSubstr("--communicator must be auto, nccl, oneshot or host, got \"ncll\""));
  EXPECT_EQ(fake::CountLive().total(), 0);
}

TEST_F(RanksOnDevicesTest, EachRankHasADeviceOfItsOwn) {
  options_.dir = "tests/models/stories260k";
  EXPECT_THAT(RunRanks(2, [](ModelRunner*) { return absl::OkStatus(); }), Each(absl::OkStatus()));
  EXPECT_THAT(description_, HasSubstr("device 0 of 4, NCCL 2."));
}

}  // namespace
}  // namespace coppice::model
