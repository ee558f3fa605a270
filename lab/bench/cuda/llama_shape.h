// The shapes of Llama-3.1-8B and of drafts for it, in bf16, the bytes that a step must read of
// them, and the sizes of what is measured. With COPPICE_BENCH_TINY shapes that the simulated device
// can run: for a test of the program, whose times say nothing.
#pragma once

#include <cstdint>

namespace coppice::bench {

#ifdef COPPICE_BENCH_TINY
inline constexpr int kLayers = 2, kHidden = 128, kIntermediate = 256, kVocabulary = 512;
inline constexpr int kQHeads = 8, kKvHeads = 2, kHeadDim = 64;
inline constexpr int kContexts[] = {64, 200}, kRuns = 2, kTunedRows = 40;
inline constexpr int kManyRequests = 2, kMostRequests = 3;
inline constexpr int64_t kCopyBytes = 1 << 16, kProductSide = 64, kCoverBytes = 1 << 16;
#else
inline constexpr int kLayers = 32, kHidden = 4096, kIntermediate = 14336, kVocabulary = 128256;
inline constexpr int kQHeads = 32, kKvHeads = 8, kHeadDim = 128;
inline constexpr int kContexts[] = {1024, 8192}, kRuns = 25, kTunedRows = 512;
inline constexpr int kManyRequests = 8, kMostRequests = 64;
inline constexpr int64_t kCopyBytes = int64_t{2} << 30, kProductSide = 8192;
inline constexpr int64_t kCoverBytes = 256 << 20;  // several times the L2 cache of any device
#endif

inline constexpr int kQkvColumns = (kQHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr int kValueBytes = 2;  // bytes of a bf16

// K and V of one token in one layer.
inline constexpr int64_t kKvTokenBytes = int64_t{2} * kKvHeads * kHeadDim * kValueBytes;

struct ModelShape {
  const char* name;
  int layers, hidden, intermediate, vocabulary, q_heads, kv_heads, head_dim;
  bool tied;     // the head is the embedding
  int kept = 0;  // rows of a head that has only these ids (ModelConfig::draft_vocab_size); 0: all
  bool takes_states = false;  // rows begin with a state of the target (EAGLE-3); then one layer

  constexpr int head_rows() const { return kept > 0 ? kept : vocabulary; }
  constexpr int qkv_columns() const { return (q_heads + 2 * kv_heads) * head_dim; }
  constexpr int qkv_inputs() const { return takes_states ? 2 * hidden : hidden; }
  // What a step of few rows reads: every matrix but the embedding.
  constexpr int64_t weight_bytes() const {
    const int64_t layer = int64_t{qkv_columns()} * qkv_inputs() +
                          int64_t{hidden} * q_heads * head_dim + int64_t{3} * intermediate * hidden;
    return (layers * layer + int64_t{head_rows()} * hidden) * kValueBytes;
  }
  // K and V of one token.
  constexpr int64_t kv_token_bytes() const {
    return int64_t{2} * layers * kv_heads * head_dim * kValueBytes;
  }
};
inline constexpr ModelShape kTarget = {"8B",    kLayers,  kHidden,  kIntermediate, kVocabulary,
                                       kQHeads, kKvHeads, kHeadDim, false};

// Models that draft. The first two have the vocabulary of the target.
#ifdef COPPICE_BENCH_TINY
inline constexpr ModelShape kDrafts[] = {
    {"1B", 2, 128, 256, kVocabulary, 8, 2, 64, true},
    {"68M with 128k tokens", 1, 64, 128, kVocabulary, 2, 2, 64},
    {"68M", 1, 64, 128, kVocabulary, 2, 2, 64}};
#else
inline constexpr ModelShape kDrafts[] = {
    {"1B", 16, 2048, 8192, kVocabulary, 32, 8, 64, true},
    {"68M with 128k tokens", 2, 768, 3072, kVocabulary, 12, 12, 64},
    {"68M", 2, 768, 3072, 32000, 12, 12, 64}};
#endif
inline constexpr int kDraftsOfTarget = 2;

// Layers of the target whose outputs a head on states takes: those of EAGLE-3 by default, as far as
// the target has them.
#ifdef COPPICE_BENCH_TINY
inline constexpr int kStateLayers[] = {0};
#else
inline constexpr int kStateLayers[] = {1, kLayers / 2 - 1, kLayers - 4};
#endif

}  // namespace coppice::bench
