// COPPICE_CHECK, for conditions that only a bug can violate. Prints file, line and message, then
// aborts. Never use it to check input.
#pragma once

#include <string_view>

#include "absl/strings/str_cat.h"

namespace coppice {

[[noreturn]] void CheckFailed(const char* file, int line, std::string_view what);

}  // namespace coppice

#define COPPICE_CHECK(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::coppice::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// COPPICE_CHECK_MSG(a == b, absl::StrCat("a=", a));
#define COPPICE_CHECK_MSG(condition, message)                                              \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ::coppice::CheckFailed(__FILE__, __LINE__, absl::StrCat(#condition, ": ", message)); \
    }                                                                                      \
  } while (false)
