// The ops of a step on the CPU. Each op runs immediately, spread over a team of threads. Begin()
// turns the plan into the arrays that the kernels read. After an error of a collective the later
// ops do nothing. Owned by CpuBackend. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/experts.h"
#include "kernels/cpu/gain.h"
#include "kernels/cpu/matmul.h"
#include "kernels/host_step_rows.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cpu {

class CpuOps final : public Ops {
 public:
  // All must outlive the ops.
  CpuOps(ThreadTeam* team, comm::Communicator* communicator, HostStepRows* step_rows);

  // plan must live until the last op of the step.
  void Begin(const StepPlan& plan);
  const absl::Status& status() const { return status_; }
  // Computes what an op has left to a later one. Call it before anything else reads tensors.
  void Settle();

  bool has_rows() const override { return plan_->rows() > 0; }
  bool has_needs() const override { return !plan_->needs.empty(); }
  void CommitKv(KvPool* pool) override;
  void Embed(const Weight& w, int64_t first_row, float scale, Tensor x) override;
  void AddPositions(const Weight& w, int offset, Tensor x) override;
  void AddNorm(Tensor x, const Addend& addend, const Norm& norm, Tensor out) override;
  void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) override;
  void RopeAndStoreKv(int layer, const HeadSteps& steps, Tensor qkv, KvPool* pool) override;
  void Attention(int layer, const AttentionRule& rule, Tensor qkv, const KvPool& pool,
                 Tensor out) override;
  void Activate(Activation f, Tensor in, Tensor out) override;
  void MixExperts(const Experts& experts, Tensor x, Tensor out) override;
  void SoftCap(Tensor x, float cap) override;
  void StoreStates(Tensor x, KvPool* pool) override;
  void LoadStates(const KvPool& pool, Tensor x) override;
  void PutStates(Tensor x) override;
  void NormPair(Tensor a, const Norm& of_a, Tensor b, const Norm& of_b, Tensor out) override;
  void GatherRows(absl::Span<const Tensor> tensors) override;
  void AllReduce(Tensor x) override;
  void Scatter(const Weight& w, Tensor kept, Tensor wide) override;
  void Select(Tensor logits, int64_t first_token, int64_t vocab) override;

 private:
  // A norm of a few rows, which the product that reads it computes: each thread for its own use.
  struct WaitingNorm {
    const float* x = nullptr;  // nullptr: none waits
    NormArgs norm;
    int64_t columns = 0;
    float* out = nullptr;
  };

  // The values of a tensor. Checks that it has `columns` columns and room for the step's rows.
  float* Rows(const Tensor& tensor, int64_t columns);

  ThreadTeam* const team_;
  comm::Communicator* const communicator_;
  HostStepRows* const step_rows_;
  const StepPlan* plan_ = nullptr;
  int64_t rows_ = 0;       // number of rows that the next op works on
  bool gathered_ = false;  // these are the rows that have needs
  absl::Status status_;
  std::vector<int32_t> row_table_, prefix_len_, order_, common_;  // of AttentionContext
  std::vector<TokenId> places_;                                   // of AddPositions
  std::vector<float> positions_;                                  // [rows, columns]
  WaitingNorm norm_;
  MatMulScratch matmul_scratch_;
  ExpertScratch expert_scratch_;
};

}  // namespace coppice::kernels::cpu
