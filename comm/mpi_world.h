// MPI as a launcher: start-up, exchange of endpoints, and one communicator per replica. MPI starts
// ranks and carries one replica's collectives; it never decides who is alive
// (docs/architecture.md 1).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/build_name.h"
#include "comm/communicator.h"

namespace coppice::comm {

enum class Role { kCoordinator, kWorker, kDraft };

// What carries the collectives of a communicator.
enum class Carrier {
  kAuto,    // shared memory where all ranks are on one host and can open it, else MPI
  kShared,  // shared memory, or an error
  kMpi,
};

class MpiWorld {
 public:
  // True when this process was started by mpirun (or another PMIx launcher).
  static bool Launched();
  // MPI_Init_thread(FUNNELED). Only the calling thread may use MPI afterwards.
  static absl::StatusOr<std::unique_ptr<MpiWorld>> Init();
  ~MpiWorld();  // MPI_Finalize

  int rank() const;
  int size() const;

  struct Peer {
    Role role;
    std::string endpoint;  // "" when it offers none
    int rank;
    std::string host;  // name of the host
  };
  // Collective over all ranks. Returns role and place of every rank, in rank order.
  // FailedPrecondition, on every rank: ranks differ in `build`; names the first that differs from
  // rank 0.
  absl::StatusOr<std::vector<Peer>> Exchange(Role role, const std::string& endpoint,
                                             const std::string& build = BuildName());
  // An error names the first rank whose build differs from rank 0's. "": a build of an older
  // version. Pure.
  static absl::Status SameBuilds(absl::Span<const Peer> peers,
                                 absl::Span<const std::string> builds);
  // How many ranks with a model come before this one on its host, workers first. If each rank takes
  // the device of this number, no two share a device while there are enough. Pure.
  static int PlaceOnHost(absl::Span<const Peer> peers, int rank);
  // Collective over all ranks. Ranks with equal `color` form one communicator, in rank order. color
  // < 0: nullptr. All ranks of one communicator name the same carrier.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, Carrier carrier = Carrier::kAuto);

 private:
  MpiWorld() = default;
};

}  // namespace coppice::comm
