// How large a step may be where nobody says otherwise. Defaults of the flags and options of these
// names.
#pragma once

namespace coppice {

inline constexpr int kDefaultMaxRows = 512;       // rows of one forward pass
inline constexpr int kDefaultPrefillChunk = 256;  // of them prompt tokens
inline constexpr int kDefaultScratchBlocks = 4;   // of each sequence: KV blocks for unshared tokens

}  // namespace coppice
