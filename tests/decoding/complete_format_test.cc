// Decodes with a format whose texts end by themselves: the token that completes a text ends the
// hypothesis, without a stop id. Beam search equals the ranking of all texts, drawn texts have
// their exact distribution, and whatever the method and the draft, the output is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "decoding/layer/dsbd_wor.h"
#include "decoding/method.h"
#include "lab/exact/layered_distribution.h"
#include "lab/exact/tree_distribution.h"
#include "tests/decoding/random_setting.h"
#include "tests/testing/formatted_model.h"
#include "tests/testing/item_format.h"
#include "tests/testing/named_decode.h"

namespace coppice::decoding {
namespace {

using Items = std::vector<std::vector<TokenId>>;
using Kind = sampling::DecodingKind;

// None begins another one; up to `longest` tokens.
Items RandomItems(uint64_t seed, int vocab, int most, int longest) {
  Picker pick(seed);
  Items items;
  for (int tries = 0; tries < 4 * most && static_cast<int>(items.size()) < most; ++tries) {
    std::vector<TokenId> item(1 + pick(longest));
    for (TokenId& token : item) token = pick(vocab);
    const auto begins = [&item](const std::vector<TokenId>& other) {
      const size_t length = std::min(item.size(), other.size());
      return std::equal(item.begin(), item.begin() + length, other.begin());
    };
    if (std::none_of(items.begin(), items.end(), begins)) items.push_back(item);
  }
  return items;
}

enum class Drafts { kNone, kKnowing, kUnknowing };

struct Case {
  std::shared_ptr<const test::ItemFormat> format;
  test::NamedSetting setting;  // of a draft that knows the format
  test::LogProbsOf unknowing;
};

Case Random(const MethodRow& row, Kind kind, uint64_t seed) {
  Picker pick(seed + 77);
  DecodeSetting s = RandomSetting(seed, kind);
  NeverStop(&s.params);
  s.params.min_tokens = 0;
  s.params.method = &row;
  s.lm.vocab_size = 3 + pick(5);
  s.params.sampling.logit_bias.clear();
  if (row.greedy_only && kind == Kind::kMultinomial) {
    s.params.sampling = sampling::SamplingParams();
    s.params.sampling.temperature = 0;
  }
  if (row.form == DraftForm::kTree) s.params.draft_tree = row.most_children == 1 ? "1-1" : "2-2-1";
  if (row.form == DraftForm::kNone) s.depth = 0;
  const int longest = 1 + pick(4);
  s.params.max_tokens = longest;
  Case out;
  out.format = std::make_shared<const test::ItemFormat>(
      RandomItems(seed, s.lm.vocab_size, 1 + pick(30), longest));
  s.params.format = out.format;
  const auto book = std::make_shared<test::GrowingBook>(s.lm.vocab_size);
  out.setting.params = s.params;
  out.setting.draft_width = row.form == DraftForm::kPath ? 1 : s.draft_width;
  out.setting.draft_depth = s.depth;
  out.setting.target =
      test::Unformatted([lm = s.lm](uint64_t hash) { return lm.TargetLogProbs(hash); }, book);
  const test::LogProbsOf draft = [lm = s.lm, quality = s.quality](uint64_t hash) {
    const sampling::Distribution q = test::HashLmDraftRow(lm, hash, quality);
    std::vector<double> dense(lm.vocab_size, -std::numeric_limits<double>::infinity());
    for (size_t i = 0; i < q.size(); ++i) dense[q.tokens[i]] = q.log_probs[i];
    return dense;
  };
  out.setting.draft = test::DraftedRows(draft, s.params, book);
  out.unknowing = test::DraftedRows(draft, test::WithoutFormat(s.params), book);
  return out;
}

std::vector<Hypothesis> Decode(const Case& c, Drafts drafts, bool in_f32 = false) {
  const test::NamedSetting& s = c.setting;
  const auto decoder = MakeBeamDecoder(s.params).value();
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    const int depth = std::min(s.draft_depth, decoder->max_useful_depth());
    DraftForest forest = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    if (depth > 0 && drafts != Drafts::kNone) {
      const bool knows = drafts == Drafts::kKnowing;
      DecodingParams params = s.params;
      if (!knows) params.format = nullptr;
      const auto drafter = MakeDrafter(params, state, s.draft_width).value();
      forest = test::GrowForest(knows ? s.draft : c.unknowing, state, depth, drafter.get());
      for (int node = 0; knows && node < forest.size(); ++node) {  // nothing below a whole text
        if (forest.parent[node].is_root()) continue;
        OutputFormat::State above = c.format->Start();
        std::vector<TokenId> path =
            decoder->paths().Tokens(decoder->roots()[Index(forest.RootOf(forest.parent[node]))]);
        forest.AppendPath(forest.parent[node], &path);
        for (const TokenId token : path) above = c.format->Next(above, token);
        EXPECT_FALSE(c.format->Complete(above));
      }
    }
    test::FunctionRows rows(s.target, state.root_hash, forest, in_f32);
    decoder->Advance(forest, &rows);
    for (const PathId root : decoder->roots()) {
      const OutputFormat::State after = decoder->paths().format_state(root);
      EXPECT_NE(after, OutputFormat::kBroken);
      EXPECT_FALSE(c.format->Complete(after));
    }
  }
  return decoder->Result();
}

bool SameBits(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const Hypothesis& x, const Hypothesis& y) {
        return x.tokens == y.tokens && x.score == y.score &&
               x.joint_log_probability == y.joint_log_probability && x.finished == y.finished;
      });
}

// Every method, kind of decoding and draft. Reproducible methods give the same bits with any draft.
TEST(CompleteFormat, EveryMethodGivesWholeTextsWithAnyDraft) {
  int cases = 0, shorter = 0;
  for (const MethodRow& row : Methods()) {
    for (const Kind kind : row.serves) {
      for (uint64_t seed = 0; seed < 150 && !HasFailure(); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << row.name << " " << sampling::DecodingKindName(kind) << " " << seed);
        const Case c = Random(row, kind, seed);
        if (!MakeBeamDecoder(c.setting.params).ok()) continue;
        const bool in_f32 = seed % 2 == 0;
        const std::vector<Hypothesis> plain = Decode(c, Drafts::kNone, in_f32);
        for (const Drafts drafts : {Drafts::kNone, Drafts::kKnowing, Drafts::kUnknowing}) {
          const std::vector<Hypothesis> result = Decode(c, drafts, in_f32);
          ASSERT_FALSE(result.empty());
          for (const Hypothesis& hypothesis : result) {
            EXPECT_TRUE(c.format->Has(hypothesis.tokens))
                << testing::PrintToString(hypothesis.tokens);
            EXPECT_TRUE(hypothesis.finished);
            shorter += hypothesis.tokens.size() < static_cast<size_t>(c.setting.params.max_tokens);
          }
          EXPECT_TRUE(!row.reproducible || SameBits(result, plain));
        }
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 2000);
  EXPECT_GT(shorter, 1000);
}

struct Ranked {
  std::vector<TokenId> tokens;
  double score = 0;
  bool operator<(const Ranked& other) const {
    return score != other.score ? score > other.score : tokens < other.tokens;
  }
};

// All texts by the sum of the model's log-probabilities of their tokens, best first.
std::vector<Ranked> RankAll(const Items& items, const test::HashLm& lm) {
  std::vector<Ranked> ranked;
  for (const std::vector<TokenId>& item : items) {
    double score = 0;
    uint64_t hash = sampling::kRootHash;
    for (const TokenId token : item) {
      score += lm.TargetLogProbs(hash)[token];
      hash = sampling::ExtendHash(hash, token);
    }
    ranked.push_back({item, score});
  }
  std::sort(ranked.begin(), ranked.end());
  return ranked;
}

// Beam search by docs/algorithms.md 3.5 and 8: an end among the W best children of a layer is kept,
// the others fill W beams, and the result is the best W ends.
std::vector<Ranked> SearchByDefinition(const test::ItemFormat& format, const test::HashLm& lm,
                                       size_t width) {
  std::vector<Ranked> beams = {{}}, ended;
  while (!beams.empty()) {
    std::vector<Ranked> children;
    for (const Ranked& beam : beams) {
      const std::vector<double> row = lm.TargetLogProbs(sampling::HashPath(beam.tokens));
      OutputFormat::State state = format.Start();
      for (const TokenId token : beam.tokens) state = format.Next(state, token);
      const auto allowed = format.Allowed(state);
      for (const TokenId token : allowed->listed) {
        Ranked child = beam;
        child.tokens.push_back(token);
        child.score += row[token];
        children.push_back(child);
      }
    }
    std::sort(children.begin(), children.end());
    beams.clear();
    for (size_t rank = 0; rank < children.size() && beams.size() < width; ++rank) {
      const bool ends = format.Has(children[rank].tokens);
      if (!ends || rank < width) (ends ? ended : beams).push_back(children[rank]);
    }
  }
  std::sort(ended.begin(), ended.end());
  if (ended.size() > width) ended.resize(width);
  return ended;
}

DecodingParams SearchParams(const test::ItemFormat& format, size_t longest, int width) {
  DecodingParams params;
  params.kind = Kind::kBeamSearch;
  params.method = FindMethod("speculative_beam_search");
  params.beam_width = params.num_hypotheses = width;
  params.max_tokens = static_cast<int>(longest);
  params.length_penalty = 0;
  params.stop_when_full = false;
  params.format = std::make_shared<const test::ItemFormat>(format.items());
  return params;
}

void ExpectRanked(const std::vector<Hypothesis>& result, const std::vector<Ranked>& wanted) {
  ASSERT_EQ(result.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(result[i].score, wanted[i].score, 1e-12 * (1 - wanted[i].score)) << i;
    EXPECT_TRUE(result[i].finished);
    // Ties of the whole score come in any order.
    const bool tied = (i > 0 && wanted[i - 1].score - wanted[i].score < 1e-9) ||
                      (i + 1 < wanted.size() && wanted[i].score - wanted[i + 1].score < 1e-9);
    EXPECT_TRUE(tied || result[i].tokens == wanted[i].tokens) << i;
  }
}

std::vector<Hypothesis> Search(const DecodingParams& params, const test::HashLm& lm, int depth) {
  test::NamedSetting setting;
  setting.params = params;
  setting.draft_depth = depth;
  setting.draft_width = params.beam_width + 2;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  return test::RunNamed(setting).result;
}

// Texts of equal and of different lengths; widths from 1 to more than there are texts.
TEST(CompleteFormat, BeamSearchIsTheSearchByDefinition) {
  int cut = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const size_t longest = 1 + seed / 2 % 4;
    Items items = RandomItems(seed, 6, 40, static_cast<int>(longest));
    if (seed % 2 == 0)
      std::erase_if(items, [&](const auto& item) { return item.size() != longest; });
    if (items.empty()) continue;
    const test::ItemFormat format(items);
    const test::HashLm lm{6, seed, 3, seed + 31};
    for (int width = 1; width <= static_cast<int>(items.size()) + 3; ++width) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " width " << width);
      const std::vector<Ranked> wanted = SearchByDefinition(format, lm, width);
      const DecodingParams params = SearchParams(format, longest, width);
      for (const int depth : {0, 2}) ExpectRanked(Search(params, lm, depth), wanted);
      if (HasFailure()) return;
      cut += wanted.size() < items.size();
    }
  }
  EXPECT_GT(cut, 100);
}

// A search with as many beams as texts returns all, each with its own score, also those of
// different lengths.
TEST(CompleteFormat, AWideBeamSearchRanksAllTexts) {
  std::set<size_t> lengths;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Items items = RandomItems(seed, 5, 1 + seed % 30, 4);
    const test::ItemFormat format(items);
    const test::HashLm lm{5, seed, 4, seed + 31};
    for (const std::vector<TokenId>& item : items) lengths.insert(item.size());
    for (const size_t more : {size_t{0}, size_t{5}}) {
      const DecodingParams params = SearchParams(format, 4, static_cast<int>(items.size() + more));
      for (const int depth : {0, 3}) ExpectRanked(Search(params, lm, depth), RankAll(items, lm));
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(lengths.size(), 4u);
}

// Every rule of trees and paths, by enumeration: the distribution of the texts is the product of
// the rows over the tokens that the format allows.
TEST(CompleteFormat, SampledTextsHaveTheirExactDistribution) {
  const Items items = {{0}, {1, 0}, {1, 2}, {2, 0, 1}, {2, 0, 2}, {2, 1, 1}};
  const auto format = std::make_shared<const test::ItemFormat>(items);
  const test::HashLm lm{3, 9, 3, 40};
  const auto book = std::make_shared<test::GrowingBook>(3);
  const auto allowed_row = [&](const std::vector<TokenId>& path) {
    OutputFormat::State state = format->Start();
    for (const TokenId token : path) state = format->Next(state, token);
    const std::vector<double> row = lm.TargetLogProbs(sampling::HashPath(path));
    std::vector<double> kept(row.size(), 0);
    double sum = 0;
    const auto allowed = format->Allowed(state);
    for (const TokenId token : allowed->listed) sum += kept[token] = std::exp(row[token]);
    for (double& value : kept) value /= sum;
    return kept;
  };
  test::ExactDistribution wanted;
  for (const std::vector<TokenId>& item : items) {
    double probability = 1;
    for (size_t i = 0; i < item.size(); ++i)
      probability *= allowed_row({item.begin(), item.begin() + i})[item[i]];
    wanted[{item.begin(), item.end()}] = probability;
  }
  std::vector<test::TreeMethod> methods = test::TreeMethods();
  methods.push_back({"rejection", VerifyRrsIid, ChildSampling::kIid});
  methods.push_back({"block_verification", nullptr, ChildSampling::kIid});
  for (const test::TreeMethod& method : methods) {
    SCOPED_TRACE(method.name);
    test::TreeSetting setting;
    setting.params.max_tokens = 3;
    setting.params.format = format;
    const bool path = method.name == "rejection" || method.name == "block_verification";
    setting.params.draft_tree = path ? "chain" : "2-1";
    setting.rule = method.rule;
    setting.distribution = setting.relied_on = method.distribution;
    setting.target =
        test::Unformatted([lm](uint64_t hash) { return lm.TargetLogProbs(hash); }, book);
    setting.draft = test::DraftedRows([lm](uint64_t hash) { return lm.DraftLogProbs(hash); },
                                      setting.params, book);
    EXPECT_LE(test::TotalVariation(test::TreeDistribution(setting), wanted), 1e-12);
  }
}

// Layers of several beams, by enumeration. The closed distribution is that of a model without a
// format, which has the format in its rows and ends at the texts.
void ExpectLayersExact(test::LayeredSetting setting, Kind kind, int width) {
  const Items items = {{0}, {1, 0}, {1, 2}, {2, 0}, {2, 1}};
  const auto format = std::make_shared<const test::ItemFormat>(items);
  const test::HashLm lm{3, 21, 3, 52};
  const auto book = std::make_shared<test::GrowingBook>(3);
  setting.params.kind = kind;
  setting.params.beam_width = width;
  setting.params.max_tokens = 2;
  setting.params.format = format;
  setting.draft_width = 2;
  setting.draft_depth = 1;
  setting.target = test::Unformatted([lm](uint64_t hash) { return lm.TargetLogProbs(hash); }, book);
  for (const bool draft_knows : {true, false}) {
    setting.draft =
        test::DraftedRows([lm](uint64_t hash) { return lm.DraftLogProbs(hash); },
                          draft_knows ? setting.params : test::WithoutFormat(setting.params), book);
    test::LayeredSetting closed = setting;
    closed.params = test::WithoutFormat(setting.params);
    closed.target = [lm, book, format](uint64_t hash) {
      std::vector<double> row = lm.TargetLogProbs(hash);
      OutputFormat::State state = format->Start();
      for (const TokenId token : book->Tokens(hash)) state = format->Next(state, token);
      const auto allowed = format->Allowed(state);
      sampling::KeepAllowed(*allowed, absl::MakeSpan(row));
      return row;
    };
    closed.ends = [items](uint64_t hash) {
      return std::any_of(items.begin(), items.end(), [hash](const std::vector<TokenId>& item) {
        return sampling::HashPath(item) == hash;
      });
    };
    EXPECT_LT(test::LargestDifference(
                  test::LayeredDistribution(setting),
                  test::ClosedFixedWidthDistribution(closed, kind == Kind::kBeamSampling)),
              1e-12)
        << draft_knows;
  }
}

TEST(CompleteFormat, SampledLayersHaveTheirExactDistribution) {
  for (const bool refill : {true, false}) {
    test::LayeredSetting setting;
    setting.params.method = FindMethod("dsbd");
    setting.params.refill = refill;
    setting.params.stop_when_full = false;
    ExpectLayersExact(setting, Kind::kBeamSampling, 2);
  }
}

TEST(CompleteFormat, WalksWithoutReplacementHaveTheirExactDistribution) {
  test::LayeredSetting setting;
  setting.params.method = FindMethod("dsbd_wor");
  setting.params.stop_when_full = false;
  setting.rule = MakeDsbdWorRule;
  setting.drafts = DrawKind::kDistinct;
  for (const int width : {1, 2})
    ExpectLayersExact(setting, Kind::kBeamSamplingWithoutReplacement, width);
}

TEST(AllowedTokens, ListedAloneAreAsGoodAsBits) {
  AllowedTokens allowed;
  allowed.listed = {0, 3, 64, 130};
  allowed.count = 4;
  AllowedTokens bits;
  bits.count = 4;
  bits.bits.resize(3);
  for (const TokenId token : allowed.listed) bits.bits[token / 64] |= uint64_t{1} << (token % 64);
  for (TokenId token = -1; token < 200; ++token) EXPECT_EQ(allowed.Has(token), bits.Has(token));
  EXPECT_EQ(allowed.Tokens(), bits.Tokens());
  EXPECT_EQ(bits.Tokens(), allowed.listed);
  for (const size_t vocab : {1, 64, 65, 131, 200}) {
    std::vector<double> one(vocab, 1), other(vocab, 1);
    sampling::KeepAllowed(allowed, absl::MakeSpan(one));
    sampling::KeepAllowed(bits, absl::MakeSpan(other));
    EXPECT_EQ(one, other);
  }
  AllowedTokens none;
  EXPECT_FALSE(none.Has(0));
  EXPECT_TRUE(none.Tokens().empty());
}

}  // namespace
}  // namespace coppice::decoding
