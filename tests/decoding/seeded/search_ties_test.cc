// Certified search with ties in the certificate (docs/algorithms.md 3.5, 5.9). Rows have
// log-probability exactly 0 and scores are equal. So a beam whose row is missing or was not read
// may still give a candidate with the W-th key. Ties go to the beam of lower rank, then to the
// lower token. Whatever is drafted, the answer must be that of the reference.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "decoding/method.h"
#include "sampling/deterministic_math.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/named_decode.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr int kVocab = 6;
constexpr TokenId kBanned = 5;  // never the only token of a row

// Rows of one token, or of two or four equally likely tokens.
std::vector<double> TyingRow(uint64_t hash, uint64_t salt) {
  const uint64_t bits = sampling::Finalize(hash ^ sampling::Finalize(salt));
  const int first = static_cast<int>(bits % kBanned);
  const int size = 1 << (bits / 8 % 3);
  std::vector<double> row(kVocab, kNothing);
  for (int i = 0; i < size; ++i) row[(first + i) % kVocab] = -sampling::Log(size);
  return row;
}

test::LogProbsOf TyingModel(uint64_t salt) {
  return [salt](uint64_t hash) { return TyingRow(hash, salt); };
}

// A draft in which half of the rows are those of the target.
test::LogProbsOf HalfRightDraft(uint64_t target_salt) {
  return [target_salt](uint64_t hash) {
    const bool wrong = sampling::Finalize(hash + 3) % 2 == 0;
    return TyingRow(hash, wrong ? target_salt + 1000 : target_salt);
  };
}

test::NamedSetting TyingSetting(uint64_t seed) {
  Picker pick(seed);
  test::NamedSetting s;
  s.params.kind = sampling::DecodingKind::kBeamSearch;
  s.params.method = FindMethod("speculative_beam_search");
  s.params.beam_width = 1 + pick(5);
  s.params.num_hypotheses = s.params.beam_width;
  s.params.max_tokens = 2 + pick(6);
  s.params.stop_when_full = pick(2) == 0;
  if (pick(3) == 0) s.params.stop_ids = {4};
  // With a ban, the raw scores of beams are not in the order of their keys.
  if (pick(2) == 0) {
    s.params.sampling.mode = sampling::SamplingScope::kRowRaw;
    s.params.sampling.logit_bias = {{kBanned, kNothing}};
  }
  s.draft_width = 1 + pick(2 * s.params.beam_width);
  s.draft_depth = 1 + pick(4);
  s.target = TyingModel(seed);
  s.draft = HalfRightDraft(seed);
  return s;
}

void ExpectReference(const test::NamedRun& run, const std::vector<ReferenceBeam>& want) {
  ASSERT_EQ(run.result.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(run.result[i].tokens, want[i].path) << "hypothesis " << i;
    EXPECT_EQ(run.result[i].joint_log_probability, want[i].log_score);
    EXPECT_EQ(run.result[i].finished, want[i].finished);
  }
}

TEST(SearchTiesTest, TiedBeamsAreThoseOfTheReferenceWithAnyDraft) {
  int tied_rounds = 0, longer_rounds = 0;
  for (uint64_t seed = 0; seed < 4000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    test::NamedSetting s = TyingSetting(seed);
    const std::vector<ReferenceBeam> want = ReferenceDecoder(s.params, s.target, kVocab).Run();
    const test::NamedRun drafted = test::RunNamed(s);
    ExpectReference(drafted, want);
    s.draft_depth = 0;
    ExpectReference(test::RunNamed(s), want);
    tied_rounds += drafted.tied_rounds;
    for (int layers : drafted.layers) longer_rounds += layers > 1 ? 1 : 0;
  }
  EXPECT_GT(tied_rounds, 1000);
  EXPECT_GT(longer_rounds, 1000);
}

// The smallest case of a missing row. A layer has three beams: A is the best, B and C are tied. The
// draft has A and C but not B. A gives two candidates above B. C gives one with a key equal to B's
// bound. But B's only child has the same key and comes first.
TEST(SearchTiesTest, AMissingBeamThatTiesWithTheLastCandidateIsWaitedFor) {
  const auto row = [](std::vector<std::pair<TokenId, double>> masses) {
    std::vector<double> logs(kVocab, kNothing);
    for (const auto& [token, mass] : masses) logs[token] = sampling::Log(mass);
    return logs;
  };
  const auto after = [](std::vector<TokenId> path) { return sampling::HashPath(path); };
  test::NamedSetting s;
  s.params.kind = sampling::DecodingKind::kBeamSearch;
  s.params.method = FindMethod("speculative_beam_search");
  s.params.beam_width = s.params.num_hypotheses = 3;
  s.params.max_tokens = 2;
  s.draft_width = 2;
  s.draft_depth = 1;
  s.target = [&](uint64_t hash) {
    if (hash == sampling::kRootHash) return row({{0, 0.5}, {1, 0.25}, {2, 0.25}});
    if (hash == after({0})) return row({{0, 0.5}, {1, 0.5}});
    return row({{3, 1.0}});
  };
  s.draft = [&](uint64_t) { return row({{0, 0.5}, {2, 0.5}}); };
  const test::NamedRun run = test::RunNamed(s);
  ASSERT_EQ(run.layers, (std::vector<int>{1, 1}));  // the second round gets B's row
  ASSERT_EQ(run.result.size(), 3u);
  std::vector<std::vector<TokenId>> paths;
  for (const Hypothesis& hypothesis : run.result) {
    EXPECT_EQ(hypothesis.joint_log_probability, run.result[0].joint_log_probability);
    paths.push_back(hypothesis.tokens);
  }
  EXPECT_EQ(paths, (std::vector<std::vector<TokenId>>{{0, 0}, {0, 1}, {1, 3}}));
  ExpectReference(run, ReferenceDecoder(s.params, s.target, kVocab).Run());
}

}  // namespace
}  // namespace coppice::decoding
