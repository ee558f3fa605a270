// Months of load in minutes: the engine with a clock that its passes move, a small pool, requests of
// all kinds that come in bursts, are cancelled, preempted, and get their drafts late. Nothing leaks,
// budgets are kept, every wait has a bound, and every answer is what it is alone. With COPPICE_LONG:
// 100,000 requests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/testing/long_run.h"
#include "tests/worker/draft_node_thread.h"
#include "tests/worker/pressure_fixture.h"

namespace coppice::worker {
namespace {

constexpr int kKinds = 300;    // different requests
constexpr int kBatch = 250;    // requests of one life of an engine
constexpr int kMaxRows = 48;   // of a step
constexpr int kMostNeed = 30;  // blocks that a request is expected to need, at most

// A pass of up to 24 rows takes 10 ms, a larger one proportionally longer.
class PassClock : public Clock, public model::PlanSender {
 public:
  absl::Status Send(const StepPlan& plan) override {
    most_rows_ = std::max(most_rows_, plan.rows());
    const double seconds = 0.010 * std::max(1.0, plan.rows() / 24.0);
    now_s_ += seconds;
    busy_s_ += seconds;
    return absl::OkStatus();
  }
  double NowSeconds() const override { return now_s_; }
  void Advance(double seconds) { now_s_ += seconds; }
  int most_rows() const { return most_rows_; }
  double busy_s() const { return busy_s_; }

 private:
  double now_s_ = 1, busy_s_ = 0;
  int most_rows_ = 0;
};

class LoadSimulationTest : public PressureTest {
 protected:
  struct Arrival {
    proto::StartSequence start;
    uint64_t kind = 0;
    double at_s = 0;
  };

  LoadSimulationTest() : PressureTest({"", "auto"}) {}

  // Bursts: mean gaps of 5 ms and of 200 ms by turns.
  std::vector<Arrival> Batch(std::mt19937* random, double begin_s) {
    std::vector<Arrival> batch;
    double at_s = begin_s;
    for (int i = 0; i < kBatch; ++i) {
      const double mean_s = i / 40 % 2 == 0 ? 0.005 : 0.2;
      at_s += std::exponential_distribution<>(1 / mean_s)(*random);
      Arrival& arrival = batch.emplace_back();
      arrival.kind = 1 + (*random)() % kKinds;
      arrival.start = Request(arrival.kind, /*drafts=*/true);
      arrival.start.set_sequence_id(i + 1);
      arrival.start.set_client("");
      arrival.start.set_priority((*random)() % 4 == 0);
      // Most are expected to need far too little.
      arrival.start.set_expected_kv_blocks(1 +
                                           (*random)() % ((*random)() % 20 == 0 ? kMostNeed : 2));
      arrival.at_s = at_s;
    }
    return batch;
  }

  // Runs a batch to its end. Cancels one in 25, at any time.
  void Serve(model::ModelRunner* runner, const std::vector<Arrival>& batch,
             const proto::DraftNodes& nodes, std::mt19937* random, PassClock* clock) {
    coordinator_ = QueuedCoordinator();
    coordinator_.Send(nodes);
    coordinator_.WaitFor(kBatch);
    size_t next = 0;
    std::map<uint64_t, double> to_cancel;  // when
    cancelled_.clear();
    came_s_.clear();
    over_s_.clear();
    coordinator_.EveryTurn(
        [&](int turn) {
          if ((*random)() % 40 == 0) clock->Advance(0.3);  // drafts are late
          for (const auto& [id, update] : coordinator_.finished())
            over_s_.try_emplace(id, clock->NowSeconds());
          const bool idle =
              std::all_of(batch.begin(), batch.begin() + next, [this](const Arrival& arrival) {
                const uint64_t id = arrival.start.sequence_id();
                return coordinator_.finished().count(id) > 0 || cancelled_.count(id) > 0;
              });
          if (idle && next < batch.size())
            clock->Advance(std::max(0.0, batch[next].at_s - clock->NowSeconds()));
          for (; next < batch.size() && batch[next].at_s <= clock->NowSeconds(); ++next) {
            const uint64_t id = batch[next].start.sequence_id();
            coordinator_.Start(batch[next].start, /*will_end=*/false);
            came_s_[id] = clock->NowSeconds();
            if ((*random)() % 25 == 0)
              to_cancel[id] = clock->NowSeconds() + 0.01 * ((*random)() % 100);
          }
          for (auto it = to_cancel.begin(); it != to_cancel.end();) {
            if (it->second > clock->NowSeconds()) {
              ++it;
              continue;
            }
            if (coordinator_.finished().count(it->first) == 0) {
              coordinator_.Cancel(it->first);
              coordinator_.WaitFor(-1);
              cancelled_.insert(it->first);
              over_s_[it->first] = clock->NowSeconds();
            }
            it = to_cancel.erase(it);
          }
          if (turn % 500 == 0) {
            EXPECT_TRUE(runner->blocks()->CheckIntegrity().ok())
                << runner->blocks()->CheckIntegrity();
          }
        },
        /*most=*/10000000);
    EngineOptions options = EngineOptionsOf(runner);
    options.scheduler.max_rows = options.drafts.max_rows = kMaxRows;
    options.drafts.min_deadline_s = 0.02;
    options.drafts.max_deadline_s = 0.2;
    Engine engine(options, runner, plans_.get(), &coordinator_, clock);
    runner->SendPlansTo(clock);
    ASSERT_TRUE(engine.Run().ok());
    coordinator_.EveryTurn(nullptr);
    for (const auto& [id, update] : coordinator_.finished())
      over_s_.try_emplace(id, clock->NowSeconds());
    EXPECT_THAT(coordinator_.errors(), ::testing::IsEmpty());
    EXPECT_EQ(runner->blocks()->counts().used, 0);
  }

  // While one waits for its first admission, others that came later pass it: for each that waits
  // beside it and came before, and for itself, by a pool of blocks at most; and those of a better
  // priority by eight times the blocks of those that wait for their priority.
  void ExpectBoundedWaits(const std::vector<Arrival>& batch, double pool) {
    struct Wait {
      double came_s, admitted_s, over_s, needs;  // over_s: since then it does not wait again
      int priority;
    };
    std::vector<Wait> waits;
    double all = 0;
    for (const Arrival& arrival : batch) {
      const uint64_t id = arrival.start.sequence_id();
      const auto end = coordinator_.finished().find(id);
      // Blocks that running sequences have anyway are not counted: nearly all of a prompt.
      const double needs = std::max<double>(1, arrival.start.expected_kv_blocks() - 6.0);
      const double came_s = came_s_.at(id), over_s = over_s_.at(id);
      const bool whole = end != coordinator_.finished().end();
      const double admitted_s = whole ? came_s + end->second.stats().queue_ms() * 1e-3 : over_s;
      const bool again = whole && end->second.stats().preemptions() > 0;
      waits.push_back({came_s, admitted_s, whole && !again ? admitted_s : over_s, needs,
                       arrival.start.priority()});
      all += needs;
    }
    for (const Wait& one : waits) {
      double same = 0, better = 0, outranked = one.needs;
      int ahead = 0;
      for (const Wait& other : waits) {
        if (&other == &one) continue;
        const bool before = other.came_s <= one.came_s;
        if (before && other.over_s >= one.came_s) {
          ++ahead;
          if (other.priority > 0) outranked += other.needs;
        }
        if (before || other.admitted_s >= one.admitted_s) continue;
        (other.priority < one.priority ? better : same) += other.needs;
      }
      const double bound = (1 + ahead) * (pool + kMostNeed);
      EXPECT_LE(same, bound);
      EXPECT_LE(better, 8 * outranked + bound);
      longest_wait_s_ = std::max(longest_wait_s_, one.admitted_s - one.came_s);
      passed_ = std::max(passed_, same);
      ++waits_;
      telling_ += bound < all;  // it could have been passed by more
    }
  }

  std::map<uint64_t, double> came_s_, over_s_;  // over: ended or cancelled
  std::set<uint64_t> cancelled_;
  double longest_wait_s_ = 0, passed_ = 0;
  int waits_ = 0, telling_ = 0;
};

TEST_F(LoadSimulationTest, NothingLeaksNobodyStarvesAndNothingChanges) {
  const auto large = Load(1000);
  const std::vector<proto::StartSequence> kinds = Requests(kKinds, /*drafts=*/true);
  const std::map<uint64_t, std::string> alone =
      Decode(large.get(), Requests(kKinds, /*drafts=*/false), /*together=*/false);
  ASSERT_EQ(alone.size(), static_cast<size_t>(kKinds));
  const int64_t pool = LargestBound(large.get(), kinds);
  const auto small = Load(pool);
  DraftNodeThread node(Llama(), "direct://127.0.0.1:*");
  PassClock clock;
  std::mt19937 random(7);
  size_t answers = 0, cancelled = 0;
  const int batches = test::IsLongRun() ? 100000 / kBatch : 8;
  for (int i = 0; i < batches && !HasFailure(); ++i) {
    const std::vector<Arrival> batch = Batch(&random, clock.NowSeconds());
    Serve(small.get(), batch, node.Nodes(), &random, &clock);
    for (const Arrival& arrival : batch) {
      const uint64_t id = arrival.start.sequence_id();
      const auto end = coordinator_.finished().find(id);
      if (end == coordinator_.finished().end()) {
        EXPECT_EQ(cancelled_.count(id), 1u);
        continue;
      }
      ++answers;
      preemptions_ += end->second.stats().preemptions();
      EXPECT_TRUE(Answer(id) == alone.at(arrival.kind)) << "kind " << arrival.kind;
    }
    cancelled += cancelled_.size();
    ExpectBoundedWaits(batch, static_cast<double>(pool));
  }
  EXPECT_LE(clock.most_rows(), kMaxRows);
  EXPECT_EQ(answers + cancelled, static_cast<size_t>(batches * kBatch));
  EXPECT_GT(preemptions_, batches * 0.4);
  EXPECT_GT(telling_, 0.005 * waits_);  // 0.01 to 0.03 were seen: threads differ from run to run
  std::cout << answers << " answers, " << cancelled << " cancelled, " << preemptions_
            << " preemptions in " << clock.NowSeconds() << " s, of which passes " << clock.busy_s()
            << " s; the longest wait: " << longest_wait_s_ << " s, passed by at most " << passed_
            << " blocks of " << pool << "; " << telling_ << " of " << waits_
            << " waits had a bound below all that came\n";
}

}  // namespace
}  // namespace coppice::worker
