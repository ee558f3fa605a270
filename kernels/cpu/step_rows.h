// What the decisions need of a step's logits, on the CPU. With one rank the logits themselves are
// the answer. With several, each rank sends one piece for all needs: its shard of a row, or its
// record of a shortlist (kernels/shortlist.h); rank 0 puts rows and shortlists together. Used by
// CpuBackend. Thread-compatible; the const calls may come from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/listed_row.h"
#include "base/step_plan.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/shortlist.h"

namespace coppice::cpu {

class CpuStepRows final : public StepRows {
 public:
  // *team and *communicator must outlive the rows. always_list: BackendOptions.
  CpuStepRows(ThreadTeam* team, Communicator* communicator, bool always_list);

  // Forgets the step before.
  void Clear();
  // logits [needs, this rank's tokens from first_token on], which must stay until Clear. Collective
  // unless one rank serves the logits as they are.
  absl::Status Select(const StepPlan& plan, const float* logits, int64_t first_token,
                      int64_t vocab);
  // The rows of these needs become whole. Collective. InvalidArgument names a need that the step
  // before did not have.
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const;
  absl::Status Fetch(absl::Span<const int32_t> needs);

  absl::Span<const float> Whole(int need) const override;
  const ListedRow* Listed(int need) const override;

 private:
  // One need in the pieces: `words` words from `offset` on.
  struct Part {
    int need = 0;
    bool whole = false;
    size_t offset = 0;
    size_t words = 0;
  };
  // Memory that grows and keeps nothing when it does.
  struct Words {
    float* AtLeast(size_t count);
    std::unique_ptr<float[]> data;
    size_t size = 0;
  };

  const float* shard_row(int need) const { return logits_ + need * shard_.size(); }
  // Appends the part of a need; returns the words of all.
  static size_t AddPart(int need, bool whole, size_t words, std::vector<Part>* parts);
  // Every rank's piece to rank 0: all_, [ranks][words].
  absl::Status Exchange(const StepPlan* plan, absl::Span<const Part> parts, size_t words);
  void WritePart(const StepPlan* plan, const Part& part, float* piece) const;
  void JoinPart(const StepPlan* plan, const Part& part, size_t words);
  float* NewRow();

  ThreadTeam* const team_;
  Communicator* const communicator_;
  const bool always_list_;

  // Of the last step: this rank's logits, and on every rank what came whole.
  const float* logits_ = nullptr;
  TokenRange shard_;
  int64_t vocab_ = 0;
  std::vector<uint8_t> is_whole_;  // [needs]
  // On rank 0.
  std::vector<const float*> whole_;  // [needs], null where listed
  std::vector<ListedRow> listed_;    // [needs]
  // Rows of vocab_ floats, made when first needed, so that rows never used cost no memory.
  std::vector<std::unique_ptr<float[]>> rows_;
  size_t rows_used_ = 0;
  Words mine_, all_;
};

}  // namespace coppice::cpu
