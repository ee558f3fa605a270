// What the decisions need of a step's logits, once each rank has its part in host memory. With one
// rank, the logits themselves. With several, each rank sends one piece for all needs: its shard of
// each whole row and its record of each candidate list (sampling/candidate_list.h); rank 0 joins
// them. Owned by a backend. Thread-compatible; the const calls may come from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "plan/candidate_row.h"
#include "plan/step_plan.h"
#include "sampling/candidate_list.h"

namespace coppice::kernels {

// This rank's part of the rows of a step. Any thread may call.
class RowParts {
 public:
  virtual ~RowParts() = default;
  // The logits of a row that is sent whole: [this rank's tokens].
  virtual const float* Row(int need) const = 0;
  // Writes the record of a candidate list: RecordWords(need) words.
  virtual void WriteRecord(int need, float* record) const = 0;
  // Simple operations that a part takes.
  virtual int64_t work() const = 0;
};

class HostStepRows final : public StepRows {
 public:
  // *team and *communicator must outlive the rows. always_list: BackendOptions.
  HostStepRows(ThreadTeam* team, comm::Communicator* communicator, bool always_list);

  // Forgets the step before.
  void Clear();
  // logits [needs, this rank's tokens]; first_token and vocab as in Ops::Select. The logits must
  // live until Clear. Collective when there are several ranks or lists are forced.
  absl::Status Select(const StepPlan& plan, const float* logits, int64_t first_token,
                      int64_t vocab);
  // The same from parts, which must live until Clear.
  absl::Status Select(const StepPlan& plan, const RowParts* parts, int64_t first_token,
                      int64_t vocab);
  // InvalidArgument names a need that the last step did not have.
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const;
  // Makes the rows of these needs whole. Collective.
  absl::Status Fetch(absl::Span<const int32_t> needs);

  absl::Span<const float> Whole(int need) const override;
  const CandidateRow* Listed(int need) const override;

 private:
  // One need's part of every rank's piece.
  struct Part {
    int need = 0;
    size_t offset = 0, words = 0;
    bool whole = false;
    float* row = nullptr;  // [vocab] of a whole row, on rank 0
  };
  // Parts of one piece, one after the other.
  struct Piece {
    std::vector<Part> parts;
    size_t words = 0;

    void Add(int need, bool whole, size_t words);
  };
  // Parts of rows in host memory.
  class LogitParts final : public RowParts {
   public:
    const float* Row(int need) const override { return logits + need * shard.size(); }
    void WriteRecord(int need, float* record) const override;
    int64_t work() const override { return 4 * shard.size(); }

    const StepPlan* plan = nullptr;
    const float* logits = nullptr;
    sampling::TokenRange shard;
    int64_t vocab = 0;
  };
  // Memory that grows on demand. Growing discards its contents.
  struct Buffer {
    float* AtLeast(size_t count);

    std::unique_ptr<float[]> data;
    size_t size = 0;
  };

  // Collective. Fills whole_, and listed_ for the candidate lists of the plan; plan may be null
  // when there are none. After an error there are no rows.
  absl::Status Exchange(const StepPlan* plan, Piece* piece);
  absl::Status GatherAndJoin(const StepPlan* plan, Piece* piece);
  void WritePart(const Part& part, float* piece) const;
  void JoinPart(const StepPlan* plan, const Part& part, size_t piece_words);
  float* NewRow();

  ThreadTeam* const team_;
  comm::Communicator* const communicator_;
  const bool always_list_;

  // The parts of the last step, on every rank.
  const RowParts* parts_ = nullptr;
  LogitParts of_logits_;
  sampling::TokenRange shard_;
  int64_t vocab_ = 0;
  std::vector<bool> came_whole_;  // [needs]
  // On rank 0.
  std::vector<const float*> whole_;   // [needs], null where listed
  std::vector<CandidateRow> listed_;  // [needs]
  // Rows of vocab_ floats, allocated when first used.
  std::vector<std::unique_ptr<float[]>> rows_;
  size_t rows_used_ = 0;
  Buffer mine_, all_;
};

}  // namespace coppice::kernels
