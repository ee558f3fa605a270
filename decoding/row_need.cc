#include "decoding/row_need.h"

#include <algorithm>

#include "decoding/drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logits_processing.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {
namespace {

constexpr int kMostSlots = 32;       // bits of a slot mask
constexpr int kMostByMass = 1024;    // tokens listed for top-p and min-p without top-k
constexpr double kRankSlack = 4e-6;  // nats; more than the slack of TopCandidates and ChildKeys
constexpr double kDrawSlack = sampling::kMarginCap;  // nats; margins up to the cap are exact

// The need of a row that ProcessRow or a ProcessedRow cuts. The whole row if nothing is cut.
RowNeed CutNeed(const sampling::SamplingParams& sampling) {
  RowNeed need;
  if (sampling::IsJoint(sampling.mode) || sampling.repetition_penalty != 1) return need;
  need.temperature = sampling.temperature > 0 ? sampling.temperature : 1;
  need.raw_sums = sampling.mode == sampling::SamplingScope::kRowRaw;
  if (sampling.temperature <= 0 || sampling.top_k > 0) {
    need.form = RowNeed::Form::kTop;
    need.count = sampling.temperature <= 0 ? 1 : sampling.top_k;
  } else if (sampling.top_p > 0 && sampling.top_p < 1) {
    need.form = RowNeed::Form::kTop;
    need.count = kMostByMass;
    need.sums = true;
    need.cover = sampling.top_p;
  } else if (sampling.min_p > 0) {
    need.form = RowNeed::Form::kTop;
    need.count = kMostByMass;
    need.depth = -sampling::Log(std::min(sampling.min_p, 1.0));
  }
  return need;
}

// Of rows in which a format allows few tokens.
RowNeed FormatNeed(const DecodingParams& params, const RowUse& use) {
  const sampling::SamplingParams& sampling = params.sampling;
  RowNeed need;
  if (use.kind == RowUse::Kind::kDistribution || use.likelihood ||
      sampling.mode != sampling::SamplingScope::kRow)
    return need;
  // A beam search ranks by the probabilities of the whole row.
  const bool ranks = params.kind == sampling::DecodingKind::kBeamSearch;
  if (ranks && (!sampling::KeepsWholeRow(sampling) || !sampling::KeepsLogits(sampling) ||
                sampling.penalises()))
    return need;
  need.form = RowNeed::Form::kRaw;
  need.raw_top = 1;
  need.raw_sums = ranks;
  return need;
}

}  // namespace

std::shared_ptr<const AllowedTokens> AllowedAfter(const DecodingParams& params, int length,
                                                  OutputFormat::State state) {
  // Banned stop ids change the sum.
  const bool bans = length < params.min_tokens && !params.stop_ids.empty();
  if (bans && params.kind == sampling::DecodingKind::kBeamSearch) return nullptr;
  static const auto* none = new auto(std::make_shared<const AllowedTokens>());
  if (state == OutputFormat::kBroken) return *none;  // such a row is never read
  std::shared_ptr<const AllowedTokens> allowed = params.format->Allowed(state);
  const bool few = allowed != nullptr && !allowed->listed.empty() &&
                   allowed->listed.size() <= kMostListedAllowed;
  return few ? allowed : nullptr;
}

RowNeed TargetNeed(const DecodingParams& params, const RowUse& use) {
  if (params.format != nullptr) return FormatNeed(params, use);
  RowNeed need = CutNeed(params.sampling);
  if (use.likelihood && params.sampling.temperature <= 0) return RowNeed();
  if (need.form != RowNeed::Form::kWhole || sampling::IsJoint(params.sampling.mode)) return need;
  if (params.sampling.repetition_penalty != 1) return need;    // the penalty is not a bias
  if (!sampling::KeepsWholeRow(params.sampling)) return need;  // no candidate list serves this cut
  switch (use.kind) {
    case RowUse::Kind::kDistribution:
      return need;
    case RowUse::Kind::kDraws:
      if (params.beam_width > kMostSlots) return need;
      need.slots = static_cast<uint32_t>((uint64_t{1} << params.beam_width) - 1);
      need.form = RowNeed::Form::kGumbel;
      need.count = 1;
      need.slack = kDrawSlack;
      break;
    case RowUse::Kind::kRanks:
      if (!params.stop_strings.empty()) return need;
      need.form = RowNeed::Form::kTop;
      need.count = use.reach;
      need.slack = kRankSlack;
      break;
    case RowUse::Kind::kNoisyRanks:
      if (!params.stop_strings.empty()) return need;
      need.slots = 1;
      need.form = RowNeed::Form::kGumbel;
      need.count = use.reach;
      need.slack = kRankSlack;
      break;
  }
  need.sums = true;
  need.seed = params.seed;
  return need;
}

RowNeed DraftNeed(const DecodingParams& params) {
  if (params.format != nullptr) return RowNeed();
  return CutNeed(DraftSampling(params.sampling, params));
}

}  // namespace coppice::decoding
