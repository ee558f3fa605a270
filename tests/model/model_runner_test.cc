// One runner per rank, as in a replica, but on the threads of one process. The leader's plans reach
// the others as messages. In every form, the returned rows lead to the same decisions.
#include "model/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "decoding/row_need.h"
#include "sampling/processed_row.h"
#include "tests/model/runner_ranks.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using ::testing::HasSubstr;

constexpr int kVocab = 1501;  // not a multiple of any rank count here
constexpr uint64_t kSeed = 11;

class ModelRunnerTest : public ::testing::TestWithParam<int> {
 protected:
  ModelRunnerTest() {
    test::TinyLlamaOptions tiny;
    tiny.vocab = kVocab;
    tiny.seed = 3;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
  }
  ModelRunnerOptions Options() const {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.kv_bytes = 1 << 20;
    options.threads = 1;
    options.max_rows = 64;
    options.free_windows = free_windows_;
    return options;
  }
  void OnRanks(int ranks, const std::function<void(ModelRunner*, QueuedPlans*)>& body) {
    RunOnRanks(
        ranks, [&](int) { return Options(); }, body);
  }
  test::TempDir dir_;
  bool free_windows_ = true;
};

// One request: a prompt, a root and two draft nodes.
struct Request {
  explicit Request(ModelRunner* runner) : blocks(runner->blocks()) {
    int cached = 0;
    sequence = blocks->Open({4, 5, 6, 7, 8}, &cached);
  }
  ~Request() {
    blocks->Close(sequence);
    blocks->EndRound();
  }
  // Adds the rows of the prefill, the root and the nodes. Each node has this need.
  std::vector<int> Fill(const RowNeed& need, StepBuilder* step) {
    if (blocks->prefix_length(sequence) == 0) {
      const auto slots = blocks->AppendPrefix(sequence, {4, 5, 6, 7});
      step->AddPrefixRows(sequence, {4, 5, 6, 7}, *slots);
      root = *blocks->AddNode(sequence, kPrefixEnd, 8);
      left = *blocks->AddNode(sequence, root, 9);
      right = *blocks->AddNode(sequence, root, 10);
    }
    return {step->AddNodeRow(sequence, root, 8, need), step->AddNodeRow(sequence, left, 9, need),
            step->AddNodeRow(sequence, right, 10, need)};
  }
  BlockManager* blocks;
  SequenceHandle sequence = -1;
  KvNode root{}, left{}, right{};
};

// A row of a step as decoding reads it.
class OneRow : public sampling::RowSource {
 public:
  OneRow(const kernels::StepRows* rows, int need) : rows_(rows), need_(need) {}
  absl::Span<const float> Logits(int) override { return rows_->Whole(need_); }
  const CandidateRow* Listed(int) override { return rows_->Listed(need_); }

 private:
  const kernels::StepRows* rows_;
  int need_;
};

TEST_P(ModelRunnerTest, DrawsFromCandidateListsAreThoseFromWholeRowsOnTheSameRanks) {
  const int ranks = GetParam();
  OnRanks(ranks, [&](ModelRunner* runner, QueuedPlans*) {
    Request request(runner);
    decoding::DecodingParams params;
    params.seed = kSeed;
    std::vector<sampling::ProcessedRow::Draw> draws[2];
    for (const bool listed : {false, true}) {
      RowNeed need;
      if (listed) {
        need = decoding::TargetNeed(params, {decoding::RowUse::Kind::kDraws});
        need.path_hash = 77;
        need.slots = 7;
      }
      StepBuilder step = runner->NewStep();
      const std::vector<int> needs = request.Fill(need, &step);
      const kernels::StepRows* rows = RunStep(runner, std::move(step));
      for (int i : needs) {
        // A single rank always has the whole row.
        EXPECT_EQ(rows->Listed(i) != nullptr, listed && ranks > 1);
        OneRow source(rows, i);
        sampling::ProcessedRow row(params);
        row.Read(&source, 0, 1);
        for (uint32_t slot : {0, 1, 2}) {
          draws[listed].push_back(row.DrawToken({kSeed, sampling::Domain::kToken, 77, slot}));
        }
      }
    }
    ASSERT_EQ(draws[0].size(), draws[1].size());
    for (size_t i = 0; i < draws[0].size(); ++i) {
      EXPECT_EQ(draws[0][i].winner.token, draws[1][i].winner.token);
      EXPECT_EQ(draws[0][i].winner.log_prob, draws[1][i].winner.log_prob);
      EXPECT_EQ(draws[0][i].margin, draws[1][i].margin);
    }
  });
}

// If a candidate list is too short, a follow-up plan fetches the whole row.
TEST_P(ModelRunnerTest, FetchesWhatACandidateListDoesNotCover) {
  const int ranks = GetParam();
  OnRanks(ranks, [&](ModelRunner* runner, QueuedPlans* plans) {
    Request request(runner);
    StepBuilder whole_step = runner->NewStep();
    const std::vector<int> needs = request.Fill(RowNeed(), &whole_step);
    std::vector<std::vector<float>> want;
    const kernels::StepRows* rows = RunStep(runner, std::move(whole_step));
    for (int i : needs) want.emplace_back(rows->Whole(i).begin(), rows->Whole(i).end());

    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.count = 20;
    need.sums = true;
    need.cover = 0.999;  // 20 tokens of a random model never cover this
    StepBuilder step = runner->NewStep();
    request.Fill(need, &step);
    const int before = plans->sent();
    rows = RunStep(runner, std::move(step));
    EXPECT_EQ(plans->sent() - before, ranks > 1 ? 2 : 1);
    for (size_t i = 0; i < needs.size(); ++i) {
      EXPECT_EQ(rows->Listed(needs[i]), nullptr);
      EXPECT_EQ(std::vector<float>(rows->Whole(needs[i]).begin(), rows->Whole(needs[i]).end()),
                want[i]);
    }
    // The next step follows in order.
    StepBuilder next = runner->NewStep();
    request.Fill(RowNeed(), &next);
    RunStep(runner, std::move(next));
  });
}

// Of a tiny model in F32, whatever the number of ranks: its parameters once, but of the embedding
// one row for each token, and K and V of what is seen.
TEST_P(ModelRunnerTest, CountsWhatPassesMustRead) {
  const test::TinyLlamaOptions tiny = {};
  const uint64_t d = tiny.hidden, f = tiny.intermediate;
  const uint64_t kv_heads = std::max(tiny.kv_heads, GetParam());  // every rank has one
  const uint64_t kv = kv_heads * d / tiny.heads;
  const uint64_t layer = 4 * (2 * d * d + 2 * kv * d + 3 * f * d + 2 * d);
  const uint64_t head = 4 * (kVocab * d + d);
  OnRanks(GetParam(), [&](ModelRunner* runner, QueuedPlans*) {
    Request request(runner);
    for (int pass = 0; pass < 2; ++pass) {
      const MemoryTraffic before = runner->reads();
      StepBuilder step = runner->NewStep();
      request.Fill(RowNeed(), &step);
      RunStep(runner, std::move(step));
      const uint64_t rows = pass == 0 ? 7 : 3;
      const uint64_t weights = runner->reads().weights - before.weights;
      const uint64_t exact = tiny.layers * layer + head + rows * 4 * d;
      EXPECT_GE(weights, exact);
      EXPECT_LE(weights, exact + exact / 4);  // packed matrices are padded
      EXPECT_EQ(runner->reads().kv - before.kv, (4 + 3) * tiny.layers * 2 * kv * 4);
    }
  });
}

// A model with windows, read in chunks that are longer than a window, then token by token, beside a
// sequence that begins alike. The plans bring every rank the pages of its blocks.
TEST_P(ModelRunnerTest, WindowsChangeNoBitOnAnyRank) {
  test::WriteTinyLlama(test::MakeTinyFamily("gemma3", {.layers = 4, .vocab = kVocab}), dir_.path());
  std::vector<TokenId> tokens;
  for (int i = 0; i < 200; ++i) tokens.push_back((i * i * 31 + 7) % kVocab);
  std::vector<std::vector<float>> logits[2];
  int64_t used[2] = {};
  for (const bool free_windows : {false, true}) {
    free_windows_ = free_windows;
    OnRanks(GetParam(), [&](ModelRunner* runner, QueuedPlans*) {
      BlockManager* const blocks = runner->blocks();
      EXPECT_EQ(runner->page_map().groups() > 0, free_windows);
      for (int sequence = 0; sequence < 3; ++sequence) {
        int cached = 0;
        const SequenceHandle handle = blocks->Open(absl::MakeSpan(tokens).first(100), &cached);
        EXPECT_EQ(cached > 0, sequence > 0);
        int next = cached;
        while (next < 99) {
          StepBuilder step = runner->NewStep();
          const auto chunk = absl::MakeConstSpan(tokens).subspan(next, std::min(60, 99 - next));
          const auto slots = blocks->AppendPrefix(handle, chunk);
          ASSERT_TRUE(slots.ok()) << slots.status();
          step.AddPrefixRows(handle, chunk, *slots);
          RunStep(runner, std::move(step));
          next += static_cast<int>(chunk.size());
        }
        for (; next < 200; ++next) {
          StepBuilder step = runner->NewStep();
          const KvNode node = *blocks->AddNode(handle, kPrefixEnd, tokens[next]);
          step.AddNodeRow(handle, node, tokens[next], RowNeed());
          const kernels::StepRows* rows = RunStep(runner, std::move(step));
          logits[free_windows].emplace_back(rows->Whole(0).begin(), rows->Whole(0).end());
          ASSERT_TRUE(blocks->Commit(handle, {{node}}, runner->commits()).ok());
          ASSERT_TRUE(blocks->CheckIntegrity().ok()) << blocks->CheckIntegrity();
        }
        blocks->EndRound();
        used[free_windows] = blocks->counts().used;
        blocks->Close(handle);
      }
    });
  }
  ASSERT_EQ(logits[0].size(), 3 * 101u);
  EXPECT_EQ(logits[1], logits[0]);
  // One of four layers sees 200 tokens; of the others' 13 there are two blocks at most, and the
  // scratch.
  EXPECT_EQ(used[0], 13 + 1);
  EXPECT_LE(used[1], 13 + 3 * 2 + 4);
}

class PoolTest : public ModelRunnerTest {};

// Block ids mean the same on every rank, so the rank with the smallest pool decides.
TEST_F(PoolTest, RanksTakeTheSmallestPool) {
  int64_t alone = 0;
  for (const bool smaller : {false, true}) {
    test::RunRanks(2, [&](comm::Communicator* communicator) {
      ModelRunnerOptions options = Options();
      if (smaller && communicator->rank() == 1) options.kv_bytes /= 4;
      const auto runner = ModelRunner::Load(options, communicator);
      ASSERT_TRUE(runner.ok()) << runner.status();
      const int64_t blocks = (*runner)->blocks()->counts().total;
      if (communicator->rank() > 0) return;
      if (smaller) {
        EXPECT_LE(blocks, alone / 4);
        EXPECT_GE(blocks, alone / 4 - 2);  // one is the sink
      } else {
        alone = blocks;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ModelRunnerTest, ::testing::Values(1, 2, 4));

class FollowerTest : public ModelRunnerTest {
 protected:
  std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  std::unique_ptr<ModelRunner> runner_ = ModelRunner::Load(Options(), single_.get()).value();
  static StepPlan Plan(uint64_t step) {
    StepPlan plan;
    plan.step = step;
    return plan;
  }
};

TEST_F(FollowerTest, EndsWhenAPlanIsRepeatedOrSkipped) {
  ASSERT_TRUE(runner_->Follow(Plan(1)).ok());
  ASSERT_TRUE(runner_->Follow(Plan(2)).ok());
  for (const uint64_t step : {2, 1, 4, 0}) {
    const absl::Status status = runner_->Follow(Plan(step));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("plan ", step, " after step 2")));
  }
  EXPECT_TRUE(runner_->Follow(Plan(3)).ok());
}

TEST_F(FollowerTest, EndsWhenAPlanCannotBeRun) {
  StepPlan plan = Plan(1);
  plan.token = {kVocab};
  const absl::Status status = runner_->Follow(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("token[0]"));
}

}  // namespace
}  // namespace coppice::model
