// The compute backend: every operation of the decoder, over f32 activations. One implementation per
// device (cpu/, cuda/), chosen by MakeBackend alone. Thread-compatible: one engine thread owns a
// backend; the CPU backend spreads each op over its own threads.
//
// Batch-invariant: the bits of an output row depend on that row's inputs alone, never on the other
// rows of the batch, on the number of threads, or on where in the KV pool its context lies (context
// is read in position order).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/forward_batch.h"
#include "base/host_threads.h"
#include "base/types.h"

namespace coppice {

enum class DType { kF32, kBF16, kF16 };
size_t DTypeSize(DType dtype);       // bytes
const char* DTypeName(DType dtype);  // "F32", "BF16", "F16": the spelling of safetensors

// A weight matrix in the backend's own layout, immutable. y = x W^T with W [rows, columns] (rows =
// outputs).
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t rows = 0;     // outputs
  int64_t columns = 0;  // inputs
  DType dtype = DType::kF32;
  size_t bytes = 0;  // memory it holds
};

// A view of a weight matrix in a checkpoint: element (r, c) at data[(r * row_stride + c) *
// DTypeSize(dtype)].
struct MatrixSource {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements
};

// KV pool of one rank: for each layer K and V, [block][kv_head][kBlockSize][head_dim], stored as
// f32 or bf16. Slot s is place s % kBlockSize of block s / kBlockSize. Block 0 is the sink: nobody
// reads it.
inline constexpr int kBlockSize = 16;
struct KvPoolShape {
  int layers = 0;
  int kv_heads = 0;  // of this rank
  int head_dim = 0;
  int64_t blocks = 0;
  DType dtype = DType::kF32;
};
class KvPool {
 public:
  virtual ~KvPool() = default;
  KvPoolShape shape;
  size_t bytes = 0;
};

// What each row of a forward pass may see, as flat arrays. Row r sees, in position order: the first
// prefix_len[r] tokens of block table row_table[r], then the tokens in the slots
// chain[chain_begin[r] .. chain_begin[r+1]). A row always sees itself: its own slot is the last of
// its context (the last chain entry, or, for a prefill row, place prefix_len[r] - 1 of its table).
// Context length = prefix_len + chain length = position + 1.
struct AttentionContext {
  absl::Span<const int32_t> row_table;    // [rows] index into table_begin
  absl::Span<const int32_t> prefix_len;   // [rows] tokens
  absl::Span<const int32_t> chain_begin;  // [rows + 1]
  absl::Span<const int32_t> chain;        // slots
  absl::Span<const int32_t> table_begin;  // [tables + 1]
  absl::Span<const int32_t> table;        // block ids
};

struct RopeTable;  // cos and sin per position, made by Backend::MakeRope

struct RopeConfig {
  int head_dim = 0;
  int max_positions = 0;
  double theta = 10000.0;
  // Llama-3 frequency scaling; factor 0 = none. Linear scaling: linear_factor != 1.
  double linear_factor = 1.0;
  double llama3_factor = 0.0;
  double llama3_low_freq_factor = 1.0;
  double llama3_high_freq_factor = 4.0;
  double llama3_original_max_positions = 8192;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;         // "cpu", "cuda"
  virtual std::string description() const = 0;  // e.g. "cpu AVX2, 2 threads"
  // For the work of the host between two passes; never null.
  virtual HostThreads* host_threads() = 0;

  // Packs (and converts) a weight; dtype kF32 or kBF16 is the stored precision. f16 sources become
  // either. ResourceExhausted when memory runs out.
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(const MatrixSource& source,
                                                             DType dtype) = 0;
  // Adopts several sources stacked along their rows as one matrix (QKV, gate and up).
  virtual absl::StatusOr<std::unique_ptr<PackedMatrix>> PackStacked(
      absl::Span<const MatrixSource> sources, DType dtype) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) = 0;
  virtual std::shared_ptr<const RopeTable> MakeRope(const RopeConfig& config) = 0;

  // y[rows, W.rows] = x[rows, W.columns] W^T (+ bias[W.rows] when not empty). With accumulate: y +=
  // instead of =.
  virtual void MatMul(const PackedMatrix& w, const float* x, int64_t rows, float* y,
                      absl::Span<const float> bias, bool accumulate) = 0;
  // Reads row tokens[i] - first_row of a packed embedding matrix (a tied head shares it); a token
  // outside [first_row, first_row + rows) gives zeros (vocabulary-parallel embedding). out[n,
  // columns].
  virtual void Embed(const PackedMatrix& w, int64_t first_row, absl::Span<const TokenId> tokens,
                     float* out) = 0;
  // out = x / sqrt(mean(x^2) + epsilon) * gain. x, out [rows, n]; may alias.
  virtual void RmsNorm(const float* x, absl::Span<const float> gain, float epsilon, int64_t rows,
                       int64_t n, float* out) = 0;
  // x += y, [count].
  virtual void Add(float* x, const float* y, int64_t count) = 0;
  // gate_up [rows, 2 n]: gate then up. out[rows, n] = silu(gate) * up.
  virtual void SwiGlu(const float* gate_up, int64_t rows, int64_t n, float* out) = 0;
  // Rotates the first q_heads + kv_heads heads of each row of qkv [rows, (q_heads + 2 kv_heads) *
  // head_dim] in place, half-split convention of Hugging Face Llama, and writes K and V of the row
  // to slots[r] of `layer`.
  virtual void RopeAndStoreKv(float* qkv, absl::Span<const int32_t> positions,
                              absl::Span<const int32_t> slots, int q_heads, const RopeTable& rope,
                              int layer, KvPool* pool) = 0;
  // Forest attention. qkv as after RopeAndStoreKv (the q part is read); out [rows, q_heads *
  // head_dim]. scale = 1/sqrt(head_dim) inside. q_heads is a multiple of pool kv_heads.
  virtual void Attention(const float* qkv, int q_heads, const AttentionContext& context, int layer,
                         const KvPool& pool, float* out) = 0;
  // Copies K and V of all layers, slot to slot. Sources and destinations are disjoint, destinations
  // unique.
  virtual void CopyKv(absl::Span<const KvCopy> copies, KvPool* pool) = 0;
};

// kind: "cpu" or "cuda". threads 0 = all cores this process may use. Unimplemented names a backend
// that this build does not have.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const std::string& kind, int threads);

}  // namespace coppice
