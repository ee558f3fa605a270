// What a round costs on this replica, from measurements: the time of a step by its rows and the
// wait for a draft by its shape. A machine's speed drifts, and sizes are measured at different
// times, so a step takes level x typical time of its size: the level moves quickly, typical times
// slowly. Thread-compatible: the engine thread owns it.
#pragma once

#include <map>

namespace coppice::worker {

struct DraftShape {
  int width = 0;  // W_S nodes per layer; for a static tree, nodes of its first layer
  int depth = 0;  // gamma layers; 0 = no draft
};

class RoundCosts {
 public:
  // A step of `rows` rows took `seconds`, with the decisions that followed. alone: draft nodes did
  // nothing meanwhile. They may share the cores of the target, so only such steps show how fast the
  // machine is and what a step without drafts takes.
  void RecordStep(int rows, double seconds, bool alone);
  // A draft was seen `seconds` after its request, perhaps late; the node worked node_s for it.
  // `drafting` sequences had one at that time.
  void RecordDraft(DraftShape shape, double seconds, double node_s, int drafting);

  // Expected seconds; 0 when nothing is known. A size that was not measured takes as long as the
  // next smaller one, or its share of the next larger: seldom too long, so it is tried.
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
  struct Measured {
    Typical alone, beside;  // beside drafts
    double Seconds(bool is_alone) const {
      return (beside.count == 0 || (is_alone && alone.count > 0) ? alone : beside).seconds;
    }
  };

  std::map<int, Measured> steps_;  // by size
  double level_ = 1;
  // A draft takes message_s_ + depth (level_s_ + width x drafting x node_s_).
  double message_s_ = 0, level_s_ = 0, node_s_ = 0;
};

}  // namespace coppice::worker
