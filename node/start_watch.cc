#include "node/start_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm/local_ranks.h"

namespace coppice::node {
namespace {

constexpr double kLook_s = 0.1;
constexpr double kLongestGap_s = 2;  // after a longer gap the process was stopped or starved

std::string Standstill(double still_s, const std::string& what) {
  const comm::LaunchedRank self = comm::ThisLaunchedRank();
  const std::string stopped = comm::StoppedRanks();
  return absl::StrCat("rank ", self.rank, " of ", self.size, ": start-up stands still for ",
                      absl::StrFormat("%.1f s (--start_deadline): it ", still_s), what, "; ",
                      !stopped.empty() ? stopped : "no other rank of this host is stopped");
}

}  // namespace

StartWatch::StartWatch(double deadline_s,
                       std::function<void(const std::string& reason)> on_standstill)
    : deadline_s_(deadline_s), on_standstill_(std::move(on_standstill)), what_("starts") {
  clock_.Begin();
  thread_ = std::thread([this] { Run(); });
}

StartWatch::~StartWatch() {
  Over();
  thread_.join();
}

void StartWatch::At(const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  what_ = what;
  clock_.MovesOn();
}

void StartWatch::Over() {
  const std::lock_guard<std::mutex> lock(mutex_);
  over_ = true;
  over_changed_.notify_all();
}

void StartWatch::Run() {
  const auto pause = std::chrono::duration<double>(std::min(kLook_s, deadline_s_ / 4));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!over_changed_.wait_for(lock, pause, [this] { return over_; })) {
    const ProgressReport report = clock_.Look(kLongestGap_s);
    if (report.still_s <= deadline_s_) continue;
    over_ = true;
    on_standstill_(Standstill(report.still_s, what_));
  }
}

}  // namespace coppice::node
