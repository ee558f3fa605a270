#include "comm/mpi_world.h"

#include <mpi.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "comm/communicator_mpi.h"
#include "comm/shared_start.h"

namespace coppice::comm {
namespace {

constexpr char kSeparator[] = "\n";  // between endpoint, host and build

std::string HostName() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

// The waits of MPI spin. This one sleeps between tests, because peers may still be loading.
int WaitSleeping(MPI_Request* request) {
  auto pause = std::chrono::microseconds(50);
  for (int done = 0;;) {
    const int result = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS || done) return result;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
}

}  // namespace

bool MpiWorld::Launched() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

absl::StatusOr<std::unique_ptr<MpiWorld>> MpiWorld::Init() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized) return absl::FailedPreconditionError("MPI is initialized already");
  int provided = 0;
  const int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (result != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED) {
    return absl::InternalError(
        absl::StrCat("MPI_Init_thread: error ", result, ", thread level ", provided));
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return std::unique_ptr<MpiWorld>(new MpiWorld());
}

MpiWorld::~MpiWorld() { MPI_Finalize(); }

int MpiWorld::rank() const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int MpiWorld::size() const {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

absl::StatusOr<std::vector<MpiWorld::Peer>> MpiWorld::Exchange(Role role,
                                                               const std::string& endpoint,
                                                               const std::string& build) {
  const int ranks = size(), me = rank();
  const std::string text = absl::StrCat(endpoint, kSeparator, HostName(), kSeparator, build);
  const int mine[2] = {static_cast<int>(role), static_cast<int>(text.size())};
  std::vector<int> heads(2 * ranks);
  MPI_Request request;
  COPPICE_RETURN_IF_ERROR(MpiStatus(
      MPI_Iallgather(mine, 2, MPI_INT, heads.data(), 2, MPI_INT, MPI_COMM_WORLD, &request),
      "MPI_Iallgather", me, ranks));
  COPPICE_RETURN_IF_ERROR(MpiStatus(WaitSleeping(&request), "MPI_Test", me, ranks));

  std::vector<int> length(ranks), begin(ranks, 0);
  for (int r = 0; r < ranks; ++r) length[r] = heads[2 * r + 1];
  std::exclusive_scan(length.begin(), length.end(), begin.begin(), 0);
  std::string all(begin.back() + length.back(), '\0');
  COPPICE_RETURN_IF_ERROR(
      MpiStatus(MPI_Iallgatherv(text.data(), mine[1], MPI_CHAR, all.data(), length.data(),
                                begin.data(), MPI_CHAR, MPI_COMM_WORLD, &request),
                "MPI_Iallgatherv", me, ranks));
  COPPICE_RETURN_IF_ERROR(MpiStatus(WaitSleeping(&request), "MPI_Test", me, ranks));

  std::vector<Peer> peers;
  std::vector<std::string> builds;
  for (int r = 0; r < ranks; ++r) {
    const int code = heads[2 * r];
    if (code < 0 || code > static_cast<int>(Role::kDraft)) {
      return absl::InternalError(absl::StrCat("rank ", r, " of ", ranks, ": unknown role ", code));
    }
    std::vector<std::string> parts =
        absl::StrSplit(all.substr(begin[r], length[r]), absl::MaxSplits(kSeparator, 2));
    parts.resize(3);  // older versions say no build
    peers.push_back({static_cast<Role>(code), parts[0], r, parts[1]});
    builds.push_back(parts[2]);
  }
  COPPICE_RETURN_IF_ERROR(SameBuilds(peers, builds));
  return peers;
}

absl::Status MpiWorld::SameBuilds(absl::Span<const Peer> peers,
                                  absl::Span<const std::string> builds) {
  const auto of = [&](size_t r) {
    return absl::StrCat("rank ", r, " of ", peers.size(), " on ", peers[r].host, " runs ",
                        builds[r].empty() ? "an older version" : builds[r]);
  };
  for (size_t r = 1; r < peers.size(); ++r) {
    if (builds[r] == builds[0]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(of(r), ", ", of(0), ": every host needs the same version of Coppice"));
  }
  return absl::OkStatus();
}

int MpiWorld::PlaceOnHost(absl::Span<const Peer> peers, int rank) {
  const Peer& self = peers[rank];
  return static_cast<int>(std::count_if(peers.begin(), peers.end(), [&](const Peer& peer) {
    return peer.host == self.host && peer.role != Role::kCoordinator &&
           std::pair(peer.role, peer.rank) < std::pair(self.role, self.rank);
  }));
}

absl::StatusOr<std::unique_ptr<Communicator>> MpiWorld::Split(int color, Carrier carrier) {
  MPI_Comm comm = MPI_COMM_NULL;
  COPPICE_RETURN_IF_ERROR(
      MpiStatus(MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, rank(), &comm),
                "MPI_Comm_split", rank(), size()));
  if (comm == MPI_COMM_NULL) return std::unique_ptr<Communicator>();
  std::unique_ptr<Communicator> over_mpi = MakeMpiCommunicator(comm);
  if (over_mpi->size() == 1 || carrier == Carrier::kMpi) return over_mpi;
  absl::StatusOr<std::unique_ptr<Communicator>> shared = ShareMemory(comm);
  if (!shared.ok() && absl::IsUnavailable(shared.status()) && carrier == Carrier::kAuto) {
    if (over_mpi->rank() == 0)
      spdlog::info("the ranks meet through MPI: {}", shared.status().ToString());
    return over_mpi;
  }
  return shared;  // over_mpi ends with its MPI communicator, on all ranks
}

}  // namespace coppice::comm
