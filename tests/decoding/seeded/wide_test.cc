// Beams as wide as recommenders use: searches and samplings of 50 to 1,024 beams are those of the
// reference, with drafts and without, and with a format that allows few tokens after each path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/named_decode.h"
#include "tests/testing/sparse_paths.h"

namespace coppice::decoding {
namespace {

constexpr int kVocab = 64;
constexpr TokenId kEnd = 0;
constexpr int kLength = 4;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

const test::SparsePaths& Few() {
  static const test::SparsePaths few(kVocab, /*one_in=*/4);
  return few;
}
bool Allows(uint64_t hash, TokenId token) { return Few().Allows(hash, token); }

// Tokens that the format does not allow have probability 0.
test::LogProbsOf Masked(test::LogProbsOf model) {
  return [model = std::move(model)](uint64_t hash) {
    std::vector<double> row = model(hash);
    double kept = 0;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (Allows(hash, token)) kept += std::exp(row[token]);
    }
    for (TokenId token = 0; token < kVocab; ++token)
      row[token] = Allows(hash, token) ? row[token] - std::log(kept) : kNothing;
    return row;
  };
}

// What the decoder sees of f32 rows.
test::LogProbsOf Rounded(test::LogProbsOf model) {
  return [model = std::move(model)](uint64_t hash) {
    std::vector<double> row = model(hash);
    for (double& value : row) value = static_cast<float>(value);
    return row;
  };
}

struct Wide {
  const char* method;
  sampling::DecodingKind kind;
  bool few;     // with a format
  bool ends;    // which ends every path after kLength tokens, as a catalogue of items does
  bool in_f32;  // as a model's rows are
};

void PrintTo(const Wide& wide, std::ostream* out) {
  *out << wide.method << (wide.few ? ", few tokens" : "") << (wide.ends ? " that end" : "")
       << (wide.in_f32 ? ", f32" : "");
}

class WideTest : public testing::TestWithParam<Wide> {};

test::NamedSetting Setting(const Wide& wide, int width, uint64_t seed) {
  test::NamedSetting s;
  s.params.kind = wide.kind;
  s.params.method = FindMethod(wide.method);
  s.params.beam_width = s.params.num_hypotheses = width;
  s.params.max_tokens = 5;
  s.params.seed = seed;
  s.params.stop_ids = {kEnd};
  s.params.stop_when_full = false;
  s.params.refill = true;
  if (wide.few) {
    s.params.format =
        std::make_shared<const test::SparsePaths>(kVocab, /*one_in=*/4, wide.ends ? kLength : 0);
  }
  if (wide.ends) s.params.stop_ids.clear();
  const test::HashLm lm{kVocab, seed, /*power=*/4, /*noise=*/seed + 31};
  s.target = test::Remembered([lm, wide](uint64_t hash) {
    std::vector<double> row = lm.TargetLogProbs(hash);
    // Logits of a model are not normalised.
    const double shift = wide.in_f32 ? static_cast<double>(hash % 7) - 2 : 0;
    for (double& value : row) value += shift;
    return row;
  });
  s.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  if (wide.few) s.draft = Masked(s.draft);
  s.draft = test::Remembered(s.draft);
  s.logits_in_f32 = wide.in_f32;
  s.draft_width = 2 * width;
  s.draft_depth = 3;
  return s;
}

void ExpectReference(const test::NamedRun& run, const std::vector<ReferenceBeam>& want) {
  ASSERT_EQ(run.result.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(run.result[i].tokens, want[i].path) << "hypothesis " << i;
    EXPECT_NEAR(run.result[i].joint_log_probability, want[i].log_score,
                1e-12 * (1 + std::abs(want[i].log_score)));
    EXPECT_EQ(run.result[i].finished, want[i].finished);
  }
}

TEST_P(WideTest, BeamsAreThoseOfTheReferenceWithDraftsAndWithout) {
  const Wide wide = GetParam();
  const bool ranks = wide.kind == sampling::DecodingKind::kBeamSearch;
  for (const int width : {50, 128, 512, 1024}) {
    for (uint64_t seed = 1; seed <= (width < 512 ? 4 : 1); ++seed) {
      SCOPED_TRACE(absl::StrCat("width ", width, ", seed ", seed));
      test::NamedSetting s = Setting(wide, width, seed);
      // Beam search does not renormalise what a format leaves; samplings do.
      test::LogProbsOf seen = wide.in_f32 ? Rounded(s.target) : s.target;
      DecodingParams params = s.params;
      params.format = nullptr;
      ReferenceDecoder reference(params, wide.few && !ranks ? Masked(seen) : seen, kVocab);
      if (wide.few && ranks) {
        reference.LeaveOut([](absl::Span<const TokenId> path, TokenId token) {
          return !Allows(sampling::HashPath(path), token);
        });
      }
      if (wide.ends) reference.EndAt(kLength);
      const std::vector<ReferenceBeam> want = reference.Run();
      // Slots may hold the same path, which is returned once.
      const bool slots = wide.kind == sampling::DecodingKind::kBeamSampling;
      ASSERT_GE(want.size(), static_cast<size_t>(slots ? width / 4 : width));
      const test::NamedRun drafted = test::RunNamed(s);
      ExpectReference(drafted, want);
      EXPECT_GT(*std::max_element(drafted.layers.begin(), drafted.layers.end()), 1);
      s.draft_depth = 0;
      ExpectReference(test::RunNamed(s), want);
    }
  }
}

std::vector<Wide> All() {
  std::vector<Wide> all;
  for (const auto& [few, ends] : {std::pair(false, false), {true, false}, {true, true}}) {
    for (const bool in_f32 : {false, true}) {
      all.push_back(
          {"speculative_beam_search", sampling::DecodingKind::kBeamSearch, few, ends, in_f32});
      all.push_back({"gumbel_top_k", sampling::DecodingKind::kBeamSamplingWithoutReplacement, few,
                     ends, in_f32});
      all.push_back({"gumbel_coupling", sampling::DecodingKind::kBeamSampling, few, ends, in_f32});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Methods, WideTest, testing::ValuesIn(All()),
                         [](const testing::TestParamInfo<Wide>& info) {
                           return absl::StrCat(info.param.method, info.param.few ? "_few" : "_all",
                                               info.param.ends ? "_ends" : "",
                                               info.param.in_f32 ? "_f32" : "_f64");
                         });

}  // namespace
}  // namespace coppice::decoding
