#include "comm/shared_barrier.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>
#include <optional>
#include <utility>

namespace coppice::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Ranks that compute equal parts arrive within microseconds of each other. With more ranks than
// cores, the awaited rank may need this core, so the core is given away soon.
constexpr int kPauses = 100;  // 1 to 5 us
constexpr std::chrono::microseconds kAwake{100};
constexpr std::chrono::milliseconds kLook{
    100};  // time between two checks of a process that does not arrive

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The word is shared between processes. std::atomic::wait works only within one process.
void SleepWhile(std::atomic<uint32_t>* word, uint32_t value) {
  static_assert(sizeof(*word) == sizeof(uint32_t));
  timespec most = {0, std::chrono::nanoseconds(kLook).count()};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &most, nullptr, 0);
}

void WakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// A rank is at most one collective ahead, so counts that wrap around compare by their difference.
bool HasCome(const BarrierSlot& slot, uint32_t number) {
  return static_cast<int32_t>(slot.count.load(std::memory_order_acquire) - number) >= 0;
}

bool ComesAwake(const BarrierSlot& slot, uint32_t number) {
  for (int i = 0; i < kPauses; ++i) {
    if (HasCome(slot, number)) return true;
    Pause();
  }
  const Clock::time_point until = Clock::now() + kAwake;
  do {
    sched_yield();
    if (HasCome(slot, number)) return true;
  } while (Clock::now() < until);
  return false;
}

}  // namespace

void JoinSlot(BarrierSlot* slot) { slot->pid = getpid(); }

void Arrive(BarrierSlot* slot, uint32_t number, BarrierSlot::Call call) {
  slot->calls[number % 2] = call;
  // Sequentially consistent with the sleepers' count and with their reading of this count: either
  // they see the new count, or they are seen here.
  slot->count.store(number, std::memory_order_seq_cst);
  if (slot->sleepers.load(std::memory_order_seq_cst) > 0) WakeAll(&slot->count);
}

void LeaveSlot(BarrierSlot* slot) {
  slot->left.store(1, std::memory_order_seq_cst);
  if (slot->sleepers.load(std::memory_order_seq_cst) > 0) WakeAll(&slot->count);
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : slot_(other.slot_), fd_(std::exchange(other.fd_, -1)) {}

RankProcess::~RankProcess() {
  if (fd_ >= 0) close(fd_);
}

std::string RankProcess::Gone() {
  if (slot_->left) return "has left its replica";
  if (pid() == 0) return "";  // it has not joined yet
  // Readable once the process has ended. If the system has no pidfd, the launcher ends the other
  // ranks.
  if (fd_ < 0) fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid(), 0));
  if (fd_ < 0) return errno == ESRCH ? "has ended" : "";
  pollfd ended = {fd_, POLLIN, 0};
  return poll(&ended, 1, 0) == 1 ? "has ended" : "";
}

std::string AwaitSlot(BarrierSlot* slot, RankProcess* process, uint32_t number,
                      std::chrono::milliseconds patience) {
  if (HasCome(*slot, number) || ComesAwake(*slot, number)) return "";
  std::optional<Clock::time_point> gone_since;
  std::string reason;
  slot->sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const std::string gone = process->Gone();  // before the look: it may have come and then gone
    const uint32_t seen = slot->count.load(std::memory_order_seq_cst);
    if (HasCome(*slot, number)) break;
    if (!gone.empty()) {
      const Clock::time_point now = Clock::now();
      if (!gone_since) gone_since = now;
      if (now - *gone_since >= patience) {
        reason = gone;
        break;
      }
    }
    SleepWhile(&slot->count, seen);
  }
  slot->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return reason;
}

}  // namespace coppice::comm
