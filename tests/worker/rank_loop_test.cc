// Runs under mpirun with 2 ranks: processes, as the ranks of a replica are. The leader repeats a plan,
// leaves one out, sends one that cannot be run, or stops. The follower's loop ends, and says why.
#include "worker/rank_loop.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "comm/mpi_world.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"
#include "worker/plan_link.h"

namespace coppice::worker {
namespace {

struct Case {
  std::vector<StepPlan> plans;
  std::string reason;  // of the follower; "" = it ends well
};

// Counts the calls of Progress.
class ProgressCounter final : public comm::Communicator {
 public:
  explicit ProgressCounter(comm::Communicator* wrapped) : wrapped_(*wrapped) {}
  int rank() const override { return wrapped_.rank(); }
  int size() const override { return wrapped_.size(); }
  absl::Status AllReduceSum(absl::Span<float> data) override { return wrapped_.AllReduceSum(data); }
  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    return wrapped_.Gather(mine, all);
  }
  absl::Status Broadcast(std::string* data) override { return wrapped_.Broadcast(data); }
  absl::Status Barrier() override { return wrapped_.Barrier(); }
  void Progress() override {
    ++calls;
    wrapped_.Progress();
  }

  int calls = 0;

 private:
  comm::Communicator& wrapped_;
};

StepPlan Plan(uint64_t step) {
  StepPlan plan;
  plan.step = step;
  return plan;
}

std::vector<Case> Cases() {
  StepPlan bad = Plan(1);
  bad.token = {1 << 20};
  return {{{Plan(1), Plan(2), Plan(2)}, "rank 1: plan 2 after step 2"},
          {{Plan(1), Plan(3)}, "rank 1: plan 3 after step 1"},
          {{Plan(1), Plan(0)}, "rank 1: plan 0 after step 1"},
          {{bad}, "rank 1: "},
          {{Plan(1), Plan(2)}, ""}};
}

void Check(const Case& of, const std::string& folder, comm::Communicator* ranks) {
  model::ModelRunnerOptions options;
  options.dir = folder;
  options.kv_bytes = 1 << 20;
  options.threads = 1;
  const auto runner = model::ModelRunner::Load(options, ranks);
  COPPICE_CHECK_MSG(runner.ok(), runner.status().ToString());
  if (ranks->rank() == 0) {
    const auto leader = PlanLeader::Start(ranks, "direct://127.0.0.1:*", /*deadline_s=*/60, {});
    COPPICE_CHECK_MSG(leader.ok(), leader.status().ToString());
    COPPICE_CHECK((*leader)->ranks().size() == 2);
    for (const StepPlan& plan : of.plans) COPPICE_CHECK((*leader)->Send(plan).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } else {
    ProgressCounter counter(ranks);
    const absl::Status end = RunRankLoop(&counter, runner->get(), [] {}, {});
    // While it waited for the end, what it had sent could leave.
    COPPICE_CHECK(!of.reason.empty() || counter.calls > 0);
    const std::string message(end.message());
    COPPICE_CHECK_MSG(end.ok() == of.reason.empty(), message);
    COPPICE_CHECK_MSG(message.rfind(of.reason, 0) == 0, message);
  }
  COPPICE_CHECK(ranks->Barrier().ok());
}

}  // namespace
}  // namespace coppice::worker

int main() {
  using namespace coppice;
  auto world = comm::MpiWorld::Init();
  COPPICE_CHECK_MSG(world.ok(), world.status().ToString());
  COPPICE_CHECK((*world)->size() == 2);
  const test::TempDir folder;
  test::WriteTinyLlama(test::MakeTinyLlama({}), folder.path());
  for (const comm::Carrier carrier : {comm::Carrier::kShared, comm::Carrier::kMpi}) {
    const auto ranks = (*world)->Split(0, carrier);
    COPPICE_CHECK_MSG(ranks.ok(), ranks.status().ToString());
    for (const worker::Case& of : worker::Cases()) worker::Check(of, folder.path(), ranks->get());
  }
  if ((*world)->rank() == 0) std::puts("passed");
  return 0;
}
