#include "lab/bench/cuda/predicted_step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace coppice::bench {
namespace {

namespace fake = kernels::cuda::fake;

enum class Kind { kProduct, kAttention, kList, kOther };

Kind KindOf(const std::string& name) {
  if (absl::StartsWith(name, "product") || absl::EndsWith(name, " product")) return Kind::kProduct;
  if (absl::StartsWith(name, "attention")) return Kind::kAttention;
  const bool list = absl::StrContains(name, "candidate lists") || name == "choice of levels" ||
                    name == "placement of levels" || name == "sums of logits";
  return list ? Kind::kList : Kind::kOther;
}

std::string CauseOf(Kind kind, Limit limit) {
  if (limit == Limit::kLatency) return "latency of kernels";
  switch (kind) {
    case Kind::kProduct:
      return limit == Limit::kMemory       ? "weights"
             : limit == Limit::kArithmetic ? "arithmetic of rows"
                                           : absl::StrCat("products: ", NameOf(limit));
    case Kind::kAttention:
      return limit == Limit::kMemory ? "K and V" : absl::StrCat("attention: ", NameOf(limit));
    case Kind::kList:
      return limit == Limit::kInstructions ? "keys and noise of lists"
                                           : absl::StrCat("lists: ", NameOf(limit));
    case Kind::kOther:
      break;
  }
  return "activations";
}

// Idle device before a launch, less the memory time that the launch gains by it. The kernel before,
// too, may leave memory idle: that is not counted.
double GapUs(const fake::Counted& launch, const Ceilings& c) {
  if (!launch.overlaps) return c.gap_us;
  return c.overlapped_gap_us - std::min(c.overlapped_gap_us, EarlyUs(launch, c));
}

// One piece of work after another.
class Timeline {
 public:
  explicit Timeline(const DeviceModel& device) : device_(device) {}

  void Add(const fake::Counted& work) {
    const bool up = work.name == "copy to device";
    if (up || work.name == "copy to host") return Copy(work, up);
    if (before_ == Before::kLaunch) {
      Spend(&step_.gaps, "gaps between launches",
            [&](const Ceilings& c) { return GapUs(work, c); });
    } else if (before_ == Before::kCopy) {
      HandOver();
    }
    before_ = Before::kLaunch;
    Kernel(work);
  }

  PredictedStep Finish(int round_trips) {
    Spend(&step_.host, "host", [&](const Ceilings& c) { return round_trips * c.host_us; });
    return std::move(step_);
  }

 private:
  enum class Before { kNothing, kLaunch, kCopy };

  void Spend(Interval* part, const std::string& cause,
             absl::FunctionRef<double(const Ceilings&)> us) {
    const Interval ms = {us(device_.optimistic) / 1e3, us(device_.pessimistic) / 1e3};
    *part += ms;
    step_.causes[cause] += ms;
  }
  void HandOver() {
    Spend(&step_.copies, "copies", [](const Ceilings& c) { return c.handoff_us; });
  }

  void Copy(const fake::Counted& work, bool up) {
    (up ? step_.bytes_up : step_.bytes_down) += work.cost.bytes;
    if (before_ == Before::kLaunch) HandOver();
    before_ = Before::kCopy;
    Spend(&step_.copies, "copies", [&](const Ceilings& c) {
      return 1e6 * static_cast<double>(work.cost.bytes) / c.host_bandwidth;
    });
  }

  void Kernel(const fake::Counted& work) {
    ++step_.launches;
    const KernelTime low = TimeOf(work, device_.optimistic);
    const KernelTime high = TimeOf(work, device_.pessimistic);
    const Interval ms = {low.us / 1e3, high.us / 1e3};
    const Kind kind = KindOf(work.name);
    Interval* const parts[] = {&step_.products, &step_.attention, &step_.lists, &step_.other};
    *parts[static_cast<int>(kind)] += ms;
    if (kind == Kind::kAttention) step_.kv_bytes += work.cost.bytes;
    step_.causes[CauseOf(kind, low.limit)].low += ms.low;
    step_.causes[CauseOf(kind, high.limit)].high += ms.high;
    PredictedStep::OfKernel& of = step_.kernels[work.name];
    ++of.launches;
    of.bytes += work.cost.bytes;
    of.flops += work.cost.flops;
    of.ms += ms;
    if (high.us <= of.longest_us) return;
    of.longest_us = high.us;
    of.limit = high.limit;
  }

  const DeviceModel& device_;
  PredictedStep step_;
  Before before_ = Before::kNothing;
};

absl::StatusOr<Work> Count(absl::FunctionRef<absl::Status()> run) {
  for (int i = 0; i < 2; ++i) {  // the first may make room
    fake::ClearTotals();
    COPPICE_RETURN_IF_ERROR(run());
  }
  Work work = fake::WorkInOrder();
  for (const fake::Counted& piece : work) {
    if (piece.name == "undeclared")
      return absl::InternalError("a launch of a kernel that declares no cost");
  }
  return work;
}

double UsWithGap(const fake::Counted& launch, const Ceilings& c) {
  return TimeOf(launch, c).us + GapUs(launch, c);
}
double MiddleUs(const fake::Counted& launch, const DeviceModel& device) {
  return (UsWithGap(launch, device.optimistic) + UsWithGap(launch, device.pessimistic)) / 2;
}

}  // namespace

std::string Text(const Interval& interval, int digits) {
  return absl::StrFormat("%.*f-%.*f", digits, interval.low, digits, interval.high);
}

std::string PredictedStep::Largest(int count) const {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [cause, ms] : causes) sorted.emplace_back(-ms.middle(), cause);
  std::sort(sorted.begin(), sorted.end());
  sorted.resize(std::min<size_t>(sorted.size(), count));
  return absl::StrJoin(sorted, ", ", [&](std::string* out, const auto& of) {
    absl::StrAppendFormat(out, "%s %.0f %%", of.second, -100 * of.first / total_ms().middle());
  });
}

void PredictedStep::Add(const PredictedStep& other) {
  products += other.products;
  attention += other.attention;
  lists += other.lists;
  this->other += other.other;
  gaps += other.gaps;
  copies += other.copies;
  host += other.host;
  launches += other.launches;
  bytes_up += other.bytes_up;
  bytes_down += other.bytes_down;
  kv_bytes += other.kv_bytes;
  for (const auto& [cause, ms] : other.causes) causes[cause] += ms;
  for (const auto& [name, of] : other.kernels) {
    OfKernel& sum = kernels[name];
    const bool longer = of.longest_us > sum.longest_us;
    sum = {sum.launches + of.launches,    sum.bytes + of.bytes,
           sum.flops + of.flops,          sum.ms + of.ms,
           longer ? of.limit : sum.limit, std::max(sum.longest_us, of.longest_us)};
  }
}

void PrintKernels(const PredictedStep& step) {
  for (const auto& [name, of] : step.kernels) {
    absl::PrintF("    %-25s %5d launches %14d bytes %16d flops %14s ms, %s\n", name, of.launches,
                 of.bytes, of.flops, Text(of.ms, 3), NameOf(of.limit));
  }
}

PredictedStep Predict(const Work& work, const DeviceModel& device, int round_trips) {
  Timeline timeline(device);
  for (const fake::Counted& piece : work) timeline.Add(piece);
  return timeline.Finish(round_trips);
}

void UseCountingDevice(const DeviceModel& device) {
  fake::DeviceSettings settings;
  settings.memory = size_t{141} << 30;
  settings.multiprocessors = device.optimistic.multiprocessors;
  settings.count_only = true;
  settings.work_us = 1;
  settings.kernel_us = [device](const fake::Counted& kernel) { return MiddleUs(kernel, device); };
  settings.product_us = [device](const fake::FakeProduct& product) {
    fake::Counted launch;
    launch.cost.flops = 2 * product.rows * product.outputs * product.inputs;
    launch.cost.cold_bytes = kValueBytes * product.outputs * product.inputs;
    launch.cost.bytes =
        launch.cost.cold_bytes + kValueBytes * product.rows * (product.outputs + product.inputs);
    return MiddleUs(launch, device);
  };
  fake::Configure(settings);
}

absl::StatusOr<Work> CountStep(const StepPlan& plan, LlamaModel* llama) {
  return Count([&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(llama->backend()->Submit(plan, llama->decoder()));
    return llama->backend()->Wait().status();
  });
}

absl::StatusOr<Work> CountForests(const coppice::ForestPlan& plan, LlamaModel* draft) {
  return Count([&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(draft->backend()->SubmitForests(plan, draft->decoder()));
    return draft->backend()->WaitForests().status();
  });
}

absl::StatusOr<Work> CountStates(int slots, LlamaModel* target) {
  std::vector<int32_t> some(slots);
  std::iota(some.begin(), some.end(), kBlockSize);
  std::vector<uint16_t> states(int64_t{slots} * target->pool().shape.state_columns);
  return Count([&] { return target->backend()->ReadStates(target->pool(), some, states.data()); });
}

absl::StatusOr<PredictedStep> PredictStep(const StepPlan& plan, const DeviceModel& device,
                                          LlamaModel* llama) {
  COPPICE_ASSIGN_OR_RETURN(const Work work, CountStep(plan, llama));
  return Predict(work, device, /*round_trips=*/1);
}

absl::StatusOr<PredictedStep> PredictForests(const coppice::ForestPlan& plan,
                                             const DeviceModel& device, LlamaModel* draft) {
  COPPICE_ASSIGN_OR_RETURN(const Work work, CountForests(plan, draft));
  return Predict(work, device, /*round_trips=*/1);
}

}  // namespace coppice::bench
