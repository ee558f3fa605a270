// A replica in one process: a runner on a thread for each rank. The leader's plans reach the others as
// messages. Shared by the tests of the runner.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/model_runner.h"
#include "proto/convert.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::model {

// Plans as messages, one queue for each follower.
class QueuedPlans : public PlanSender {
 public:
  explicit QueuedPlans(int ranks) : queues_(ranks) {}
  absl::Status Send(const StepPlan& plan) override {
    Put(proto::PlanToMessage(plan));
    return absl::OkStatus();
  }
  void Stop() { Put(std::nullopt); }
  std::optional<proto::StepPlan> Take(int rank) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !queues_[rank].empty(); });
    auto message = std::move(queues_[rank].front());
    queues_[rank].pop_front();
    return message;
  }
  int sent() const { return sent_; }

 private:
  void Put(std::optional<proto::StepPlan> message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t rank = 1; rank < queues_.size(); ++rank) queues_[rank].push_back(message);
    sent_ += message.has_value();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::optional<proto::StepPlan>>> queues_;
  int sent_ = 0;
};

// Runs body(leader, plans) on rank 0, while the others follow.
inline void RunOnRanks(int ranks, const std::function<ModelRunnerOptions(int rank)>& options,
                       const std::function<void(ModelRunner*, QueuedPlans*)>& body) {
  QueuedPlans plans(ranks);
  test::RunRanks(ranks, [&](comm::Communicator* communicator) {
    auto runner = ModelRunner::Load(options(communicator->rank()), communicator);
    ASSERT_TRUE(runner.ok()) << runner.status();
    if (communicator->rank() == 0) {
      (*runner)->SendPlansTo(&plans);
      body(runner->get(), &plans);
      return plans.Stop();
    }
    while (const auto message = plans.Take(communicator->rank())) {
      auto plan = proto::PlanFromMessage(*message);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const absl::Status status = (*runner)->Follow(*std::move(plan));
      ASSERT_TRUE(status.ok()) << status;
    }
  });
}

inline const kernels::StepRows* RunStep(ModelRunner* runner, StepBuilder step) {
  const absl::Status submitted = runner->Submit(std::move(step));
  EXPECT_TRUE(submitted.ok()) << submitted;
  runner->WaitForHead();
  const auto rows = runner->Wait();
  EXPECT_TRUE(rows.ok()) << rows.status();
  return *rows;
}

}  // namespace coppice::model
