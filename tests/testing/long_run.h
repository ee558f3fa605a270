// The number of samples of a statistical test: the quick number, or ten times as many when ctest
// runs the test a second time under the label `long` (COPPICE_LONG is set). Used by tests/decoding.
#pragma once

#include <cstdlib>

namespace coppice::test {

inline bool IsLongRun() { return std::getenv("COPPICE_LONG") != nullptr; }
inline int Samples(int quick) { return IsLongRun() ? 10 * quick : quick; }

}  // namespace coppice::test
