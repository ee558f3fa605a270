// Joint Gumbel coupling (docs/algorithms.md 5.6): slot w takes the entry with the largest
// log P + G(TOKEN, slot w); without replacement, one slot takes the W largest. P may be processed
// in any mode, so this is also the plain decoder of JOINT and ROWCUT. Distribution: beam sampling
// with replacement (3.3) or without (3.4). The output is a function of seed and target alone.
// Called through MakeBeamDecoder and MakeDrafter. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/sequence/layer_ends.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {

std::unique_ptr<BeamDecoder> MakeJointGumbelCouplingDecoder(const DecodingParams& params);
// Computes the slots with the draft's rows; width = W_S.
std::unique_ptr<Drafter> MakeJointGumbelCouplingDrafter(const DecodingParams& params,
                                                        const DraftState& state, int width);

// The decision of one layer: slots in order, or entries in decreasing order of their keys.
struct SlotDraws {
  std::vector<Entry> entries;
  double margin = sampling::kInfinity;  // smallest margin, nats
};
// argmax over the entries of log P + G(TOKEN, w), for slots w = 0 .. slots - 1.
SlotDraws DrawSlots(const LayerDistribution& p, const DecodingParams& params, int slots);
// The entries with the largest log P + G(TOKEN, 0), by the walk of docs/algorithms.md 8: an end of
// sequence of rank below W is an output; other entries fill the next beams until there are W.
SlotDraws DrawDistinct(const LayerDistribution& p, const DecodingParams& params,
                       const LayerEnds& ends);

}  // namespace coppice::decoding
