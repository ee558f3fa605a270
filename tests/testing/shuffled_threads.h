// Host threads that run jobs concurrently, in a different order each time. Used by tests/decoding,
// which has no backend.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/host_threads.h"
#include "sampling/rng.h"

namespace coppice::test {

class ShuffledThreads final : public HostThreads {
 public:
  ShuffledThreads(int threads, uint64_t seed) : threads_(threads), seed_(seed) {}

  int count() const override { return threads_; }
  // Every thread takes its share, so two jobs always run on two threads.
  void RunJobs(int jobs, absl::FunctionRef<void(int)> job) override {
    std::vector<int> order(jobs);
    std::iota(order.begin(), order.end(), 0);
    for (int i = jobs - 1; i > 0; --i) {
      const double u = sampling::Uniform(seed_, sampling::Domain::kDirect, 0, 0, draws_++);
      std::swap(order[i], order[static_cast<int>(u * (i + 1))]);
    }
    const int workers = std::min(threads_, jobs);
    std::atomic<int> begun{0};
    const auto work = [&](int worker) {
      ++begun;
      while (begun < workers) std::this_thread::yield();  // all start together
      for (int i = worker; i < jobs; i += workers) job(order[i]);
    };
    std::vector<std::thread> others;
    for (int worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
    if (workers > 0) work(0);
    for (std::thread& other : others) other.join();
  }
  void Post(std::function<void()> task) override { task(); }
  void KeepAwake(bool) override {}
  void Wait() override {}

 private:
  const int threads_;
  const uint64_t seed_;
  uint32_t draws_ = 0;
};

}  // namespace coppice::test
