// Random points of the grid of tests/decoding/README.md 2, for the equality tests: gamma 0..6 x W
// 1..8 x W_S W..4W x draft quality x sampling parameters x penalties x ends, stop strings among
// them, x policy x refill x semantics.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "decoding/params.h"
#include "lab/exact/hash_lm.h"
#include "sampling/rng.h"
#include "tests/testing/decode_loop.h"
#include "tests/testing/toy_text.h"

namespace coppice::decoding {

struct DecodeSetting {
  DecodingParams params;
  test::HashLm lm;
  int draft_width;
  int depth;
  test::DraftQuality quality;
};

// The sequence of pseudo-random numbers of one seed.
class Picker {
 public:
  explicit Picker(uint64_t seed) : seed_(seed) {}
  int operator()(int n) {
    return static_cast<int>(sampling::Uniform(seed_, sampling::Domain::kDirect, 99, 0, draw_++) *
                            n);
  }

 private:
  const uint64_t seed_;
  uint32_t draw_ = 0;
};

// Mode ROW or ROW_RAW; the method is left open.
inline DecodeSetting RandomSetting(uint64_t seed, sampling::DecodingKind kind) {
  Picker pick(seed);
  DecodeSetting s;
  s.lm.vocab_size = 2 + pick(14);
  s.lm.salt = pick(1000);
  s.lm.noise = pick(1000);
  s.lm.power = 2 + pick(6);
  s.params.kind = kind;
  s.params.seed = sampling::Finalize(seed);
  s.params.beam_width = kind == sampling::DecodingKind::kMultinomial ? 1 : 1 + pick(8);
  s.params.num_hypotheses = s.params.beam_width;
  s.params.max_tokens = 1 + pick(14);
  s.params.stop_when_full = pick(2) == 0;
  s.params.refill = pick(2) == 0;
  s.params.length_penalty = std::vector<double>{0, 0.6, 1, 1, 2}[pick(5)];
  for (int stop = pick(3); stop > 0; --stop) s.params.stop_ids.push_back(stop);
  s.params.min_tokens = pick(3) == 0 && s.lm.vocab_size > 4 ? pick(4) : 0;
  if (kind != sampling::DecodingKind::kBeamSearch) {
    s.params.sampling.temperature = std::vector<double>{1, 1, 0.7, 1.5}[pick(4)];
    s.params.sampling.top_k = pick(3) == 0 ? 1 + pick(8) : 0;
    s.params.sampling.top_p = pick(3) == 0 ? 0.8 : 1;
    s.params.sampling.min_p = pick(4) == 0 ? 0.05 : 0;
    s.params.sampling.mode =
        pick(3) == 0 ? sampling::SamplingScope::kRowRaw : sampling::SamplingScope::kRow;
  }
  if (pick(4) == 0) s.params.sampling.logit_bias = {{0, 0.7}, {1, -0.4}};
  s.draft_width = s.params.beam_width + pick(3 * s.params.beam_width + 1);
  s.depth = pick(7);
  s.quality = std::vector<test::DraftQuality>{
      test::DraftQuality::kGood, test::DraftQuality::kRandom, test::DraftQuality::kConstant,
      test::DraftQuality::kAdversarial, test::DraftQuality::kIdentical}[pick(5)];
  s.params.set_semantics = kind == sampling::DecodingKind::kBeamSampling && pick(4) == 0;
  if (pick(4) == 0) {
    s.params.sampling.frequency_penalty = std::vector<double>{0, 0.4, -0.3}[pick(3)];
    s.params.sampling.presence_penalty = std::vector<double>{0, 0.7, -0.5}[pick(3)];
    s.params.sampling.repetition_penalty = std::vector<double>{1, 1.2, 0.8}[pick(3)];
    SetPrompt(std::vector<TokenId>{1, 0, 1}, &s.params);
  }
  if (pick(4) == 0) test::SetToyStops(test::ToyStops(pick(6)), s.lm.vocab_size, &s.params);
  return s;
}

// A joint scope serves no penalties.
inline void SetSamplingScope(sampling::SamplingScope mode, DecodingParams* params) {
  params->sampling.mode = mode;
  if (!sampling::IsJoint(mode)) return;
  params->sampling.frequency_penalty = params->sampling.presence_penalty = 0;
  params->sampling.repetition_penalty = 1;
}

// Only max_tokens ends a hypothesis.
inline void NeverStop(DecodingParams* params) {
  params->stop_ids.clear();
  params->stop_strings.clear();
  params->stop_text = nullptr;
}

inline test::DecodeRun RunPlain(const DecodeSetting& s) {
  return test::RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                         test::DraftQuality::kNone, 0, 0);
}

inline test::DecodeRun RunDrafted(const DecodeSetting& s) {
  return test::RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm, s.quality,
                         s.draft_width, s.depth);
}

inline bool SameBits(const test::DecodeRun& a, const test::DecodeRun& b) {
  const auto equal = [](const Hypothesis& x, const Hypothesis& y) {
    return x.tokens == y.tokens && x.joint_log_probability == y.joint_log_probability &&
           x.score == y.score && x.finished == y.finished;
  };
  return a.layers == b.layers && a.result.size() == b.result.size() &&
         std::equal(a.result.begin(), a.result.end(), b.result.begin(), equal);
}

// Records which values of the grid a test has covered.
class GridCoverage {
 public:
  void Add(const DecodeSetting& s, const test::DecodeRun& run) {
    depths_.insert(s.depth);
    widths_.insert(s.params.beam_width);
    hedges_.insert(s.draft_width - s.params.beam_width);
    ratios_.insert(s.draft_width / s.params.beam_width);
    qualities_.insert(s.quality);
    max_tokens_.insert(s.params.max_tokens);
    for (const Hypothesis& hypothesis : run.result) ended_.insert(hypothesis.finished);
  }

  void ExpectWhole(sampling::DecodingKind kind) const {
    EXPECT_THAT(depths_, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
    if (kind != sampling::DecodingKind::kMultinomial) {
      EXPECT_THAT(widths_, testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    }
    for (int more = 0; more <= 3 * *widths_.rbegin(); ++more) EXPECT_EQ(hedges_.count(more), 1u);
    EXPECT_THAT(ratios_, testing::ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(qualities_.size(), 5u);
    EXPECT_EQ(*max_tokens_.begin(), 1);       // the first layer is the last
    EXPECT_THAT(ended_, testing::SizeIs(2));  // by EOS, and by max_tokens
  }

 private:
  std::set<int> depths_, widths_, hedges_, ratios_, max_tokens_;
  std::set<test::DraftQuality> qualities_;
  std::set<bool> ended_;
};

}  // namespace coppice::decoding
