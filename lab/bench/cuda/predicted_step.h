// What a step would take on a device that is not there: the real planner and backend enqueue it on
// the simulated device, which counts what each launch does and computes nothing; kernel_time.h says
// what that takes, once under optimistic and once under pessimistic assumptions. A prediction, not
// a measurement.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "lab/bench/cuda/device_model.h"
#include "lab/bench/cuda/kernel_time.h"
#include "lab/bench/cuda/llama_model.h"
#include "plan/forest_plan.h"
#include "plan/step_plan.h"

namespace coppice::bench {

// A figure under optimistic and pessimistic assumptions; times in milliseconds.
struct Interval {
  double low = 0, high = 0;

  double middle() const { return (low + high) / 2; }
  Interval& operator+=(const Interval& other) {
    low += other.low;
    high += other.high;
    return *this;
  }
  Interval operator+(const Interval& other) const { return Interval(*this) += other; }
};
// "3.51-3.94"
std::string Text(const Interval& interval, int digits = 2);

// Work of the device, in order.
using Work = std::vector<kernels::cuda::fake::Counted>;

struct PredictedStep {
  struct OfKernel {
    int64_t launches = 0, bytes = 0, flops = 0;
    Interval ms;
    Limit limit = Limit::kLatency;  // of its longest launch, under pessimistic assumptions
    double longest_us = 0;
  };
  // lists: candidate lists, and the choice of levels. gaps: between launches. copies: up and down,
  // with the hand-overs to the copy engine. host: where the device waits for it.
  Interval products, attention, lists, other, gaps, copies, host;
  int64_t launches = 0, bytes_up = 0, bytes_down = 0, kv_bytes = 0;
  std::map<std::string, OfKernel> kernels;  // by name
  std::map<std::string, Interval> causes;   // the same time by what limits it at each end, in words

  Interval kernels_ms() const { return products + attention + lists + other; }
  Interval device_ms() const { return kernels_ms() + gaps + copies; }
  Interval total_ms() const { return device_ms() + host; }
  // The largest causes and their shares of total_ms in percent.
  std::string Largest(int count) const;
  void Add(const PredictedStep& other);
};

// A line for each kernel: how much it does, how long it takes, what limits it.
void PrintKernels(const PredictedStep& step);

// round_trips: times that the host waits for the device and then starts work. Pure.
PredictedStep Predict(const Work& work, const DeviceModel& device, int round_trips);

// A simulated device that only counts, of the memory of an H200. With a tuning folder, a model's
// products are those that the predicted times choose, gaps included.
void UseCountingDevice(const DeviceModel& device);

// What the backend enqueues for a step, or for all levels of forests. Internal when a kernel does
// not declare what it costs.
absl::StatusOr<Work> CountStep(const StepPlan& plan, LlamaModel* llama);
absl::StatusOr<Work> CountForests(const coppice::ForestPlan& plan, LlamaModel* draft);
// What it enqueues for the host to read the states of this many slots.
absl::StatusOr<Work> CountStates(int slots, LlamaModel* target);
// With one round trip.
absl::StatusOr<PredictedStep> PredictStep(const StepPlan& plan, const DeviceModel& device,
                                          LlamaModel* llama);
absl::StatusOr<PredictedStep> PredictForests(const coppice::ForestPlan& plan,
                                             const DeviceModel& device, LlamaModel* draft);

}  // namespace coppice::bench
