// What a round costs on this replica, from measurements: the time of a step by its rows and the
// wait for a draft by its shape. On a GPU the matrix products were measured before, so that a step
// has an expected time from the first round on. Thread-compatible: the engine thread owns it.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "worker/drifting_cost.h"

namespace coppice::worker {

struct DraftShape {
  int width = 0;  // W_S nodes per layer; for a static tree, nodes of its first layer
  int depth = 0;  // gamma layers; 0 = no draft
};

class RoundCosts {
 public:
  // products: the time of a step's matrix products by its rows, ascending, if that is known before
  // any step has run (Backend::RowCosts); its rows are the sizes that steps are padded to.
  explicit RoundCosts(std::vector<kernels::RowCost> products) : products_(std::move(products)) {}

  // A step of `rows` rows took `seconds`, with the decisions that followed.
  void RecordPass(int rows, double seconds);
  // A draft of `shape` was taken `seconds` after its request, while `drafting` sequences had one.
  void RecordDraft(DraftShape shape, double seconds, int drafting = 1);
  // The same for a draft that may have arrived before it was taken. The node worked `node_s` for
  // it. The time of messages is that of drafts that were taken at once, or 0 before there was one.
  void RecordUnseenDraft(DraftShape shape, double seconds, double node_s, int drafting = 1);
  // The part of a draft's time that is not the draft node's work. Only for drafts taken at once.
  void RecordMessages(double seconds);

  bool products_known() const { return !products_.empty(); }
  bool drafts_measured() const { return !draft_.empty(); }
  // Expected seconds; 0 when nothing is known.
  double Pass(int rows) const;
  // The most rows, up to `most`, of a step that is expected to take `seconds`, or twice the time of
  // a step of one row if that is more. While the smallest measured step takes longer, half of its
  // rows, so that smaller ones get measured.
  int RowsWithin(double seconds, int most) const;
  double Draft(DraftShape shape, int drafting = 1) const;
  // Seconds until `running` sequences have had a draft of `shape` each, and `rows` rows of steps in
  // all. Either all wait for their drafts and share a step, or two groups take turns, one drafting
  // while the other has its step: whichever takes less (worker/batching_wait.h).
  double Turn(int running, int rows, DraftShape shape) const;

 private:
  struct Measured {
    int size;
    double seconds;
    // The least seconds of this size and all larger ones, and the size that has them. More rows
    // never take less time, so a size that seems slower than a larger one was disturbed.
    double least;
    int least_size;
  };
  static double AtDepth(const std::vector<Measured>& measured, int depth);
  double DraftAlone(DraftShape shape) const;  // the wait when one draft is requested alone
  double Products(int rows) const;
  double KnownPass(int rows) const;
  // The measured lists as they are now. Made once for many questions.
  void Refresh() const;

  const std::vector<kernels::RowCost> products_;
  DriftingCost pass_;   // costs by bucket of rows
  DriftingCost draft_;  // the wait for a draft, by width and levels; the load: how many draft
  std::optional<double> messages_s_;  // moving mean of the time for a draft's messages
  mutable bool stale_ = false;
  mutable std::vector<Measured> passes_;                 // ascending, by bucket of rows
  mutable std::map<int, std::vector<Measured>> drafts_;  // by width: ascending, by levels
};

}  // namespace coppice::worker
