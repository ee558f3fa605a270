// Beam recursive rejection (docs/algorithms.md 5.7, variant). The noise that picks the parents is
// fixed by the request. Given it, all choices of the production drafter and decoder are enumerated.
// The distribution of the outputs must be the product of the rows of the picked parents.
#include "decoding/layer/beam_recursive_rejection.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "decoding/method.h"
#include "gtest/gtest.h"
#include "lab/exact/layered_distribution.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

struct Setting {
  DecodingParams params;
  int draft_width = 2;
  int draft_depth = 1;
  test::LogProbsOf target;
  test::LogProbsOf draft;
};

Setting MakeSetting(int vocab, int width, int draft_width, int draft_depth, int layers) {
  Setting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.method = FindMethod("beam_recursive_rejection");
  setting.params.beam_width = width;
  setting.params.max_tokens = layers;
  setting.draft_width = draft_width;
  setting.draft_depth = draft_depth;
  const test::HashLm lm{vocab, 47, 3, 0}, other{vocab, 1136, 3, 0};
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [other](uint64_t hash) { return other.TargetLogProbs(hash); };
  return setting;
}

// Changes the forest between draft node and decoder, to make it wrong.
using Spoil = std::function<void(DraftForest*)>;

// The outputs of the last layer, in slot order. Their paths hold all layers.
std::vector<uint64_t> Decode(const Setting& setting, const Spoil& spoil, ChoiceSource* source) {
  const auto choices = std::make_shared<test::ForwardedChoices>(source);
  const std::unique_ptr<BeamDecoder> decoder =
      MakeBeamRecursiveRejectionDecoder(setting.params, choices);
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    const auto drafter =
        MakeBeamRecursiveRejectionDrafter(setting.params, state, setting.draft_width, choices);
    const int depth = std::min(setting.draft_depth, decoder->max_useful_depth());
    DraftForest forest = test::GrowForest(setting.draft, state, depth, drafter.get());
    if (spoil) spoil(&forest);
    test::FunctionRows rows(setting.target, state.root_hash, forest);
    decoder->Advance(forest, &rows);
  }
  std::vector<uint64_t> outcome;
  for (const LayerOutput& output : decoder->last_layer())
    outcome.push_back(decoder->paths().hash(output.path));
  return outcome;
}

test::ExactDistribution EnumeratedDistribution(const Setting& setting,
                                               const Spoil& spoil = nullptr) {
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const std::vector<uint64_t> outcome = Decode(setting, spoil, choices);
    distribution[outcome] += choices->probability();
  });
  return distribution;
}

// The definition of 5.7, averaged over the noise of the tokens.
class ClosedDistribution {
 public:
  explicit ClosedDistribution(const Setting& setting) : setting_(setting) {
    Layer(std::vector<Slot>(setting.params.beam_width, Slot{sampling::kRootHash, 0.0, false}), 0,
          {}, 1.0);
  }
  const test::ExactDistribution& distribution() const { return distribution_; }

 private:
  struct Slot {
    uint64_t hash;
    double score;
    bool finished;
  };

  Slot Pick(const std::vector<Slot>& live, uint32_t slot) const {
    const Slot* best = nullptr;
    double best_key = 0;
    for (const Slot& beam : live) {
      const double copies = setting_.params.set_semantics
                                ? 1
                                : std::count_if(live.begin(), live.end(), [&](const Slot& other) {
                                    return other.hash == beam.hash;
                                  });
      const double key =
          beam.score + sampling::Log(copies) +
          sampling::Gumbel(setting_.params.seed, sampling::Domain::kParent, beam.hash, slot, 0);
      if (best == nullptr || key > best_key) {
        best = &beam;
        best_key = key;
      }
    }
    return *best;
  }

  void Layer(const std::vector<Slot>& before, int length, std::vector<uint64_t> pooled,
             double probability) {
    std::vector<Slot> live;
    for (const Slot& slot : before) {
      if (!slot.finished) live.push_back(slot);
    }
    if (live.empty() || length == setting_.params.max_tokens ||
        pooled.size() >= setting_.params.beam_width) {
      std::vector<uint64_t> outcome;
      for (const Slot& slot : before) outcome.push_back(slot.hash);
      distribution_[outcome] += probability;
      return;
    }
    const int slots = setting_.params.refill ? setting_.params.beam_width : live.size();
    std::vector<Slot> parents;
    for (int w = 0; w < slots; ++w) parents.push_back(length == 0 ? live[0] : Pick(live, w));
    Tokens(parents, {}, length, pooled, probability);
  }

  void Tokens(const std::vector<Slot>& parents, std::vector<Slot> slots, int length,
              const std::vector<uint64_t>& pooled, double probability) {
    if (slots.size() == parents.size()) {
      std::vector<uint64_t> more = pooled;
      for (const Slot& slot : slots) {
        if (slot.finished && std::find(more.begin(), more.end(), slot.hash) == more.end())
          more.push_back(slot.hash);
      }
      return Layer(slots, length + 1, more, probability);
    }
    const Slot& parent = parents[slots.size()];
    test::FunctionRows source(setting_.target, {parent.hash}, DraftForest::Empty(1));
    const sampling::TargetRow row = sampling::ReadTargetRow(&source, 0, setting_.params, length);
    for (int i = 0; i < row.row.size(); ++i) {
      const TokenId token = row.row.tokens[i];
      std::vector<Slot> longer = slots;
      longer.push_back({sampling::ExtendHash(parent.hash, token),
                        parent.score + row.score_log_probs[i], IsStopId(setting_.params, token)});
      Tokens(parents, longer, length, pooled, probability * sampling::Exp(row.row.log_probs[i]));
    }
  }

  const Setting& setting_;
  test::ExactDistribution distribution_;
};

void ExpectExact(const Setting& setting, const std::string& what) {
  const test::ExactDistribution distribution = EnumeratedDistribution(setting);
  EXPECT_LT(test::TotalVariation(distribution, ClosedDistribution(setting).distribution()), 1e-12)
      << what;
}

TEST(BeamRecursiveRejectionEnumeration, OutputsFollowThePickedRowsGivenThePicks) {
  struct Size {
    int vocab, width, draft_width, draft_depth, layers;
  };
  for (const Size& size :
       {Size{3, 1, 2, 2, 3}, {2, 2, 2, 1, 2}, {3, 2, 2, 1, 2}, {2, 2, 3, 2, 3}, {2, 3, 3, 1, 2}}) {
    for (uint64_t seed : {1, 2}) {
      Setting setting =
          MakeSetting(size.vocab, size.width, size.draft_width, size.draft_depth, size.layers);
      setting.params.seed = seed;
      ExpectExact(setting, absl::StrCat("V ", size.vocab, " W ", size.width, " W_S ",
                                        size.draft_width, " seed ", seed));
    }
  }
}

TEST(BeamRecursiveRejectionEnumeration, StopIdsRefillAndSamplingsKeepTheDistribution) {
  for (bool refill : {true, false}) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw}) {
      Setting setting = MakeSetting(3, 2, 2, 1, 2);
      setting.params.seed = 5;
      setting.params.refill = refill;
      setting.params.stop_ids = {1};
      setting.params.sampling.temperature = 0.7;
      setting.params.sampling.mode = mode;
      ExpectExact(setting, absl::StrCat("refill ", refill));
    }
  }
  Setting once = MakeSetting(2, 3, 2, 1, 2);
  once.params.set_semantics = true;
  ExpectExact(once, "set semantics");
}

// One-hot rows, disjoint and equal rows, fewer tokens than slots or drafts.
TEST(BeamRecursiveRejectionEnumeration, ExtremeRowsKeepTheDistribution) {
  const auto everywhere = [](const std::vector<double>& masses) {
    std::vector<double> row;
    for (double mass : masses) row.push_back(sampling::Log(mass));
    return [row](uint64_t) { return row; };
  };
  const std::vector<test::LogProbsOf> models = {
      everywhere({0.75, 0.25, 0, 0}), everywhere({0, 0, 0.5, 0.5}), everywhere({0, 1, 0, 0}),
      everywhere({0.5, 0.3, 0.2 - 1e-16, 1e-16}), everywhere({0.5, 0.3, 0.2, 0})};
  for (size_t p = 0; p < models.size(); ++p) {
    for (size_t q = 0; q < models.size(); ++q) {
      for (int width : {1, 2}) {
        Setting setting = MakeSetting(4, width, 3, 1, 2);
        setting.target = models[p];
        setting.draft = models[q];
        ExpectExact(setting, absl::StrCat("p ", p, " q ", q, " W ", width));
      }
    }
  }
}

TEST(BeamRecursiveRejectionEnumeration, InvertedRatioIsToldApart) {
  for (const auto& [vocab, width] : {std::pair(4, 1), {3, 2}}) {
    const Setting setting = MakeSetting(vocab, width, 3, 1, 2);
    test::ExactDistribution distribution;
    test::EnumerateChoices([&](test::ScriptedChoices* choices) {
      test::InvertedRatio wrong(choices);
      const std::vector<uint64_t> outcome = Decode(setting, nullptr, &wrong);
      distribution[outcome] += choices->probability();
    });
    EXPECT_GT(test::TotalVariation(distribution, ClosedDistribution(setting).distribution()), 0.01)
        << "V " << vocab;
  }
}

// Drafts of a parent by decreasing q instead of drawing order: they are then not a sample without
// replacement.
TEST(BeamRecursiveRejectionEnumeration, ResortedDraftsAreToldApart) {
  for (const auto& [vocab, width] : {std::pair(4, 1), {3, 2}}) {
    const Setting setting = MakeSetting(vocab, width, 3, 1, 2);
    const auto by_q = [](DraftForest* forest) {
      const auto log_q = [&](NodeId draw) {
        const int32_t node = Index(draw);
        for (const Proposal& proposal : forest->proposals) {
          if (proposal.place == forest->parent[node])
            return proposal.row.log_probs[FindToken(proposal.row, forest->token[node])];
        }
        return 0.0;
      };
      std::stable_sort(forest->draws.begin(), forest->draws.end(),
                       [&](NodeId a, NodeId b) { return log_q(a) > log_q(b); });
    };
    EXPECT_GT(test::TotalVariation(EnumeratedDistribution(setting, by_q),
                                   ClosedDistribution(setting).distribution()),
              0.01)
        << "V " << vocab;
  }
}

TEST(BeamRecursiveRejection, RoundsKeepTheirPromises) {
  const test::HashLm lm{9, 5, 4, 3};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (test::DraftQuality quality :
         {test::DraftQuality::kNone, test::DraftQuality::kGood, test::DraftQuality::kRandom,
          test::DraftQuality::kConstant}) {
      DecodingParams params = MakeSetting(9, 1 + seed % 4, 4, 3, 9).params;
      params.num_hypotheses = params.beam_width;
      params.seed = seed;
      params.stop_ids = {2};
      params.refill = seed % 2 == 0;
      test::RunDecode(MakeBeamRecursiveRejectionDecoder(params), params, lm, quality, 1 + seed % 7,
                      3);
    }
  }
}

// The draft is the target, so the drafts of the picked parents are nearly always enough.
TEST(BeamRecursiveRejection, EqualDraftGivesMoreThanTwoLayersPerRound) {
  const test::HashLm lm{16, 5, 8, 0};
  double layers = 0, rounds = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    DecodingParams params = MakeSetting(16, 4, 8, 4, 40).params;
    params.seed = seed;
    const test::DecodeRun run = test::RunDecode(MakeBeamRecursiveRejectionDecoder(params), params,
                                                lm, test::DraftQuality::kIdentical, 8, 4);
    layers += run.layers;
    rounds += run.layers_per_round.size();
  }
  EXPECT_GT(layers / rounds, 2.0);
}

TEST(BeamRecursiveRejection, ForestWithoutItsProposalsIsAPlainStep) {
  const Setting setting = MakeSetting(5, 2, 4, 2, 8);
  const auto choices = std::make_shared<SeededChoices>(1);
  const auto probe = MakeBeamRecursiveRejectionDecoder(setting.params, choices);
  const DraftState state = probe->draft_state();
  const auto drafter = MakeBeamRecursiveRejectionDrafter(setting.params, state, 4, choices);
  const DraftForest good = test::GrowForest(setting.draft, state, 2, drafter.get());
  ASSERT_TRUE(good.Validate(5).ok());
  ASSERT_TRUE(CheckBeamRecursiveRejectionForest(good).ok());
  DraftForest no_proposals = good;
  no_proposals.proposals.clear();
  DraftForest twice = good;
  twice.draws[1] = twice.draws[0];
  for (const DraftForest& forest : {no_proposals, twice}) {
    EXPECT_FALSE(CheckBeamRecursiveRejectionForest(forest).ok());
    const auto decoder = MakeBeamRecursiveRejectionDecoder(setting.params, choices);
    test::FunctionRows rows(setting.target, state.root_hash, forest);
    EXPECT_EQ(decoder->Advance(forest, &rows).stats.layers, 1);
  }
}

}  // namespace
}  // namespace coppice::decoding
