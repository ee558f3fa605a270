#include "node/energy/energy_meter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/status.h"
#include "node/energy/energy_samples.h"

namespace coppice::node {
namespace {

constexpr double kMostPeriod_s = 1;
constexpr double kPatience_s = 1;  // seconds for a reading under way when the meter ends

}  // namespace

struct SampledMeter::Shared {
  Shared(const MeterOptions& wanted, std::unique_ptr<EnergySource> opened,
         std::unique_ptr<EnergyClaim> claimed, const Clock* time)
      : options(wanted), source(std::move(opened)), claim(std::move(claimed)), clock(time) {}

  // Used by the meter's thread, and by Start before that thread begins.
  absl::Status Read() {
    const double begin_s = clock->NowSeconds();
    if (begin_s - claim_s >= options.claim_period_s) {
      holds = claim == nullptr || claim->Holds();
      claim_s = begin_s;
    }
    COPPICE_ASSIGN_OR_RETURN(const double joules, source->Joules());
    const double end_s = clock->NowSeconds();
    const std::lock_guard lock(mutex);
    last_readings_s[next_reading++ % last_readings_s.size()] = end_s - begin_s;
    samples.Add((begin_s + end_s) / 2, joules, holds);
    return absl::OkStatus();
  }
  void Run() {
    while (true) {
      {
        std::unique_lock lock(mutex);
        const bool was_slow = slow = clock->NowSeconds() - asked_s > options.idle_after_s;
        wait_s = std::max({options.period_s,
                           std::min(kMostPeriod_s, options.period_readings * ReadingTime()),
                           slow ? std::min(options.idle_period_s, 2 * wait_s) : 0});
        changed.wait_for(lock, std::chrono::duration<double>(wait_s),
                         [&] { return stop || slow != was_slow; });
        if (stop) break;
      }
      const absl::Status status = Read();
      if (status.ok()) continue;
      spdlog::warn("energy is no longer measured: {}", std::string(status.message()));
      const std::lock_guard lock(mutex);
      failed = true;
      break;
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  // The duration of a reading. `mutex` is held. Takes the shortest of the last ones: a longer one
  // may have waited for a processor, which says nothing about the source.
  double ReadingTime() const {
    const auto end = last_readings_s.begin() + std::min(next_reading, last_readings_s.size());
    return *std::min_element(last_readings_s.begin(), end);
  }

  const MeterOptions options;
  const std::unique_ptr<EnergySource> source;
  const std::unique_ptr<EnergyClaim> claim;
  const Clock* const clock;
  bool holds = false;
  double claim_s = -1e9;

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  EnergySamples samples;
  std::array<double, 4> last_readings_s;  // ring buffer
  size_t next_reading = 0;                // Start has done the first
  double wait_s = 0;                      // between two readings
  double asked_s = clock->NowSeconds();   // when an estimate was asked for last
  bool slow = false;                      // no estimate was requested for a long time
  bool stop = false, ended = false, failed = false;
};

absl::StatusOr<std::unique_ptr<SampledMeter>> SampledMeter::Start(
    const MeterOptions& options, std::unique_ptr<EnergySource> source,
    std::unique_ptr<EnergyClaim> claim, const Clock* clock) {
  auto shared = std::make_shared<Shared>(options, std::move(source), std::move(claim), clock);
  COPPICE_RETURN_IF_ERROR(shared->Read());
  std::thread([shared] { shared->Run(); }).detach();
  return std::unique_ptr<SampledMeter>(new SampledMeter(std::move(shared)));
}

SampledMeter::~SampledMeter() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::duration<double>(kPatience_s),
                            [this] { return shared_->ended; });
}

std::optional<double> SampledMeter::Estimate(double now_s) const {
  const std::lock_guard lock(shared_->mutex);
  shared_->asked_s = now_s;
  if (std::exchange(shared_->slow, false)) shared_->changed.notify_all();
  return shared_->failed ? std::nullopt : shared_->samples.Estimate(now_s, shared_->wait_s);
}

std::optional<double> SampledMeter::Counted(double now_s) const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->failed || !shared_->samples.Estimate(now_s, 0)) return std::nullopt;
  return shared_->samples.counted();
}

std::string SampledMeter::kind() const { return shared_->source->kind(); }

double SampledMeter::reading_s() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->ReadingTime();
}

}  // namespace coppice::node
