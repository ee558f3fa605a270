// Steps of a replica whose ranks are those of this mpirun, or of one rank without mpirun: the
// leader sends each plan over ZeroMQ and the others follow, as in a worker. Every row is the next
// token of a sequence of its own. Prints a line of JSON: the median time of a step, and what of it
// the leader spends in collectives (exchange, and waits for slower ranks).
// lab/bench/worker/ranks.py compares numbers of ranks.
//   [mpirun -np 2] bin/bench_ranks MODEL THREADS ROWS STEPS [shm|mpi]
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/status.h"
#include "comm/mpi_world.h"
#include "model/model_runner.h"
#include "worker/plan_link.h"
#include "worker/rank_loop.h"

namespace coppice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kContext = 64;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// Adds up the time that a rank spends in another communicator.
class TimedCommunicator final : public comm::Communicator {
 public:
  explicit TimedCommunicator(std::unique_ptr<comm::Communicator> other)
      : other_(std::move(other)) {}
  int rank() const override { return other_->rank(); }
  int size() const override { return other_->size(); }
  absl::Status AllReduceSum(absl::Span<float> data) override {
    return Timed([&] { return other_->AllReduceSum(data); });
  }
  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    return Timed([&] { return other_->Gather(mine, all); });
  }
  absl::Status Broadcast(std::string* data) override { return other_->Broadcast(data); }
  absl::Status Barrier() override { return other_->Barrier(); }
  double TakeMilliseconds() { return std::exchange(spent_ms_, 0); }

 private:
  template <class Call>
  absl::Status Timed(Call call) {
    const Clock::time_point begin = Clock::now();
    const absl::Status status = call();
    spent_ms_ += Milliseconds(begin);
    return status;
  }
  const std::unique_ptr<comm::Communicator> other_;
  double spent_ms_ = 0;
};

struct Arguments {
  std::string model;
  int threads, rows, steps;
  comm::Carrier carrier;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

absl::Status Lead(const Arguments& arguments, TimedCommunicator* ranks,
                  model::ModelRunner* runner) {
  COPPICE_ASSIGN_OR_RETURN(const auto plans,
                           worker::PlanLeader::Start(ranks, "tcp://127.0.0.1:*", 30, {}));
  runner->SendPlansTo(plans.get());
  model::BlockManager* blocks = runner->blocks();
  std::vector<model::SequenceHandle> sequences;
  for (int i = 0; i < arguments.rows; ++i) {
    std::vector<TokenId> prompt;
    for (int p = 0; p <= kContext; ++p) prompt.push_back(3 + (37 * i + 11 * p) % 250);
    int cached = 0;
    sequences.push_back(blocks->Open(prompt, &cached));
    const std::vector<TokenId> begin(prompt.begin() + cached, prompt.end() - 1);
    COPPICE_ASSIGN_OR_RETURN(const auto slots, blocks->AppendPrefix(sequences.back(), begin));
    model::StepBuilder step = runner->NewStep();
    step.AddPrefixRows(sequences.back(), begin, slots);
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    COPPICE_RETURN_IF_ERROR(runner->Wait().status());
  }
  RowNeed need;
  need.form = RowNeed::Form::kTop;
  need.count = 8;
  std::vector<double> step_ms, collectives_ms;
  for (int i = 0; i < arguments.steps; ++i) {
    (void)ranks->TakeMilliseconds();
    const Clock::time_point begin = Clock::now();
    model::StepBuilder step = runner->NewStep();
    for (const model::SequenceHandle sequence : sequences) {
      const TokenId token = 3 + i % 250;
      COPPICE_ASSIGN_OR_RETURN(const auto node,
                               blocks->AddNode(sequence, model::kPrefixEnd, token));
      step.AddNodeRow(sequence, node, token, need);
    }
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    runner->WaitForHead();
    COPPICE_RETURN_IF_ERROR(runner->Wait().status());
    step_ms.push_back(Milliseconds(begin));
    collectives_ms.push_back(ranks->TakeMilliseconds());
    for (const model::SequenceHandle sequence : sequences) blocks->Retain(sequence, {});
    blocks->EndRound();
  }
  std::printf(
      "{\"ranks\": %d, \"threads\": %d, \"rows\": %d, \"step_ms\": %.3f, \"collectives_ms\": "
      "%.3f}\n",
      ranks->size(), arguments.threads, arguments.rows, Median(step_ms), Median(collectives_ms));
  return absl::OkStatus();
}

absl::Status Run(const Arguments& arguments) {
  std::unique_ptr<comm::MpiWorld> world;
  std::unique_ptr<comm::Communicator> all = comm::MakeSingleCommunicator();
  if (comm::MpiWorld::Launched()) {
    COPPICE_ASSIGN_OR_RETURN(world, comm::MpiWorld::Init());
    COPPICE_ASSIGN_OR_RETURN(all, world->Split(0, arguments.carrier));
  }
  TimedCommunicator ranks(std::move(all));
  model::ModelRunnerOptions options;
  options.dir = arguments.model;
  options.threads = arguments.threads;
  options.kv_bytes = 256 << 20;
  COPPICE_ASSIGN_OR_RETURN(const auto runner, model::ModelRunner::Load(options, &ranks));
  if (ranks.rank() > 0) return worker::RunRankLoop(&ranks, runner.get(), [] {}, {});
  return Lead(arguments, &ranks, runner.get());
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) {
  int threads = 0, rows = 0, steps = 0;
  if (argc < 5 || !absl::SimpleAtoi(argv[2], &threads) || !absl::SimpleAtoi(argv[3], &rows) ||
      !absl::SimpleAtoi(argv[4], &steps)) {
    std::fputs("bench_ranks MODEL THREADS ROWS STEPS [shm|mpi]\n", stderr);
    return 2;
  }
  spdlog::set_level(spdlog::level::warn);
  const bool mpi = argc > 5 && std::string(argv[5]) == "mpi";
  const absl::Status status =
      coppice::bench::Run({argv[1], threads, rows, steps,
                           mpi ? coppice::comm::Carrier::kMpi : coppice::comm::Carrier::kAuto});
  COPPICE_CHECK_MSG(status.ok(), status.ToString());
  return 0;
}
