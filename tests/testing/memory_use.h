// How much memory the test's process holds.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

namespace coppice::test {

// Resident bytes, after free ones are given back. With a sanitizer, which keeps freed memory to find
// late uses of it: the bytes that are allocated.
inline size_t MemoryInUse() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
  malloc_trim(0);
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace coppice::test
