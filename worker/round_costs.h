// What a round costs on this replica, from measurements: the time of a step by its rows and the
// wait for a draft by its shape. A machine's speed drifts, and sizes are measured at different
// times, so the time of a step is modelled as level x typical time of its size: every step moves
// the level quickly and the typical time slowly. Thread-compatible: the engine thread owns it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "kernels/backend.h"

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
  void RecordStep(int rows, double seconds, bool alone);
  // A draft of `shape` came `seconds` after its request, of which the node worked `node_s`, while
  // `drafting` sequences had one. It may have been seen late, so `seconds` only bounds the time of
  // messages.
  void RecordDraft(DraftShape shape, double seconds, double node_s, int drafting);

  // Expected seconds; 0 when nothing is known. A size between measured ones takes as long as the
  // smaller, or its share of the larger: never too long, so it is tried and then known.
  double Step(int rows, bool alone) const;
  // The most rows, up to `most`, of a step that is expected to take `seconds`, or twice the time of
  // a step of one row if that is more. While the smallest measured step takes longer, half of its
  // rows, so that smaller ones get measured.
  int RowsWithin(double seconds, int most) const;
  // Expected seconds until `drafting` sequences that ask together have a draft of `shape` each.
  double Draft(DraftShape shape, int drafting) const;

 private:
  struct Typical {
    double seconds = 0;
    int count = 0;
  };
  struct AtSize {
    Typical beside, alone;
    double Seconds(bool is_alone) const {
      return (beside.count == 0 || (is_alone && alone.count > 0) ? alone : beside).seconds;
    }
  };
  int Size(int rows) const;
  double Products(int rows) const;

  const std::vector<kernels::RowCost> products_;
  std::map<int, AtSize> steps_;  // by size
  double level_ = 1;
  double rest_s_ = 0;  // with known products: what a step takes beside them
  // A draft takes message_s_ + depth (level_s_ + width x drafting x node_s_).
  double message_s_ = 0, level_s_ = 0, node_s_ = 0;
};

}  // namespace coppice::worker
