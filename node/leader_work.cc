#include "node/leader_work.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <string>

#include "base/status.h"

namespace coppice::node {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr char kMovesOn[] = "moves on";
constexpr char kOver[] = "over";

absl::Status Tell(comm::Communicator* ranks, std::string what) { return ranks->Broadcast(&what); }

absl::Status AwaitLeader(comm::Communicator* ranks, const std::function<void()>& on_progress) {
  while (true) {
    std::string told;
    COPPICE_RETURN_IF_ERROR(ranks->Broadcast(&told));
    if (told == kOver) return absl::OkStatus();
    on_progress();
  }
}

}  // namespace

absl::Status RunOnLeader(
    comm::Communicator* ranks,
    const std::function<absl::Status(const std::function<void()>& moves_on)>& work,
    const std::function<void()>& on_progress) {
  if (ranks->rank() > 0) return AwaitLeader(ranks, on_progress);
  std::atomic<uint64_t> parts = 0;
  auto done = std::async(std::launch::async, [&] { return work([&parts] { ++parts; }); });
  uint64_t told = 0;
  absl::Status link = absl::OkStatus();
  while (done.wait_for(kLook) != std::future_status::ready) {
    ranks->Progress();
    const uint64_t now = parts;
    if (now == told) continue;
    told = now;
    on_progress();
    if (link.ok()) link = Tell(ranks, kMovesOn);
  }
  const absl::Status status = done.get();
  if (link.ok()) link = Tell(ranks, kOver);
  return status.ok() ? link : status;
}

}  // namespace coppice::node
