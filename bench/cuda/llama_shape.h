// The shape of Llama-3.1-8B in bf16, and the bytes that a step must read of it.
#pragma once

#include <cstdint>

namespace coppice::bench {

inline constexpr int kLayers = 32, kHidden = 4096, kIntermediate = 14336, kVocabulary = 128256;
inline constexpr int kQHeads = 32, kKvHeads = 8, kHeadDim = 128;
inline constexpr int kQkvColumns = (kQHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr int kValueBytes = 2;  // of bf16

// K and V of one token in one layer.
inline constexpr int64_t kKvTokenBytes = int64_t{2} * kKvHeads * kHeadDim * kValueBytes;

inline constexpr int64_t kLayerWeightBytes =
    (int64_t{kQkvColumns} * kHidden + int64_t{kHidden} * kQHeads * kHeadDim +
     int64_t{3} * kIntermediate * kHidden) *
    kValueBytes;
inline constexpr int64_t kHeadBytes = int64_t{kVocabulary} * kHidden * kValueBytes;

}  // namespace coppice::bench
