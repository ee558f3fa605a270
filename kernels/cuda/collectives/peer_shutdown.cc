#include "kernels/cuda/collectives/peer_shutdown.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/ops/one_shot.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {

// All zero at first.
struct PeerShutdown::Page {
  struct Rank {
    std::atomic<int32_t> pid, left;
  };
  // Set in rank 0's page only, because process ids may differ between containers.
  std::atomic<uint64_t> mark;
  Rank ranks[kMostOneShotRanks];
};

namespace {

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat("the page of the ranks' end: ", what, ": ", std::strerror(errno)));
}

// Where rank 0 has it.
struct Where {
  int64_t pid = 0, file = -1;
  uint64_t mark = 0;
};

uint64_t NewMark() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) * 2 + 1;
}

absl::StatusOr<int> Create(size_t bytes) {
  const int file = memfd_create("coppice", MFD_CLOEXEC);
  if (file < 0) return Failed("memfd_create");
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
  const absl::Status status = Failed("ftruncate");
  close(file);
  return status;
}

absl::StatusOr<int> Open(const Where& where) {
  const std::string path = absl::StrCat("/proc/", where.pid, "/fd/", where.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return Failed(path);
  return file;
}

absl::StatusOr<void*> Map(int file, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, /*offset=*/0);
  if (data == MAP_FAILED) return Failed("mmap");
  return data;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerShutdown>> PeerShutdown::Join(comm::Communicator* communicator) {
  static_assert(std::atomic<int32_t>::is_always_lock_free);
  const int rank = communicator->rank();
  Where where;
  int file = -1;
  std::unique_ptr<PeerShutdown> made;
  const auto map = [&](absl::StatusOr<int> opened) -> absl::Status {
    COPPICE_ASSIGN_OR_RETURN(file, opened);
    COPPICE_ASSIGN_OR_RETURN(void* data, Map(file, sizeof(Page)));
    made.reset(new PeerShutdown(static_cast<Page*>(data), rank, communicator->size()));
    if (rank == 0) {
      where = {getpid(), file, NewMark()};
      made->page_->mark = where.mark;
    } else if (made->page_->mark != where.mark) {
      return absl::UnavailableError(
          "the page of the ranks' end: another process has rank 0's number");
    }
    made->page_->ranks[rank].pid = getpid();
    return absl::OkStatus();
  };
  absl::Status status;
  if (rank == 0) status = map(Create(sizeof(Page)));
  std::string bytes(reinterpret_cast<const char*>(&where), sizeof where);
  absl::Status shared = communicator->Broadcast(&bytes);
  if (rank > 0 && shared.ok()) {
    std::memcpy(&where, bytes.data(), sizeof where);
    status = map(Open(where));
  }
  status.Update(shared);
  const absl::Status all = Agree(communicator, status);  // from here on nobody opens it
  if (file >= 0) close(file);
  COPPICE_RETURN_IF_ERROR(all);
  return made;
}

PeerShutdown::~PeerShutdown() { munmap(page_, sizeof(Page)); }

void PeerShutdown::Leave() { page_->ranks[rank_].left = 1; }

bool PeerShutdown::AllLeft(double within_s) const {
  const SteadyClock clock;
  const double end_s = clock.NowSeconds() + within_s;
  for (int r = 0; r < ranks_; ++r) {
    const Page::Rank& other = page_->ranks[r];
    const auto gone = [&] { return kill(other.pid, 0) != 0 && errno == ESRCH; };
    while (r != rank_ && other.left == 0 && !gone()) {
      if (clock.NowSeconds() > end_s) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

}  // namespace coppice::kernels::cuda
