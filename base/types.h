// Vocabulary types that every folder shares.
#pragma once

#include <cstdint>

namespace coppice {

using TokenId = int32_t;  // index into the vocabulary, >= 0

}  // namespace coppice
