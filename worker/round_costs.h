// What a round costs on this replica, from measurements: the time of a step by its rows and the
// wait for a draft by its shape. A machine's speed drifts, and sizes are measured at different
// times, so a step takes level x typical time of its size: the level moves quickly, typical times
// slowly. Thread-compatible: the engine thread owns it.
#pragma once

#include <limits>
#include <map>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace coppice::worker {

struct DraftShape {
  int width = 0;  // W_S nodes per layer; for a static tree, nodes of its first layer
  int depth = 0;  // gamma layers; 0 = no draft
};

class RoundCosts {
 public:
  // What the matrix products of a step take, measured before any step has run, by rows ascending
  // (Backend::RowCosts). They say which numbers of rows take the same time, and how much longer a
  // step takes that was not measured. Call it before all else.
  void Expect(absl::Span<const kernels::RowCost> products);

  // A step of `rows` rows took `seconds`, with the decisions that followed. alone: draft nodes did
  // nothing meanwhile. They may share the cores of the target, so only such steps show how fast the
  // machine is and what a step without drafts takes.
  void RecordStep(int rows, double seconds, bool alone);
  // A draft was seen `seconds` after its request, perhaps late; the node worked node_s for it.
  // `drafting` sequences had one at that time.
  void RecordDraft(DraftShape shape, double seconds, double node_s, int drafting);

  // Expected seconds; 0 when no step was measured. A size that was not measured differs from the
  // next smaller one as its products do. Where these are not known, it takes as long as the next
  // smaller one, or its share of the next larger: seldom too long, so it is tried.
  double Step(int rows, bool alone) const;
  // The most rows, up to `most`, of a step that is expected to take `seconds`, or twice the time of
  // a step of one row if that is more. While the smallest measured step takes longer, half of its
  // rows, so that smaller ones get measured.
  int RowsWithin(double seconds, int most) const;
  // The most rows of a step that is left of the ridge, where products begin to take time in
  // proportion to their rows: any more rows take, each, at least half of what these take on average.
  // INT_MAX where products are not known.
  int ridge() const { return ridge_; }
  // Expected seconds until `drafting` sequences that ask together have a draft of `shape` each.
  double Draft(DraftShape shape, int drafting) const;

 private:
  struct Typical {
    double seconds = 0;
    int count = 0;
  };
  struct Measured {
    Typical alone, beside;  // beside drafts
    double Seconds(bool is_alone) const {
      return (beside.count == 0 || (is_alone && alone.count > 0) ? alone : beside).seconds;
    }
  };

  // Rows that are taken to cost the same: the largest of them where products are known, else the
  // smallest.
  int SizeOf(int rows) const;
  // How much longer the products of one size take than those of another that is not larger.
  double Growth(int from, int to) const;
  bool ProductsKnown(int size) const {
    return !products_.empty() && size <= products_.rbegin()->first;
  }

  std::map<int, Measured> steps_;   // by size
  std::map<int, double> products_;  // seconds by size
  int ridge_ = std::numeric_limits<int>::max();
  double level_ = 1;
  // A draft takes message_s_ + depth (level_s_ + width x drafting x node_s_).
  double message_s_ = 0, level_s_ = 0, node_s_ = 0;
};

}  // namespace coppice::worker
