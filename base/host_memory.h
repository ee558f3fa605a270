// How much memory this process may still take on its host.
#pragma once

#include <cstdint>
#include <string>

namespace coppice {

// Bytes. 0: not known.
struct HostMemory {
  int64_t free = 0;   // available without swapping
  int64_t total = 0;  // memory of the machine, or of the container
};

// Reads /proc/meminfo and, where there is one, the memory limit of this process's control group and
// of those above it (version 2); the smallest counts. `root` is "/", except in tests.
HostMemory ReadHostMemory(const std::string& root = "/");

}  // namespace coppice
