// Communicator over memory that ranks of one host share. Sums are formed in rank order on every
// rank: the bits are those of the communicator over MPI. A collective
// fails if one of its ranks has ended or calls another collective. All later ones fail too.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "comm/communicator.h"
#include "comm/shared_memory.h"

namespace coppice::comm {

// How much memory `size` ranks share.
size_t SharedBytes(int size);

// How long to wait after a rank has ended, so that the rank that failed can report the cause, or
// the launcher end the replica.
constexpr std::chrono::milliseconds kPatience{1000};

// For rank `rank` of `size`. All ranks map the same memory, of SharedBytes(size), zero at first.
std::unique_ptr<Communicator> MakeSharedCommunicator(
    SharedMemory memory, int rank, int size, std::chrono::milliseconds patience = kPatience);

}  // namespace coppice::comm
