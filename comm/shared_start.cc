#include "comm/shared_start.h"

#include <unistd.h>

#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/communicator_mpi.h"
#include "comm/communicator_shared.h"

namespace coppice::comm {
namespace {

// Where rank 0 has the memory. `mark` is in its last bytes until all ranks have found it there:
// with separate process id namespaces, as in containers, a process id may mean another process.
struct Where {
  int64_t pid = 0, fd = -1;
  uint64_t mark = 0;
};

class Start {
 public:
  explicit Start(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }

  absl::StatusOr<std::unique_ptr<Communicator>> Run() {
    COPPICE_RETURN_IF_ERROR(OnOneHost());
    std::optional<SharedMemory> memory;
    COPPICE_RETURN_IF_ERROR(Agree(Create(&memory)));
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Bcast(&where_, sizeof where_, MPI_BYTE, 0, comm_), "MPI_Bcast"));
    COPPICE_RETURN_IF_ERROR(Agree(Open(&memory)));
    if (rank_ == 0) std::memset(Mark(*memory), 0, sizeof where_.mark);
    memory->Close();
    COPPICE_RETURN_IF_ERROR(Check(MPI_Barrier(comm_), "MPI_Barrier"));  // the mark is gone
    return MakeSharedCommunicator(*std::move(memory), rank_, size_);
  }

 private:
  static char* Mark(const SharedMemory& memory) {
    return memory.data() + memory.size() - sizeof(Where::mark);
  }
  absl::Status Check(int result, const char* call) const {
    return MpiStatus(result, call, rank_, size_);
  }

  absl::Status OnOneHost() {
    MPI_Comm host = MPI_COMM_NULL;
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type"));
    int here = 0;
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    if (here == size_) return absl::OkStatus();  // true on all ranks if on one
    return absl::UnavailableError("the ranks are on several hosts");
  }

  // The same outcome on every rank: that of the first rank that failed.
  absl::Status Agree(const absl::Status& mine) {
    int first = mine.ok() ? size_ : rank_;
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce"));
    if (first == size_) return absl::OkStatus();
    char text[256] = {};
    if (first == rank_) std::strncpy(text, std::string(mine.message()).c_str(), sizeof text - 1);
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Bcast(text, sizeof text, MPI_CHAR, first, comm_), "MPI_Bcast"));
    return absl::UnavailableError(absl::StrCat("rank ", first, " of ", size_, ": ", text));
  }

  absl::Status Create(std::optional<SharedMemory>* memory) {
    if (rank_ != 0) return absl::OkStatus();
    auto created = SharedMemory::Create(SharedBytes(size_));
    if (!created.ok()) return created.status();
    std::random_device random;
    where_ = {getpid(), created->fd(), uint64_t{random()} << 32 | random()};
    std::memcpy(Mark(*created), &where_.mark, sizeof where_.mark);
    memory->emplace(*std::move(created));
    return absl::OkStatus();
  }

  absl::Status Open(std::optional<SharedMemory>* memory) {
    if (rank_ == 0) return absl::OkStatus();
    auto opened = SharedMemory::Open(where_.pid, static_cast<int>(where_.fd), SharedBytes(size_));
    if (!opened.ok()) return opened.status();
    if (std::memcmp(Mark(*opened), &where_.mark, sizeof where_.mark) != 0) {
      return absl::UnavailableError(absl::StrCat(
          "process ", where_.pid, " is not rank 0: the ranks do not share process ids"));
    }
    memory->emplace(*std::move(opened));
    return absl::OkStatus();
  }

  const MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  Where where_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ShareMemory(MPI_Comm comm) {
  return Start(comm).Run();
}

}  // namespace coppice::comm
