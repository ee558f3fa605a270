// Runs under mpirun with 1 to 4 ranks (tests/comm/CMakeLists.txt). Every rank checks. A failure on
// any rank ends the job with a non-zero status. Every check runs over shared memory and over MPI.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/mpi_world.h"

namespace coppice::comm {
namespace {

// The pointers may be null when count is 0.
bool SameBits(const float* a, const float* b, size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(float)) == 0;
}

// The values of one rank, which every rank can compute. Their sizes differ so much that the order
// of the summands changes the sum.
std::vector<float> Values(int rank, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + rank);
  std::vector<float> values(count);
  for (float& value : values) {
    const int exponent = static_cast<int>(random() % 40) - 20;
    value = std::ldexp(static_cast<float>(random() % 20001) / 10000.0f - 1.0f, exponent);
  }
  return values;
}

void CheckSums(Communicator& communicator) {
  const int size = communicator.size();
  bool order_shows = false;
  uint64_t seed = 0;
  for (size_t count : {0, 1, 3, 17, 1000, 1024, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 5, 300001}) {
    std::vector<float> data = Values(communicator.rank(), count, ++seed);
    COPPICE_CHECK(communicator.AllReduceSum(absl::MakeSpan(data)).ok());
    std::vector<float> forward = Values(0, count, seed), backward = Values(size - 1, count, seed);
    for (int r = 1; r < size; ++r) {
      const std::vector<float> up = Values(r, count, seed),
                               down = Values(size - 1 - r, count, seed);
      for (size_t i = 0; i < count; ++i) {
        forward[i] += up[i];
        backward[i] += down[i];
      }
    }
    COPPICE_CHECK_MSG(SameBits(data.data(), forward.data(), count),
                      absl::StrCat("sum of ", count, " values is not in rank order"));
    order_shows |= !SameBits(backward.data(), forward.data(), count);
  }
  COPPICE_CHECK(size <= 2 || order_shows);  // otherwise the check above could not fail
}

// A vector that is split over several calls gives the same bits.
void CheckSizesDoNotMatter(Communicator& communicator) {
  const size_t count = 50000;
  std::vector<float> whole = Values(communicator.rank(), count, 77), pieces = whole;
  COPPICE_CHECK(communicator.AllReduceSum(absl::MakeSpan(whole)).ok());
  for (size_t begin = 0; begin < count; begin += 777) {
    COPPICE_CHECK(communicator.AllReduceSum(absl::MakeSpan(pieces).subspan(begin, 777)).ok());
  }
  COPPICE_CHECK(SameBits(whole.data(), pieces.data(), count));
}

void CheckGatherAndBroadcast(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  const std::vector<float> mine = {rank + 0.5f, rank + 0.25f};
  std::vector<float> all(rank == 0 ? 2 * size : 0);
  COPPICE_CHECK(communicator.Gather(mine, absl::MakeSpan(all)).ok());
  for (size_t i = 0; i < all.size(); ++i)
    COPPICE_CHECK(all[i] == i / 2 + (i % 2 == 0 ? 0.5f : 0.25f));
  std::vector<float> wrong(1);
  COPPICE_CHECK(communicator.Gather(mine, absl::MakeSpan(wrong)).code() ==
                absl::StatusCode::kInvalidArgument);

  for (size_t bytes : {0, 1, 100000}) {
    std::string data = rank == 0 ? std::string(bytes, 'b') : "something else";
    COPPICE_CHECK(communicator.Broadcast(&data).ok());
    COPPICE_CHECK(data == std::string(bytes, 'b'));
  }
  COPPICE_CHECK(communicator.Barrier().ok());
}

// Coordinator, worker, draft node, worker on a host; a worker on another.
void CheckPlaces() {
  const std::vector<MpiWorld::Peer> peers = {{Role::kCoordinator, "", 0, "a"},
                                             {Role::kWorker, "", 1, "a"},
                                             {Role::kDraft, "", 2, "a"},
                                             {Role::kWorker, "", 3, "a"},
                                             {Role::kWorker, "", 4, "b"}};
  const std::vector<int> places = {0, 0, 2, 1, 0};
  for (int rank = 0; rank < 5; ++rank)
    COPPICE_CHECK(MpiWorld::PlaceOnHost(peers, rank) == places[rank]);
}

void CheckExchange(MpiWorld& world) {
  const int rank = world.rank();
  const auto role = [](int r) { return static_cast<Role>(r % 3); };
  const auto endpoint = [](int r) {
    return r == 1 ? "" : absl::StrCat("tcp://127.0.0.1:", 7000 + r);
  };
  auto peers = world.Exchange(role(rank), endpoint(rank));
  COPPICE_CHECK_MSG(peers.ok(), peers.status().ToString());
  COPPICE_CHECK(static_cast<int>(peers->size()) == world.size());
  for (int r = 0; r < world.size(); ++r) {
    COPPICE_CHECK((*peers)[r].rank == r && (*peers)[r].role == role(r) &&
                  (*peers)[r].endpoint == endpoint(r));
    COPPICE_CHECK(!(*peers)[r].host.empty() && (*peers)[r].host == (*peers)[0].host);
  }
  CheckPlaces();
}

// Two versions of a program in one mpirun: every rank learns which rank differs.
void CheckBuilds(MpiWorld& world) {
  const int odd = world.size() - 1;
  const auto peers =
      world.Exchange(Role::kWorker, "", world.rank() == odd ? "coppice 9.9" : "coppice 1.0");
  COPPICE_CHECK(peers.ok() == (odd == 0));
  if (odd == 0) return;
  const std::string message(peers.status().message());
  COPPICE_CHECK_MSG(
      message.find(absl::StrCat("rank ", odd, " of ", world.size(), " on ")) == 0 &&
          message.find("runs coppice 9.9, rank 0 of ") != std::string::npos &&
          message.find("every host needs the same version of Coppice") != std::string::npos,
      message);
  COPPICE_CHECK(world.Exchange(Role::kWorker, "").ok());  // the same build again
}

void CheckSplit(MpiWorld& world, Carrier carrier) {
  const int rank = world.rank();
  auto half = world.Split(rank % 2, carrier);
  COPPICE_CHECK_MSG(half.ok(), half.status().ToString());
  COPPICE_CHECK((*half)->rank() == rank / 2);
  COPPICE_CHECK((*half)->size() == (world.size() + 1 - rank % 2) / 2);
  CheckSums(**half);
  auto rest = world.Split(rank == 0 ? -1 : 3, carrier);
  COPPICE_CHECK(rest.ok());
  COPPICE_CHECK((*rest == nullptr) == (rank == 0));
  if (*rest != nullptr) COPPICE_CHECK((*rest)->size() == world.size() - 1);
}

// A rank counts process ids apart, as in a container of its own, so it cannot open the memory of rank 0.
// Every rank learns it, and MPI serves.
void CheckApart(MpiWorld& world) {
  const auto shared = world.Split(0, Carrier::kShared);
  COPPICE_CHECK(shared.status().code() == absl::StatusCode::kUnavailable);
  const std::string message(shared.status().message());
  COPPICE_CHECK_MSG(message.rfind("rank 1 of 2: ", 0) == 0, message);
  auto all = world.Split(0, Carrier::kAuto);
  COPPICE_CHECK_MSG(all.ok(), all.status().ToString());
  CheckSums(**all);
}

// Rank 1 gathers more than its connection holds while rank 0 does not read, and then only waits for
// rank 0. Without Progress rank 0 would wait forever for what has not left rank 1.
void CheckProgress(MpiWorld& world) {
  constexpr size_t kFloats = 15000;  // below the size from which a send waits for its receiver
  constexpr int kGathers = 700;      // 42 MB
  auto split = world.Split(0, Carrier::kMpi);
  COPPICE_CHECK_MSG(split.ok(), split.status().ToString());
  Communicator& all = **split;
  const bool reads = all.rank() == 0;
  std::string done =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/coppice-progress-", getpid());
  COPPICE_CHECK(all.Broadcast(&done).ok());
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  for (int i = 0; reads && i < 300; ++i) pause();
  const std::vector<float> mine(kFloats, 1.0f);
  std::vector<float> whole(reads ? kFloats * all.size() : 0);
  for (int i = 0; i < kGathers; ++i) COPPICE_CHECK(all.Gather(mine, absl::MakeSpan(whole)).ok());
  if (reads) {
    COPPICE_CHECK(std::ofstream(done) << "done");
  } else {
    for (; !std::filesystem::exists(done); pause()) all.Progress();
  }
  COPPICE_CHECK(all.Barrier().ok());
  if (reads) std::filesystem::remove(done);
}

// No mapping of shared memory outlives its communicator.
void CheckNothingIsLeft() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    COPPICE_CHECK_MSG(line.find("memfd:coppice") == std::string::npos, line);
}

}  // namespace
}  // namespace coppice::comm

int main(int argc, char** argv) {
  using namespace coppice::comm;
  COPPICE_CHECK(MpiWorld::Launched());
  auto world = MpiWorld::Init();
  COPPICE_CHECK_MSG(world.ok(), world.status().ToString());
  if (argc > 2) COPPICE_CHECK((*world)->size() == std::stoi(argv[2]));
  if (argc > 3 && std::string(argv[3]) == "--apart") {
    CheckApart(**world);
    CheckNothingIsLeft();
    if ((*world)->rank() == 0) std::puts("passed");
    return 0;
  }
  if (argc > 3 && std::string(argv[3]) == "--progress") {
    CheckProgress(**world);
    if ((*world)->rank() == 0) std::puts("passed");
    return 0;
  }
  CheckExchange(**world);
  CheckBuilds(**world);
  for (const Carrier carrier : {Carrier::kShared, Carrier::kMpi, Carrier::kAuto}) {
    auto all = (*world)->Split(0, carrier);
    COPPICE_CHECK_MSG(all.ok(), all.status().ToString());
    COPPICE_CHECK((*all)->rank() == (*world)->rank());
    COPPICE_CHECK((*all)->size() == (*world)->size());
    CheckSums(**all);
    CheckSizesDoNotMatter(**all);
    CheckGatherAndBroadcast(**all);
    CheckSplit(**world, carrier);
  }
  CheckNothingIsLeft();
  if ((*world)->rank() == 0) std::puts("passed");
  return 0;
}
