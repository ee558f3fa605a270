// One all-reduce between the ranks of one host, over shared memory and over MPI in turns. Prints a
// line of JSON for each size: the medians of the trials in microseconds, and the median of their
// ratios.
//   mpirun -np 2 bin/bench_collectives [TRIALS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/mpi_world.h"

namespace coppice::bench {
namespace {

constexpr int kSums = 200;  // sums per trial

double MicrosecondsASum(comm::Communicator& communicator, std::vector<float>* data) {
  COPPICE_CHECK(communicator.Barrier().ok());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSums; ++i)
    COPPICE_CHECK(communicator.AllReduceSum(absl::MakeSpan(*data)).ok());
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kSums;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Run(comm::MpiWorld& world, int trials) {
  auto shared = world.Split(0, comm::Carrier::kShared), mpi = world.Split(0, comm::Carrier::kMpi);
  COPPICE_CHECK_MSG(shared.ok(), shared.status().ToString());
  COPPICE_CHECK_MSG(mpi.ok(), mpi.status().ToString());
  for (const size_t rows : {1, 4, 16, 64, 512}) {
    std::vector<float> data(rows * 576, 0.0f);
    std::vector<double> by_memory, by_mpi, ratio;
    for (int trial = 0; trial < trials; ++trial) {
      by_memory.push_back(MicrosecondsASum(**shared, &data));
      by_mpi.push_back(MicrosecondsASum(**mpi, &data));
      ratio.push_back(by_mpi.back() / by_memory.back());
    }
    if (world.rank() > 0) continue;
    std::printf(
        "{\"ranks\": %d, \"rows\": %zu, \"columns\": 576, \"shared_memory_us\": %.2f, "
        "\"mpi_us\": %.2f, \"mpi_to_shared_memory\": %.2f}\n",
        world.size(), rows, Median(by_memory), Median(by_mpi), Median(ratio));
  }
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) {
  COPPICE_CHECK(coppice::comm::MpiWorld::Launched());
  auto world = coppice::comm::MpiWorld::Init();
  COPPICE_CHECK_MSG(world.ok(), world.status().ToString());
  coppice::bench::Run(**world, argc > 1 ? std::stoi(argv[1]) : 21);
  return 0;
}
