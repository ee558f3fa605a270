#include "kernels/cuda/collectives/sized_collectives.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/ops/one_shot.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kTiming[] = "the timing of sums over the ranks";
constexpr int64_t kLeastTimed = 1024;  // floats
constexpr int kSumsInARow = 10, kRuns = 5;

class SizedCollectives final : public DeviceCollectives {
 public:
  SizedCollectives(std::unique_ptr<DeviceCollectives> nccl,
                   std::unique_ptr<DeviceCollectives> one_shot, std::vector<SumCost> costs)
      : nccl_(std::move(nccl)), one_shot_(std::move(one_shot)), choice_(std::move(costs)) {}

  std::string description() const override {
    return absl::StrCat(nccl_->description(), ", ", choice_.description());
  }
  absl::StatusOr<float*> AllocateSummed(int64_t count) override {
    return nccl_->AllocateSummed(count);
  }
  absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) override {
    return (choice_.OneShot(count) ? one_shot_ : nccl_)->AllReduceSum(values, count, stream);
  }
  bool CanNorm(int64_t rows, int64_t columns) const override {
    return choice_.OneShot(rows * columns) && one_shot_->CanNorm(rows, columns);
  }
  absl::Status AllReduceSumAndNorm(const AddNormArgs& norm, DeviceStream* stream) override {
    return one_shot_->AllReduceSumAndNorm(norm, stream);
  }
  bool only_enqueues() const override {
    return nccl_->only_enqueues() && one_shot_->only_enqueues();
  }
  absl::Status Failure() override {
    COPPICE_RETURN_IF_ERROR(one_shot_->Failure());
    return nccl_->Failure();
  }
  // First the kernels of our own, because they end at once.
  void Abort(const absl::Status& reason) override {
    one_shot_->Abort(reason);
    nccl_->Abort(reason);
  }

 private:
  const std::unique_ptr<DeviceCollectives> nccl_, one_shot_;
  const SumChoice choice_;
};

// Times sums on this rank's device. The other ranks do the same meanwhile.
class SumTimer {
 public:
  SumTimer(DeviceStream* stream, double end_s) : stream_(stream), end_s_(end_s) {}

  // Measures over the same kind of memory as in steps.
  absl::Status Init(DeviceCollectives* nccl) {
    const size_t bytes = kMostOneShotFloats * sizeof(float);
    COPPICE_ASSIGN_OR_RETURN(values_, nccl->AllocateSummed(kMostOneShotFloats));
    if (values_ == nullptr) {
      COPPICE_ASSIGN_OR_RETURN(buffer_, DeviceBuffer::Allocate(bytes, kTiming));
      values_ = buffer_.floats();
    }
    return stream_->FillZero(values_, bytes, kTiming);
  }
  // Seconds of one sum: the median of several runs, after one that does not count.
  absl::StatusOr<double> Time(int64_t floats, DeviceCollectives* collectives) {
    std::vector<double> seconds;
    for (int run = 0; run <= kRuns; ++run) {
      COPPICE_ASSIGN_OR_RETURN(const double all_s, TimeRun(floats, collectives));
      if (run > 0) seconds.push_back(all_s / kSumsInARow);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
    return seconds[kRuns / 2];
  }

 private:
  absl::StatusOr<double> TimeRun(int64_t floats, DeviceCollectives* collectives) {
    COPPICE_ASSIGN_OR_RETURN(DeviceEvent begin, DeviceEvent::Create(kTiming, /*timed=*/true));
    COPPICE_ASSIGN_OR_RETURN(DeviceEvent end, DeviceEvent::Create(kTiming, /*timed=*/true));
    COPPICE_RETURN_IF_ERROR(begin.Record(*stream_, kTiming));
    for (int i = 0; i < kSumsInARow; ++i)
      COPPICE_RETURN_IF_ERROR(collectives->AllReduceSum(values_, floats, stream_));
    COPPICE_RETURN_IF_ERROR(end.Record(*stream_, kTiming));
    while (true) {
      COPPICE_ASSIGN_OR_RETURN(const bool reached, end.Reached(kTiming));
      COPPICE_RETURN_IF_ERROR(collectives->Failure());
      if (reached) return end.SecondsSince(begin, kTiming);
      if (clock_.NowSeconds() > end_s_)
        return absl::DeadlineExceededError(absl::StrCat(kTiming, ": not within the deadline"));
      std::this_thread::yield();
    }
  }

  DeviceStream* const stream_;
  const double end_s_;
  const SteadyClock clock_;
  DeviceBuffer buffer_;
  float* values_ = nullptr;  // [kMostOneShotFloats]
};

absl::StatusOr<std::vector<SumCost>> TimeSums(DeviceCollectives* nccl, DeviceCollectives* one_shot,
                                              DeviceStream* stream, double end_s) {
  SumTimer timer(stream, end_s);
  COPPICE_RETURN_IF_ERROR(timer.Init(nccl));
  std::vector<SumCost> costs;
  const auto time = [&]() -> absl::Status {
    for (int64_t floats = kLeastTimed; floats <= kMostOneShotFloats; floats *= 2) {
      SumCost cost = {floats};
      COPPICE_ASSIGN_OR_RETURN(cost.nccl_s, timer.Time(floats, nccl));
      COPPICE_ASSIGN_OR_RETURN(cost.one_shot_s, timer.Time(floats, one_shot));
      costs.push_back(cost);
    }
    return absl::OkStatus();
  };
  const absl::Status timed = time();
  if (timed.ok()) return costs;
  one_shot->Abort(timed);  // before the buffer goes: a sum may still wait
  nccl->Abort(timed);
  stream->Synchronize(kTiming).IgnoreError();
  return timed;
}

// Averages the costs over the ranks, so that all choose alike.
absl::Status Average(comm::Communicator* communicator, std::vector<SumCost>* costs) {
  std::vector<float> us;
  for (const SumCost& cost : *costs) {
    us.push_back(static_cast<float>(cost.nccl_s * 1e6));
    us.push_back(static_cast<float>(cost.one_shot_s * 1e6));
  }
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(us)));
  for (size_t i = 0; i < costs->size(); ++i) {
    (*costs)[i].nccl_s = us[2 * i] * 1e-6 / communicator->size();
    (*costs)[i].one_shot_s = us[2 * i + 1] * 1e-6 / communicator->size();
  }
  return absl::OkStatus();
}

}  // namespace

bool SumChoice::OneShot(int64_t floats) const {
  const auto found = std::find_if(costs_.begin(), costs_.end(),
                                  [&](const SumCost& cost) { return cost.floats >= floats; });
  return found != costs_.end() && found->one_shot_s <= found->nccl_s;
}

std::string SumChoice::description() const {
  std::vector<int64_t> sizes;
  for (const SumCost& cost : costs_) {
    if (cost.one_shot_s <= cost.nccl_s) sizes.push_back(cost.floats * sizeof(float) / 1024);
  }
  if (sizes.empty()) return "no one-shot sums: they are slower";
  return absl::StrCat("one-shot sums of ", absl::StrJoin(sizes, ", "), " KiB");
}

absl::StatusOr<std::unique_ptr<DeviceCollectives>> ChooseBySize(
    std::unique_ptr<DeviceCollectives> nccl, std::unique_ptr<DeviceCollectives> one_shot,
    comm::Communicator* communicator, DeviceStream* stream, double deadline_s) {
  const double end_s = SteadyClock().NowSeconds() + deadline_s;
  absl::StatusOr<std::vector<SumCost>> costs = TimeSums(nccl.get(), one_shot.get(), stream, end_s);
  COPPICE_RETURN_IF_ERROR(Agree(communicator, costs.status()));
  COPPICE_RETURN_IF_ERROR(Average(communicator, &*costs));
  for (const SumCost& cost : *costs) {
    if (communicator->rank() > 0) break;
    spdlog::info("a sum of {} KiB over {} ranks: NCCL {:.1f} us, one-shot {:.1f} us",
                 cost.floats * sizeof(float) / 1024, communicator->size(), cost.nccl_s * 1e6,
                 cost.one_shot_s * 1e6);
  }
  return std::make_unique<SizedCollectives>(std::move(nccl), std::move(one_shot),
                                            *std::move(costs));
}

}  // namespace coppice::kernels::cuda
