// Integers of a range, digit by digit. Pure.
#pragma once

#include <cstdint>

#include "grammar/expression.h"

namespace coppice::grammar {

// Decimal texts of the integers from least to most, without + and leading zeros; -0 is excluded. No
// text if least > most. Both within +-kLargestInteger.
Part IntegerRange(int64_t least, int64_t most);
inline constexpr int64_t kLargestInteger = 1'000'000'000'000'000'001;

}  // namespace coppice::grammar
