// The compute backend: the operations of the decoder over opaque tensors, in the memory of one
// device. One implementation per device (cpu/, cuda/), chosen by MakeBackend alone.
//
// The life of a step: Submit uploads the plan and enqueues the ops of a pass, Wait waits for them
// and for what the decisions need of the rows. An op is only enqueued: it takes no host data and
// waits for nothing; positions, slots and lists come from the plan. An op that fails makes the rest
// of the step do nothing, and Wait returns the error. Thread-compatible: one thread owns a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/listed_row.h"
#include "base/step_plan.h"
#include "base/thread_team.h"
#include "base/types.h"
#include "comm/communicator.h"

namespace coppice::kernels {

enum class DType { kF32, kBF16, kF16 };
size_t DTypeSize(DType dtype);       // bytes
const char* DTypeName(DType dtype);  // "F32", "BF16", "F16": the spelling of safetensors

// Activations in the memory of a backend, row-major. Opaque outside of the backend that made it.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;  // room for so many; an op works on the rows of the step
  int64_t columns = 0;

  bool empty() const { return data == nullptr; }
};

// A weight in the backend's own layout, immutable: a matrix [rows, columns] (rows = outputs) with
// the bias of its outputs, if any; or a gain, one row.
class Weight {
 public:
  virtual ~Weight() = default;
  int64_t rows = 0;
  int64_t columns = 0;
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

// cos and sin per position in the memory of a backend (kernels/rope_table.h). Immutable.
class RopeTable {
 public:
  virtual ~RopeTable() = default;
  int head_dim = 0;
  int max_positions = 0;
};

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

// The ops of one step, given to a pass. Rows are those of the plan; after GatherRows those that
// have needs. Every rank calls the same ops in the same order.
class Ops {
 public:
  virtual ~Ops() = default;
  // What a pass may leave out: a plan may have commits alone, and rows without needs.
  virtual bool has_rows() const = 0;
  virtual bool has_needs() const = 0;
  // The plan's commits: K and V of all layers, slot to slot.
  virtual void CommitKv(KvPool* pool) = 0;
  // x[r] = row token[r] - first_row of the matrix (a tied head shares it); zeros when the matrix
  // does not hold it (vocabulary-parallel embedding). x [rows, w.columns].
  virtual void Embed(const Weight& w, int64_t first_row, Tensor x) = 0;
  // x += addend, unless that is empty; out = x / sqrt(mean(x^2) + epsilon) * gain. All [rows, n].
  virtual void AddNorm(Tensor x, Tensor addend, const Weight& gain, float epsilon, Tensor out) = 0;
  // y[rows, w.rows] = x[rows, w.columns] w^T (+ bias). With accumulate: y += instead of =.
  virtual void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) = 0;
  // qkv [rows, (q_heads + 2 kv_heads) * head_dim]: rotates the q and k heads of each row in place,
  // half-split convention of Hugging Face Llama, and writes K and V of the row to its slot.
  virtual void RopeAndStoreKv(int layer, const RopeTable& rope, Tensor qkv, KvPool* pool) = 0;
  // Forest attention: each row over what the plan lets it see. qkv as after RopeAndStoreKv; out
  // [rows, q_heads * head_dim]. scale = 1/sqrt(head_dim) inside.
  virtual void Attention(int layer, Tensor qkv, const KvPool& pool, Tensor out) = 0;
  // gate_up [rows, 2 n]: gate then up. out[rows, n] = silu(gate) * up.
  virtual void SwiGlu(Tensor gate_up, Tensor out) = 0;
  // Keeps the rows that have needs, in place, in order. The ops after it work on these rows.
  virtual void GatherRows(absl::Span<const Tensor> tensors) = 0;
  // x[rows, n] = sum over the ranks, in rank order.
  virtual void AllReduce(Tensor x) = 0;
  // The last op: what the plan needs of the logits. logits [needs, shard]: this rank's tokens, from
  // first_token on, of a vocabulary of `vocab`; the shards are those of VocabularyShard.
  virtual void Select(Tensor logits, int64_t first_token, int64_t vocab) = 0;
};

// What enqueues the ops of a step. Two parts, so that the host learns when nothing but the head is
// left to compute.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual void Body(Ops* ops) = 0;  // all layers, GatherRows included; called once for each step
  virtual void Head(Ops* ops) = 0;  // only when the plan has needs
};

// What a step gives to the decisions: for each need of the plan the whole row, or the shortlist
// that was asked for. A backend may serve a shortlist by the whole row, where that costs nothing.
class StepRows {
 public:
  virtual ~StepRows() = default;
  // [vocab] f32; empty when the row came as a shortlist. Any thread.
  virtual absl::Span<const float> Whole(int need) const = 0;
  // nullptr when the row came whole. Any thread.
  virtual const ListedRow* Listed(int need) const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;         // "cpu", "cuda"
  virtual std::string description() const = 0;  // e.g. "cpu AVX2, 2 threads"
  // Whether the bits of a row depend on that row's inputs alone: never on the other rows of the
  // step, on the number of threads, or on where in the KV pool its context lies.
  virtual bool batch_invariant() const = 0;

  // Packs (and converts) matrices stacked along their rows as one (QKV, gate and up). dtype kF32 or
  // kBF16 is the stored precision; f16 sources become either. bias [rows] or empty.
  // ResourceExhausted when memory runs out; InvalidArgument names what does not fit together.
  virtual absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked,
                                                       DType dtype, std::vector<float> bias) = 0;
  virtual absl::StatusOr<std::unique_ptr<Weight>> PackGain(std::vector<float> gain) = 0;
  virtual absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) = 0;
  virtual absl::StatusOr<std::shared_ptr<const RopeTable>> MakeRope(const RopeConfig& config) = 0;
  // Lives as long as the backend. Uninitialised, so that rows never used cost no memory.
  virtual absl::StatusOr<Tensor> Allocate(int64_t rows, int64_t columns, DType dtype) = 0;
  virtual DType activation_dtype() const = 0;  // of the tensors between ops; the residual is f32

  // Starts a step. The plan has passed CheckPlan (model/plan_check.h); plan, pass and what the pass
  // refers to must live until Wait. A plan with `fetch` runs no pass: the named rows of the step
  // before become whole. Errors: this rank cannot start it.
  virtual absl::Status Submit(const StepPlan& plan, Pass* pass) = 0;
  // Nothing but the head is left to compute. False: ask again.
  virtual bool HeadReached() = 0;
  // Until the step has run. On rank 0 the rows, valid until the next Submit (a plan with `fetch`
  // keeps those of the step before); on other ranks nullptr.
  virtual absl::StatusOr<const StepRows*> Wait() = 0;
};

struct BackendOptions {
  std::string kind = "cpu";                    // "cpu" or "cuda"
  ThreadTeam* threads = nullptr;               // of the host; the CPU backend computes on them
  comm::Communicator* communicator = nullptr;  // of this rank's replica
  // Serve shortlists even where whole rows cost nothing (tests).
  bool always_list = false;
};
// Threads and communicator must outlive the backend. Unimplemented names a backend that this build
// does not have.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace coppice::kernels
