// The current beams of one sequence, for the joint distribution of a layer: the distinct paths of
// the live outputs in order of first output, how often each counts, and P over their target rows in
// any sampling scope. Owned by a decoder; thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/joint/joint_distribution.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/path_tree.h"
#include "decoding/sequence/sequence_state.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {

class LayerBeams {
 public:
  // Starts with the root alone.
  explicit LayerBeams(const DecodingParams& params);

  // Sets the beams of the next layer from the live outputs of this one, with repetitions. A path
  // held by m slots counts m times, or once under set semantics (3.3).
  void Set(absl::Span<const Beam> slots);
  // Beam r of the first layer of a round is root r.
  void BeginRound();
  // Frees the rows. A whole row is megabytes, so a sequence holds none between rounds.
  void EndRound() { rows_.clear(); }

  const std::vector<Beam>& beams() const { return beams_; }
  absl::Span<const PathId> paths() const { return paths_; }  // [beams]
  bool RowsKnown() const;
  // P of the next layer. Every row must be known. Valid until the next Read or the
  // end of the round.
  LayerDistribution Read(sampling::RowSource* rows, const PathTree& paths);
  // What ls accumulates for an entry of the distribution returned last by Read, nats.
  double ScoreLogProb(Entry entry) const;
  // slot_root: the beam that each live output holds.
  DraftState State(const PathTree& paths, int layers) const;

 private:
  const DecodingParams params_;
  JointDistribution distribution_;
  std::vector<Beam> beams_;
  std::vector<PathId> paths_;
  std::vector<int> multiplicity_;   // [beams]
  std::vector<int32_t> slot_root_;  // [live outputs] index into beams_
  std::vector<std::unique_ptr<sampling::ProcessedRow>>
      rows_;  // [at most beams] rows of the round; buffers are kept
};

}  // namespace coppice::decoding
