// Decodes over catalogues on small hashed models: every method gives items of the selection alone,
// with the bits that the definition of the format gives, and beam search ranks all items exactly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "catalogue/catalogue_format.h"
#include "tests/catalogue/sample_catalogue.h"
#include "tests/decoding/random_setting.h"
#include "tests/testing/formatted_model.h"
#include "tests/testing/item_format.h"
#include "tests/testing/named_decode.h"

namespace coppice::catalogue {
namespace {

using decoding::DecodingParams;
using decoding::Hypothesis;
using Kind = sampling::DecodingKind;
using Tokens = std::vector<TokenId>;

struct Case {
  std::shared_ptr<const Catalogue> catalogue;
  Selection selection;
  std::vector<Tokens> left;  // what may be generated, without the stop id
  test::NamedSetting setting;
  TokenId stop = -1;  // follows an item; -1: none
};

Case Random(const decoding::MethodRow& row, Kind kind, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const auto pick = [&random](int n) { return static_cast<int>(random() % n); };
  decoding::DecodeSetting s = decoding::RandomSetting(seed, kind);
  decoding::NeverStop(&s.params);
  s.params.min_tokens = 0;
  s.params.method = &row;
  s.params.sampling.logit_bias.clear();
  s.lm.vocab_size = 4 + pick(6);
  if (row.greedy_only && kind == Kind::kMultinomial) {
    s.params.sampling = sampling::SamplingParams();
    s.params.sampling.temperature = 0;
  }
  if (row.form == decoding::DraftForm::kTree)
    s.params.draft_tree = row.most_children == 1 ? "1-1" : "2-2-1";
  Case out;
  const ItemEnd end = pick(2) == 0 ? ItemEnd::kNone : ItemEnd::kStop;
  if (end == ItemEnd::kStop) s.params.stop_ids = {out.stop = s.lm.vocab_size - 1};
  const auto items = RandomItems(&random, s.lm.vocab_size - 1, 1 + pick(40), 1 + pick(4), end);
  out.catalogue = MakeCatalogue(items, end, s.lm.vocab_size);
  std::set<int64_t> left;
  for (int64_t item = 0; item < out.catalogue->items(); ++item) left.insert(item);
  for (int i = pick(3) == 0 ? pick(static_cast<int>(items.size())) : 0; i > 0; --i) {
    out.selection.excluded.push_back(pick(static_cast<int>(items.size())));
    left.erase(out.selection.excluded.back());
  }
  for (const int64_t item : left) out.left.push_back(out.catalogue->Tokens(item));
  s.params.max_tokens = out.catalogue->longest() + (out.stop < 0 ? 0 : 1);
  out.setting.params = s.params;
  out.setting.draft_width = row.form == decoding::DraftForm::kPath ? 1 : s.draft_width;
  out.setting.draft_depth = row.form == decoding::DraftForm::kNone ? 0 : s.depth;
  out.setting.logits_in_f32 = pick(2) == 0;
  out.setting.target = [lm = s.lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  out.setting.draft = [lm = s.lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  return out;
}

bool SameBits(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const Hypothesis& x, const Hypothesis& y) {
        return x.tokens == y.tokens && x.score == y.score &&
               x.joint_log_probability == y.joint_log_probability && x.finished == y.finished;
      });
}

TEST(CatalogueDecode, EveryMethodGivesItemsOfTheSelectionAlone) {
  int cases = 0, parts = 0, stops = 0;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    for (const Kind kind : row.serves) {
      for (uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
        SCOPED_TRACE(testing::Message()
                     << row.name << " " << sampling::DecodingKindName(kind) << " " << seed);
        Case c = Random(row, kind, seed);
        if (c.left.empty()) continue;
        DecodingParams& params = c.setting.params;
        params.format = *MakeCatalogueFormat(c.catalogue, c.selection, params.stop_ids);
        if (!MakeBeamDecoder(params).ok()) continue;
        const std::vector<Hypothesis> result = test::RunNamed(c.setting).result;
        ASSERT_FALSE(result.empty());
        for (const Hypothesis& hypothesis : result) {
          EXPECT_TRUE(hypothesis.finished);
          Tokens item = hypothesis.tokens;
          if (c.stop >= 0) {
            EXPECT_EQ(item.back(), c.stop);
            item.pop_back();
          }
          EXPECT_THAT(c.left, testing::Contains(item));
        }
        if (c.stop < 0) {  // the same bits as by the definition, which is no trie
          test::NamedSetting defined = c.setting;
          defined.params.format = std::make_shared<const test::ItemFormat>(c.left);
          EXPECT_TRUE(SameBits(test::RunNamed(defined).result, result));
        }
        ++cases;
        parts += !c.selection.excluded.empty();
        stops += c.stop >= 0;
      }
    }
  }
  EXPECT_GT(cases, 600);
  EXPECT_GT(parts, 100);
  EXPECT_GT(stops, 200);
}

struct Ranked {
  Tokens tokens;
  double score = 0;
  bool operator<(const Ranked& other) const {
    return score != other.score ? score > other.score : tokens < other.tokens;
  }
};

// The items, with the stop id if one follows, by the model's log-probability of their tokens.
std::vector<Ranked> RankAll(const std::vector<SampleItem>& items, TokenId stop,
                            const test::HashLm& lm) {
  std::vector<Ranked> ranked;
  for (const SampleItem& item : items) {
    Ranked next{item.tokens};
    if (stop >= 0) next.tokens.push_back(stop);
    uint64_t hash = sampling::kRootHash;
    for (const TokenId token : next.tokens) {
      next.score += lm.TargetLogProbs(hash)[token];
      hash = sampling::ExtendHash(hash, token);
    }
    ranked.push_back(next);
  }
  std::sort(ranked.begin(), ranked.end());
  return ranked;
}

// Beam search by its definition over items of one length, best first.
std::vector<Ranked> SearchByDefinition(const std::vector<SampleItem>& items, size_t width,
                                       const test::HashLm& lm) {
  std::vector<Ranked> beams = {{}};
  for (size_t layer = 0; layer < items[0].tokens.size(); ++layer) {
    std::set<Tokens> paths;
    for (const SampleItem& item : items)
      paths.insert(Tokens(item.tokens.begin(), item.tokens.begin() + layer + 1));
    std::vector<Ranked> children;
    for (const Ranked& beam : beams) {
      const std::vector<double> row = lm.TargetLogProbs(sampling::HashPath(beam.tokens));
      for (TokenId token = 0; token < lm.vocab_size; ++token) {
        Ranked child = beam;
        child.tokens.push_back(token);
        child.score += row[token];
        if (paths.count(child.tokens) > 0) children.push_back(child);
      }
    }
    std::sort(children.begin(), children.end());
    if (children.size() > width) children.resize(width);
    beams = children;
  }
  return beams;
}

std::vector<Hypothesis> Search(const std::shared_ptr<const Catalogue>& catalogue, TokenId stop,
                               int width, int depth, const test::HashLm& lm) {
  test::NamedSetting setting;
  DecodingParams& params = setting.params;
  params.kind = Kind::kBeamSearch;
  params.beam_width = params.num_hypotheses = width;
  params.max_tokens = catalogue->longest() + (stop < 0 ? 0 : 1);
  params.length_penalty = 0;
  params.stop_when_full = false;
  if (stop >= 0) params.stop_ids = {stop};
  params.format = *MakeCatalogueFormat(catalogue, {}, params.stop_ids);
  setting.draft_depth = depth;
  setting.draft_width = width + 2;
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [lm](uint64_t hash) { return lm.DraftLogProbs(hash); };
  return test::RunNamed(setting).result;
}

void ExpectRanked(const std::vector<Hypothesis>& result, const std::vector<Ranked>& wanted) {
  ASSERT_EQ(result.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(result[i].finished);
    EXPECT_NEAR(result[i].score, wanted[i].score, 1e-12 * (1 - wanted[i].score)) << i;
    // Items with the same score may come in any order.
    const bool tied = (i > 0 && wanted[i - 1].score - wanted[i].score < 1e-9) ||
                      (i + 1 < wanted.size() && wanted[i].score - wanted[i + 1].score < 1e-9);
    EXPECT_TRUE(tied || result[i].tokens == wanted[i].tokens) << i;
  }
}

// Widths from 1 to more than there are items, which then all come.
TEST(CatalogueDecode, BeamSearchIsTheSearchByDefinition) {
  int narrow = 0, wide = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const int longest = 1 + static_cast<int>(seed % 4);
    auto items = RandomItems(&random, 6, 60, longest, ItemEnd::kNone);
    std::erase_if(items, [&](const SampleItem& item) {
      return item.tokens.size() != static_cast<size_t>(longest);
    });
    if (items.empty()) continue;
    const auto catalogue = MakeCatalogue(items, ItemEnd::kNone, 6);
    const test::HashLm lm{6, seed, 3, seed + 31};
    for (int width = 1; width <= static_cast<int>(items.size()) + 3; ++width) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " width " << width);
      const std::vector<Ranked> wanted = SearchByDefinition(items, width, lm);
      for (const int depth : {0, 2}) ExpectRanked(Search(catalogue, -1, width, depth, lm), wanted);
      if (HasFailure()) return;
      ++(wanted.size() < items.size() ? narrow : wide);
    }
  }
  EXPECT_GT(narrow, 50);
  EXPECT_GT(wide, 20);
}

// Twenty thousand items, with other tokens at each level, and as many beams as recommenders use.
TEST(CatalogueDecode, FiveHundredBeamsAreTheSearchByDefinition) {
  std::mt19937 random(9);
  std::set<Tokens> known;
  std::vector<SampleItem> items;
  while (items.size() < 20'000) {
    Tokens tokens;
    for (int level = 0; level < 3; ++level)
      tokens.push_back(level * 60 + static_cast<int>(random() % 60));
    if (known.insert(tokens).second) items.push_back({tokens, absl::StrCat(items.size()), ""});
  }
  const auto catalogue = MakeCatalogue(items, ItemEnd::kNone, 180);
  const test::HashLm lm{180, 4, 8, 41};
  for (const int width : {50, 128, 512}) {
    SCOPED_TRACE(width);
    const std::vector<Ranked> wanted = SearchByDefinition(items, width, lm);
    ASSERT_EQ(wanted.size(), static_cast<size_t>(width));
    for (const int depth : {0, 2}) {
      const std::vector<Hypothesis> result = Search(catalogue, -1, width, depth, lm);
      ExpectRanked(result, wanted);
      std::set<Tokens> found, all;
      for (const Hypothesis& hypothesis : result) found.insert(hypothesis.tokens);
      for (const Ranked& item : wanted) all.insert(item.tokens);
      EXPECT_EQ(found, all);
    }
  }
}

// Items of several lengths, and such that begin others, whose end counts.
TEST(CatalogueDecode, AWideBeamSearchRanksAllItems) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const ItemEnd end = seed % 2 == 0 ? ItemEnd::kNone : ItemEnd::kStop;
    const TokenId stop = end == ItemEnd::kNone ? -1 : 5;
    const auto items = RandomItems(&random, 5, 1 + static_cast<int>(seed), 4, end);
    const auto catalogue = MakeCatalogue(items, end, 6);
    const test::HashLm lm{6, seed, 4, seed + 31};
    SCOPED_TRACE(seed);
    // A text and its continuation are two beams, so that there can be twice as many as items.
    for (const int width : {2 * static_cast<int>(items.size()), 100}) {
      for (const int depth : {0, 3})
        ExpectRanked(Search(catalogue, stop, width, depth, lm), RankAll(items, stop, lm));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace coppice::catalogue
