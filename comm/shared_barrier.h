// How the ranks of one host wait for each other. In shared memory each rank counts the collectives
// that it has reached. The others wait for that count, first awake and then asleep. A wait ends
// with an error when the awaited process has ended or left.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace coppice::comm {

enum class Collective : uint32_t { kSum = 1, kSumPiece, kGather, kBroadcast, kBarrier };

// A rank's entry in shared memory; all zero at first. Only its rank writes to it, except for
// `sleepers`. Each part has its own pair of cache lines, because lines are fetched in pairs.
struct BarrierSlot {
  struct Call {
    Collective collective;
    uint64_t count;  // number of values
  };
  alignas(128)
      std::atomic<uint32_t> count;  // collectives that its rank has come to; sleepers wait on it
  std::atomic<uint32_t> left;       // 1: the rank takes part in no further collective
  std::atomic<int32_t> pid;
  Call calls[2];  // number n is calls[n % 2]
  alignas(128) std::atomic<uint32_t> sleepers;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Makes `slot` the slot of the calling process.
void JoinSlot(BarrierSlot* slot);
// The calling rank has reached its collective `number`, which is one more than its last.
void Arrive(BarrierSlot* slot, uint32_t number, BarrierSlot::Call call);
void LeaveSlot(BarrierSlot* slot);

// The processes that other ranks run in, for waits.
class RankProcess {
 public:
  explicit RankProcess(const BarrierSlot* slot) : slot_(slot) {}
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  int pid() const { return slot_->pid; }
  // "has ended" or "has left its replica"; "" while it may still arrive.
  std::string Gone();

 private:
  const BarrierSlot* const slot_;
  int fd_ = -1;  // a pidfd, once the process is known
};

// Waits until `slot` has reached collective `number`. If its rank never will, returns the reason,
// but only `patience` after that is known, so that the rank that failed can report the cause.
std::string AwaitSlot(BarrierSlot* slot, RankProcess* process, uint32_t number,
                      std::chrono::milliseconds patience);

}  // namespace coppice::comm
