// PF-RRS beam sampling (docs/algorithms.md 5.7, variant): parents by the shared noise of PF-Gumbel,
// the tokens of a parent's slots by 5.5 on its single row, with drafts drawn without replacement
// from q(.|parent). Law: beam sampling with replacement (3.3), width 1 multinomial sampling (3.1),
// whatever the draft; the output depends on where rounds begin, not on the seed alone. Row
// "pf_rrs" of decoding/method.h. Parameters have been checked. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/drafter.h"

namespace coppice {

// What the verifier relies on beyond DraftForest::Validate.
absl::Status CheckPfRrsForest(const DraftForest& forest);

std::unique_ptr<BeamDecoder> MakePfRrsDecoder(const DecodingParams& params);
// W_S drafts a layer, shared out among the parents by how nearly a slot picks them.
std::unique_ptr<Drafter> MakePfRrsDrafter(const DecodingParams& params, const DraftState& state,
                                          int width);

// With given choices, for exact laws. Picks stay seeded: the laws hold given the picks' noise.
std::unique_ptr<BeamDecoder> MakePfRrsDecoder(const DecodingParams& params,
                                              std::shared_ptr<ChoiceSource> choices);
std::unique_ptr<Drafter> MakePfRrsDrafter(const DecodingParams& params, const DraftState& state,
                                          int width, std::shared_ptr<ChoiceSource> choices);

}  // namespace coppice
