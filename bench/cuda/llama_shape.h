// The shape of Llama-3.1-8B in bf16, the bytes that a step must read of it, and the sizes of what is
// measured. With COPPICE_BENCH_TINY a shape that the simulated device can run: for a test of the
// program, whose times say nothing.
#pragma once

#include <cstdint>

namespace coppice::bench {

#ifdef COPPICE_BENCH_TINY
inline constexpr int kLayers = 2, kHidden = 128, kIntermediate = 256, kVocabulary = 512;
inline constexpr int kQHeads = 8, kKvHeads = 2, kHeadDim = 64;
inline constexpr int kContexts[] = {64, 200}, kRuns = 2, kTunedRows = 40;
inline constexpr int64_t kCopyBytes = 1 << 16, kProductSide = 64, kCoverBytes = 1 << 16;
#else
inline constexpr int kLayers = 32, kHidden = 4096, kIntermediate = 14336, kVocabulary = 128256;
inline constexpr int kQHeads = 32, kKvHeads = 8, kHeadDim = 128;
inline constexpr int kContexts[] = {1024, 8192}, kRuns = 25, kTunedRows = 512;
inline constexpr int64_t kCopyBytes = int64_t{2} << 30, kProductSide = 8192;
inline constexpr int64_t kCoverBytes = 256 << 20;  // several times the L2 cache of any device
#endif

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
