#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace coppice {

void CheckFailed(const char* file, int line, std::string_view what) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace coppice
