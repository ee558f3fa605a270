// The default limits of a step: the defaults of the flags and options with these names.
#pragma once

namespace coppice {

inline constexpr int kDefaultMaxRows = 512;       // rows of one step
inline constexpr int kDefaultPrefillChunk = 256;  // prompt tokens among these rows
inline constexpr int kDefaultScratchBlocks = 4;   // KV blocks per sequence for unshared tokens

}  // namespace coppice
