// The current beams of one sequence as the joint law of a layer needs them: distinct paths of the
// live outputs in order of first output, how often each counts, and P over their target rows in
// every warp mode. Owned by a decoder; thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/law/joint_law.h"
#include "decoding/law/layer_law.h"
#include "decoding/path_tree.h"
#include "decoding/rows/warped_row.h"
#include "decoding/sequence/sequence_state.h"

namespace coppice::decoding {

class LayerBeams {
 public:
  // Starts with the root alone.
  explicit LayerBeams(const DecodingParams& params);

  // The beams of the next layer from the live outputs of this one, `slots` of them with
  // repetitions. A path held by m slots counts m times, or once under set semantics (3.3).
  void Set(absl::Span<const Beam> slots);
  // Beam r of the first layer of a round is root r.
  void BeginRound();
  // Frees the rows: between rounds a sequence holds none, whose whole ones are megabytes each.
  void EndRound() { rows_.clear(); }

  const std::vector<Beam>& beams() const { return beams_; }
  absl::Span<const PathId> paths() const { return paths_; }  // [beams]
  bool RowsKnown() const;
  // P of the layer after `length` generated tokens; every row is known. Refers to this object,
  // until the next Read or the end of the round.
  LayerLaw Read(RowSource* rows, const PathTree& paths, int length);
  // What ls accumulates for an entry of the law that was read last, nats.
  double ScoreLogProb(Entry entry) const;
  // slot_root: the beam that each live output holds.
  DraftState State(const PathTree& paths, int layers) const;

 private:
  const DecodingParams params_;
  JointLaw law_;
  std::vector<Beam> beams_;
  std::vector<PathId> paths_;
  std::vector<int> multiplicity_;                 // [beams]
  std::vector<int32_t> slot_root_;                // [live outputs] index into beams_
  std::vector<std::unique_ptr<WarpedRow>> rows_;  // [beams at most] of the round; buffers are kept
};

}  // namespace coppice::decoding
