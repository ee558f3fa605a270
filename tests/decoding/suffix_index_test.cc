#include "decoding/suffix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "decoding/suffix_corpus.h"

namespace coppice::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A prompt, paths after it, and every text that ends at a node.
struct Texts {
  std::vector<TokenId> prompt;
  PathTree paths;

  std::vector<TokenId> Of(PathId path) const {
    std::vector<TokenId> text = prompt;
    for (const TokenId token : paths.Tokens(path)) text.push_back(token);
    return text;
  }
};

int EqualEnds(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  int equal = 0;
  while (equal < static_cast<int>(std::min(a.size(), b.size())) &&
         a[a.size() - 1 - equal] == b[b.size() - 1 - equal])
    ++equal;
  return std::min(equal, SuffixIndex::kLongest);
}

// Of every place that something follows, by comparing all tokens.
std::map<int32_t, int> Search(const Texts& texts, const SuffixIndex& index,
                              const std::vector<TokenId>& text) {
  std::map<int32_t, int> found;
  int longest = 0;
  const auto look = [&](int32_t node, const std::vector<TokenId>& before) {
    const int equal = EqualEnds(before, text);
    if (equal < SuffixIndex::kShortest || index.FirstChild(node) < 0) return;
    found[node] = equal;
    longest = std::max(longest, equal);
  };
  const int root = static_cast<int>(texts.prompt.size()) - 1;
  for (int i = 0; i < root; ++i) look(i, {texts.prompt.begin(), texts.prompt.begin() + i + 1});
  for (int path = 0; path < texts.paths.size(); ++path) look(root + path, texts.Of(PathId{path}));
  if (longest >= 5) std::erase_if(found, [](const auto& entry) { return entry.second < 5; });
  return found;
}

TEST(SuffixIndexTest, FindsWhatASearchOfAllTextsFinds) {
  int long_ones = 0, short_ones = 0;
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const bool grows = seed % 4 == 0;  // beyond the first size of its tables
    const int vocab = 2 + seed % 5 + (grows ? 20 : 0);
    Texts texts;
    for (int i = 0; i < (grows ? 220 : 1) + seed % 40; ++i)
      texts.prompt.push_back(static_cast<TokenId>(random() % vocab));
    SuffixIndex index(texts.prompt);
    std::vector<PathId> beams = {kRootPath};
    for (int layer = 0; layer < 16; ++layer) {
      std::vector<PathId> next;
      for (int i = 0; i < 1 + seed % 3; ++i) {
        next.push_back(texts.paths.Extend(beams[random() % beams.size()],
                                          static_cast<TokenId>(random() % vocab)));
      }
      beams = next;
      index.Add(texts.paths);
      for (const PathId beam : beams) {
        const std::vector<TokenId> text = texts.Of(beam);
        ASSERT_EQ(index.token(index.NodeOf(beam)), text.back());
        std::map<int32_t, int> got;
        for (const SuffixIndex::Match& match : index.Find(text)) got[match.node] = match.length;
        const std::map<int32_t, int> want = Search(texts, index, text);
        if (want.size() > SuffixIndex::kMostMatches) continue;
        ASSERT_EQ(got, want);
        for (const auto& [node, length] : want) ++(length >= 5 ? long_ones : short_ones);
      }
    }
  }
  EXPECT_GT(long_ones, 200);
  EXPECT_GT(short_ones, 1000);
}

std::vector<TokenId> Children(const SuffixIndex& index, int32_t node) {
  std::vector<TokenId> tokens;
  for (int32_t child = index.FirstChild(node); child >= 0; child = index.NextChild(child))
    tokens.push_back(index.token(child));
  return tokens;
}

TEST(SuffixIndexTest, WhatFollowsAPlaceIsInEveryBeam) {
  PathTree paths;
  SuffixIndex index(std::vector<TokenId>{3, 4});
  const PathId a = paths.Extend(kRootPath, 5), b = paths.Extend(kRootPath, 6);
  paths.Extend(a, 7);
  paths.Extend(b, 8);
  paths.Extend(b, 9);
  index.Add(paths);
  EXPECT_THAT(Children(index, 0), ElementsAre(4));
  EXPECT_THAT(Children(index, index.NodeOf(kRootPath)), ElementsAre(6, 5));
  EXPECT_THAT(Children(index, index.NodeOf(a)), ElementsAre(7));
  EXPECT_THAT(Children(index, index.NodeOf(b)), ElementsAre(9, 8));
  EXPECT_TRUE(index.InPrompt(index.NodeOf(kRootPath)));
  EXPECT_FALSE(index.InPrompt(index.NodeOf(a)));
}

// A place that nothing follows yet proposes nothing, so the end of the text does not find itself.
TEST(SuffixIndexTest, TheEndOfTheTextIsNoEarlierOccurrence) {
  SuffixIndex index(std::vector<TokenId>{1, 2, 3});
  EXPECT_THAT(index.Find({{1, 2, 3}}), IsEmpty());
  PathTree paths;
  paths.Extend(kRootPath, 4);
  index.Add(paths);
  ASSERT_EQ(index.Find({{1, 2, 3}}).size(), 1u);
  EXPECT_EQ(index.Find({{1, 2, 3}})[0].length, 3);
  EXPECT_THAT(index.Find({{2, 2}}), IsEmpty());
  EXPECT_THAT(index.Find({{3}}), IsEmpty());
  EXPECT_THAT(index.Find({}), IsEmpty());
}

TEST(SuffixIndexTest, StaysWithinItsBound) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back(i);
  SuffixIndex index(prompt, /*most_tokens=*/64);
  EXPECT_EQ(index.size(), 32);
  EXPECT_THAT(index.Find({{66, 67}}), IsEmpty());
  ASSERT_EQ(index.Find({{68, 69}}).size(), 1u);
  EXPECT_THAT(Children(index, index.Find({{68, 69}})[0].node), ElementsAre(70));
  PathTree paths;
  PathId path = kRootPath;
  for (int i = 0; i < 100; ++i) path = paths.Extend(path, 200 + i);
  index.Add(paths);
  EXPECT_EQ(index.size(), 64);
  EXPECT_EQ(index.NodeOf(path), -1);
  EXPECT_GE(index.NodeOf(PathId{32}), 0);
  EXPECT_EQ(index.NodeOf(PathId{33}), -1);
}

TEST(SuffixIndexTest, ATokenTakesAtMost64Bytes) {
  std::vector<TokenId> prompt(5000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * i % 997);
  SuffixIndex index(prompt);
  EXPECT_LE(index.bytes(), 64 * prompt.size());
  PathTree paths;
  PathId path = kRootPath;
  for (int i = 0; i < 20000; ++i) path = paths.Extend(path, i % 1013);
  index.Add(paths);
  EXPECT_LE(index.bytes(), 64 * (prompt.size() + 20000));
  EXPECT_GE(index.bytes(), 20000 * sizeof(TokenId));
}

TEST(SuffixCorpusTest, FindsTheLongestMatchThatASearchFinds) {
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int vocab = 2 + seed % 6;
    std::vector<TokenId> tokens;
    for (int document = 0; document < 5; ++document) {
      for (int i = static_cast<int>(random() % 60); i > 0; --i)
        tokens.push_back(static_cast<TokenId>(random() % vocab));
      tokens.push_back(SuffixCorpus::kEnd);
    }
    const SuffixCorpus corpus(tokens);
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<TokenId> text;
      for (int i = static_cast<int>(random() % 24); i > 0; --i)
        text.push_back(static_cast<TokenId>(random() % vocab));
      const auto occurs = [&](int place, int length) {  // ends at the place
        if (place + 1 < length || length > static_cast<int>(text.size())) return false;
        return std::equal(text.end() - length, text.end(), tokens.begin() + place + 1 - length);
      };
      int longest = 0;
      for (int place = 0; place < static_cast<int>(tokens.size()); ++place) {
        for (int length = SuffixCorpus::kShortest; length <= SuffixCorpus::kLongest; ++length)
          if (occurs(place, length)) longest = std::max(longest, length);
      }
      std::vector<int32_t> places;
      for (int place = 0; longest > 0 && place < static_cast<int>(tokens.size()); ++place)
        if (occurs(place, longest)) places.push_back(place);
      SuffixCorpus::Matches matches = corpus.Find(text);
      ASSERT_EQ(matches.length, longest);
      std::sort(matches.places.begin(), matches.places.end());
      if (places.size() <= SuffixCorpus::kMostMatches) {
        ASSERT_EQ(matches.places, places);
      } else {
        ASSERT_EQ(matches.places.size(), SuffixCorpus::kMostMatches);
        ASSERT_TRUE(std::includes(places.begin(), places.end(), matches.places.begin(),
                                  matches.places.end()));
      }
      for (const int32_t place : matches.places) ASSERT_EQ(corpus.After(place), tokens[place + 1]);
    }
  }
}

TEST(SuffixCorpusTest, AnEmptyOneFindsNothing) {
  const SuffixCorpus corpus({});
  EXPECT_EQ(corpus.Find({{1, 2, 3}}).length, 0);
  EXPECT_THAT(corpus.Find({{1, 2, 3}}).places, IsEmpty());
}

}  // namespace
}  // namespace coppice::decoding
