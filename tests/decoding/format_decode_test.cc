// Whole decodes with formats by every method. The seeded ones equal a second implementation on the
// model that has the format in its rows, bit by bit with any draft. Lossless sampling methods
// follow the distribution of that model (G-tests). And whatever the method and the draft, the
// output has the format.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "lab/exact/tree_distribution.h"
#include "tests/decoding/format_setting.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/g_test.h"

namespace coppice::decoding {
namespace {

using namespace format_setting;  // NOLINT: the whole file is about it

constexpr double kBias = 0.05;  // total variation that the G-tests see

// How drafts are made: none, by a node that knows the format, by one that does not.
enum class Drafts { kNone, kKnowing, kUnknowing };

// A format whose tokens are not listed, as those of a large vocabulary are not.
class Unlisted : public OutputFormat {
 public:
  explicit Unlisted(std::shared_ptr<const OutputFormat> format) : format_(std::move(format)) {}
  State Start() const override { return format_->Start(); }
  State Next(State state, TokenId token) const override { return format_->Next(state, token); }
  std::shared_ptr<const AllowedTokens> Allowed(State state) const override {
    const auto listed = format_->Allowed(state);
    if (listed == nullptr) return nullptr;
    auto allowed = std::make_shared<AllowedTokens>(*listed);
    allowed->listed.clear();
    return allowed;
  }
  bool CutShort(State state) const override { return format_->CutShort(state); }

 private:
  std::shared_ptr<const OutputFormat> format_;
};

// As FormattedModels, for random vocabularies, drafts and formats.
struct RandomDecode {
  DecodeSetting s;
  std::shared_ptr<const test::ToyFormat> format;
  test::NamedSetting named;
  test::LogProbsOf closed;
  std::shared_ptr<test::GrowingBook> book;
};

// "a", "b" and "c" are tokens that do not stop, so every text can go on.
RandomDecode Random(const MethodRow& row, sampling::DecodingKind kind, uint64_t seed) {
  RandomDecode random{RandomSetting(seed, kind), nullptr, {}, nullptr, nullptr};
  DecodeSetting& s = random.s;
  Picker pick(seed + 1000000);
  s.lm.vocab_size = 6 + pick(10);
  s.params.stop_ids = {pick(2) == 0 || s.lm.vocab_size <= 10 ? 3 : 10};
  s.params.min_tokens = 0;
  s.params.method = &row;
  if (s.params.stop_text != nullptr)  // of another vocabulary
    test::SetToyStops(s.params.stop_strings, s.lm.vocab_size, &s.params);
  if (row.greedy_only && kind == sampling::DecodingKind::kMultinomial) {
    s.params.sampling = sampling::SamplingParams();
    s.params.sampling.temperature = 0;
  }
  random.format = std::make_shared<const test::ToyFormat>(test::RandomExpression(seed, 1 + pick(3)),
                                                          s.lm.vocab_size, s.params.stop_ids);
  s.params.format = random.format->Make();
  const auto book = random.book = std::make_shared<test::GrowingBook>(s.lm.vocab_size);
  const test::LogProbsOf target = [lm = s.lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  random.named.target = test::Unformatted(target, book);
  random.closed = test::Formatted(target, random.format, book);
  random.named.params = s.params;
  random.named.draft_width = row.form == DraftForm::kPath ? 1 : s.draft_width;
  random.named.draft = [=, lm = s.lm, quality = s.quality](uint64_t hash) {
    const sampling::Distribution q = test::HashLmDraftRow(lm, hash, quality);
    std::vector<double> dense(lm.vocab_size, -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < q.size(); ++i) dense[q.tokens[i]] = q.log_probs[i];
    book->Tokens(hash);
    return dense;
  };
  return random;
}

test::NamedSetting With(const RandomDecode& random, Drafts drafts) {
  test::NamedSetting setting = random.named;
  setting.draft_depth = drafts == Drafts::kNone ? 0 : random.s.depth;
  if (drafts == Drafts::kKnowing)
    setting.draft = test::DraftedRows(random.named.draft, random.s.params, random.book);
  return setting;
}

void ExpectSameBits(const test::NamedRun& one, const test::NamedRun& other) {
  ASSERT_EQ(one.result.size(), other.result.size());
  for (size_t i = 0; i < one.result.size(); ++i) {
    EXPECT_EQ(one.result[i].tokens, other.result[i].tokens);
    EXPECT_EQ(one.result[i].joint_log_probability, other.result[i].joint_log_probability);
    EXPECT_EQ(one.result[i].score, other.result[i].score);
    EXPECT_EQ(one.result[i].finished, other.result[i].finished);
  }
}

// Each seed is another format, model, sampling parameters, width, depth and draft.
TEST(FormatEquality, ReproducibleMethodsEqualTheReferenceWithAnyDraft) {
  int compared = 0, methods = 0;
  double largest = 0;
  for (const MethodRow& row : Methods()) {
    if (!row.reproducible) continue;
    ++methods;
    for (const sampling::DecodingKind kind : row.serves) {
      for (uint64_t seed = 0; seed < 250 && !HasFailure(); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << row.name << " " << sampling::DecodingKindName(kind) << " " << seed);
        const RandomDecode random = Random(row, kind, seed);
        const test::NamedRun plain = test::RunNamed(With(random, Drafts::kNone));
        const bool ranks = kind == sampling::DecodingKind::kBeamSearch;
        ReferenceDecoder reference(test::WithoutFormat(random.s.params),
                                   ranks ? random.named.target : random.closed,
                                   random.s.lm.vocab_size);
        if (ranks) {
          reference.LeaveOut([&](absl::Span<const TokenId> path, TokenId token) {
            return !random.format->Allows(path, token);
          });
        }
        const std::vector<ReferenceBeam> wanted = reference.Run();
        ASSERT_EQ(plain.result.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          ASSERT_EQ(plain.result[i].tokens, wanted[i].path);
          ASSERT_EQ(plain.result[i].finished, wanted[i].finished);
          const double difference =
              std::abs(plain.result[i].joint_log_probability - wanted[i].log_score);
          ASSERT_LE(difference, 1e-12 * (1 + std::abs(wanted[i].log_score)));
          largest = std::max(largest, difference);
        }
        ExpectSameBits(test::RunNamed(With(random, Drafts::kKnowing)), plain);
        ExpectSameBits(test::RunNamed(With(random, Drafts::kUnknowing)), plain);
        // f32 rows are read by their lists.
        test::NamedSetting f32 = With(random, Drafts::kNone);
        f32.logits_in_f32 = true;
        const test::NamedRun listed = test::RunNamed(f32);
        for (const Drafts drafts : {Drafts::kKnowing, Drafts::kUnknowing}) {
          f32 = With(random, drafts);
          f32.logits_in_f32 = true;
          ExpectSameBits(test::RunNamed(f32), listed);
        }
        // So are f32 rows with more tokens than are listed, from which the same is drawn.
        f32 = With(random, Drafts::kUnknowing);
        f32.logits_in_f32 = true;
        f32.params.format = std::make_shared<Unlisted>(f32.params.format);
        const test::NamedRun whole = test::RunNamed(f32);
        ASSERT_EQ(whole.result.size(), listed.result.size());
        for (size_t i = 0; i < whole.result.size(); ++i) {
          ASSERT_EQ(whole.result[i].tokens, listed.result[i].tokens);
          ASSERT_NEAR(whole.result[i].joint_log_probability, listed.result[i].joint_log_probability,
                      1e-12 * (1 - listed.result[i].joint_log_probability));
        }
        compared += 7;
      }
    }
  }
  EXPECT_GE(methods, 4);
  EXPECT_GE(compared, 7 * 250 * 7);
  RecordProperty("compared", compared);
  RecordProperty("largest_difference", testing::PrintToString(largest));
}

// ---- every method ----

// Runs a decode. After every round no live beam is broken, and the rows that were decided follow
// the format.
std::vector<Hypothesis> RunChecked(const test::NamedSetting& setting, int* rounds) {
  const auto decoder = MakeBeamDecoder(setting.params).value();
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    const int depth = std::min(setting.draft_depth, decoder->max_useful_depth());
    DraftForest forest = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    if (depth > 0) {
      const auto drafter = MakeDrafter(setting.params, state, setting.draft_width).value();
      forest = test::GrowForest(setting.draft, state, depth, drafter.get());
    }
    test::FunctionRows rows(setting.target, state.root_hash, forest, setting.logits_in_f32);
    decoder->Advance(forest, &rows);
    for (const PathId root : decoder->roots())
      EXPECT_NE(decoder->paths().format_state(root), OutputFormat::kBroken);
    ++*rounds;
  }
  return decoder->Result();
}

struct Ends {
  int finished = 0, longest = 0, rounds = 0;
};

void ExpectOutputsHaveTheFormat(const RandomDecode& random, const test::NamedSetting& setting,
                                Ends* ends) {
  const std::vector<Hypothesis> result = RunChecked(setting, &ends->rounds);
  ASSERT_FALSE(result.empty());
  for (const Hypothesis& hypothesis : result) {
    ASSERT_FALSE(hypothesis.tokens.empty());
    EXPECT_TRUE(random.format->AllowsAll(hypothesis.tokens));
    const bool by_stop = random.format->Stops(hypothesis.tokens.back());
    const bool by_text = test::ToyTextEnds(setting.params, hypothesis.tokens);
    EXPECT_EQ(hypothesis.finished, by_stop || by_text);
    EXPECT_TRUE(std::isfinite(hypothesis.joint_log_probability));
    ++(hypothesis.finished ? ends->finished : ends->longest);
  }
}

TEST(FormatOutput, EveryMethodKeepsTheFormatWithAnyDraft) {
  Ends ends;
  int cases = 0;
  for (const MethodRow& row : Methods()) {
    for (const sampling::DecodingKind kind : row.serves) {
      for (uint64_t seed = 0; seed < 120; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << row.name << " " << sampling::DecodingKindName(kind) << " " << seed);
        RandomDecode random = Random(row, kind, 7000 + seed);
        if (row.form == DraftForm::kTree)
          random.named.params.draft_tree = row.most_children == 1 ? "1-1" : "2-2-1";
        if (row.form == DraftForm::kNone) random.s.depth = 0;
        // Lossy methods serve temperature 0, too.
        if (!row.lossless && kind == sampling::DecodingKind::kMultinomial && seed % 2 == 0)
          random.named.params.sampling.temperature = 0;
        random.named.params.set_semantics = random.named.params.set_semantics && row.lossless;
        if (!MakeBeamDecoder(random.named.params).ok()) continue;
        for (const Drafts drafts : {Drafts::kKnowing, Drafts::kUnknowing}) {
          test::NamedSetting setting = With(random, drafts);
          setting.logits_in_f32 = seed / 2 % 2 == 0;
          ExpectOutputsHaveTheFormat(random, setting, &ends);
          if (HasFailure()) return;
        }
        ++cases;
      }
    }
  }
  EXPECT_GT(ends.finished, 5000);
  EXPECT_GT(ends.longest, 1000);
  EXPECT_GT(cases, 2500);
  RecordProperty("cases", cases);
  RecordProperty("finished", ends.finished);
  RecordProperty("longest", ends.longest);
}

// Whether the few tokens that are allowed are read from a list or from the whole row, the greedy
// choice is the likeliest of them.
TEST(FormatOutput, GreedyIsTheLikeliestAllowedToken) {
  int methods = 0, tokens = 0;
  for (const MethodRow& row : Methods()) {
    if (std::count(row.serves.begin(), row.serves.end(), sampling::DecodingKind::kMultinomial) == 0)
      continue;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(testing::Message() << row.name << " " << seed);
      RandomDecode random = Random(row, sampling::DecodingKind::kMultinomial, 9000 + seed);
      DecodingParams& params = random.named.params;
      params.sampling = sampling::SamplingParams();
      params.sampling.temperature = 0;
      params.joint_tokens = 1;  // mjgd: of its greedy choice
      params.draft_beams = 1;
      if (!MakeBeamDecoder(params).ok()) continue;
      for (const bool f32 : {false, true}) {
        test::NamedSetting setting = With(random, Drafts::kNone);
        setting.logits_in_f32 = f32;
        const std::vector<TokenId> got = test::RunNamed(setting).result[0].tokens;
        uint64_t hash = sampling::kRootHash;
        for (const TokenId token : got) {
          const std::vector<double> left = random.closed(hash);
          ASSERT_EQ(token, std::max_element(left.begin(), left.end()) - left.begin());
          hash = sampling::ExtendHash(hash, token);
          ++tokens;
        }
      }
      methods += seed == 0 ? 1 : 0;
    }
  }
  EXPECT_GE(methods, 5);
  EXPECT_GT(tokens, 1000);
}

// ---- distributions of sampled sequences ----

using Outcome = std::vector<uint64_t>;

TEST(FormatDistribution, SequencesOfEveryLosslessMethod) {
  int methods = 0;
  const std::vector<NamedLanguage> languages = Languages();
  for (const MethodRow* row : test::MethodsThatServe(sampling::DecodingKind::kMultinomial)) {
    if (!row->lossless) continue;
    for (const bool draft_knows : {true, false}) {
      const NamedLanguage& language = languages[(methods + (draft_knows ? 0 : 2)) % 5];
      const test::NamedSetting setting =
          Named(*row, sampling::DecodingKind::kMultinomial, language.whole, draft_knows);
      test::TreeSetting closed;
      closed.params = test::WithoutFormat(setting.params);
      closed.target = ClosedRows(language.whole);
      const test::ExactDistribution distribution = test::MultinomialDistribution(closed);
      const test::Sampler<Outcome> sample = [&](uint64_t seed, Outcome* outcome) {
        test::NamedSetting seeded = setting;
        seeded.params.seed = seed;
        seeded.logits_in_f32 = seed % 2 == 0;
        const std::vector<TokenId> tokens = test::RunNamed(seeded).result[0].tokens;
        outcome->assign(tokens.begin(), tokens.end());
        return true;
      };
      EXPECT_TRUE(test::FitsOnceOfTwice(distribution, sample,
                                        test::SamplesToSee(kBias, distribution.size())))
          << row->name << " " << language.name << (draft_knows ? " known" : "");
    }
    ++methods;
  }
  EXPECT_GE(methods, 12);
}

}  // namespace
}  // namespace coppice::decoding
