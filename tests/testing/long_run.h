// The number of samples of a statistical test. ctest runs such a test a second time under the label
// `long`, with COPPICE_LONG set; then it takes ten times as many samples. Used by tests/decoding.
#pragma once

#include <cstdlib>

namespace coppice::test {

inline bool IsLongRun() { return std::getenv("COPPICE_LONG") != nullptr; }
inline int Samples(int quick) { return IsLongRun() ? 10 * quick : quick; }

}  // namespace coppice::test
