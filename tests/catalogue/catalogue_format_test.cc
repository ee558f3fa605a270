// The format of a catalogue against its definition: on random catalogues and selections, which
// tokens may follow each path, by looking at every item.
#include "catalogue/catalogue_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "tests/catalogue/sample_catalogue.h"

namespace coppice::catalogue {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<TokenId>;

bool Begins(const Tokens& item, const Tokens& path) {
  return item.size() >= path.size() && std::equal(path.begin(), path.end(), item.begin());
}

// The tokens after `prefix` and `path` by the definition; stop: the id after an item, -1: none.
std::set<TokenId> NextByDefinition(const std::vector<Tokens>& left, Tokens path, TokenId stop) {
  std::set<TokenId> next;
  for (const Tokens& item : left) {
    if (!Begins(item, path)) continue;
    if (item.size() > path.size()) next.insert(item[path.size()]);
    if (item.size() == path.size() && stop >= 0) next.insert(stop);
  }
  return next;
}

// Compares the format with the definition below the path, to the end of every item.
void ExpectIs(const OutputFormat& format, const std::vector<Tokens>& left, const Tokens& path,
              OutputFormat::State state, TokenId stop, int vocab, int* states) {
  ++*states;
  const bool whole = std::find(left.begin(), left.end(), path) != left.end();
  EXPECT_EQ(format.Complete(state), stop < 0 && whole);
  EXPECT_FALSE(format.CutShort(state));
  const std::set<TokenId> next = NextByDefinition(left, path, stop);
  const auto allowed = format.Allowed(state);
  ASSERT_NE(allowed, nullptr);
  EXPECT_EQ(allowed->count, static_cast<int>(next.size()));
  EXPECT_EQ(allowed->Tokens(), Tokens(next.begin(), next.end()));
  for (TokenId token = -1; token <= vocab; ++token) {
    EXPECT_EQ(allowed->Has(token), next.count(token) > 0);
    const OutputFormat::State after = format.Next(state, token);
    EXPECT_EQ(after != OutputFormat::kBroken, next.count(token) > 0 && token != stop);
  }
  for (const TokenId token : next) {
    if (token == stop) continue;
    Tokens longer = path;
    longer.push_back(token);
    ExpectIs(format, left, longer, format.Next(state, token), stop, vocab, states);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CatalogueFormat, IsItsDefinitionForEverySelection) {
  std::mt19937 random(11);
  int states = 0, empty = 0, prefixes = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const ItemEnd end = round % 2 == 0 ? ItemEnd::kNone : ItemEnd::kStop;
    const int vocab = 3 + static_cast<int>(random() % 30);
    const TokenId stop = end == ItemEnd::kStop ? vocab - 1 : -1;  // no item has it
    const auto items = RandomItems(&random, vocab - 1, 1 + static_cast<int>(random() % 60),
                                   1 + static_cast<int>(random() % 4), end);
    const auto catalogue = MakeCatalogue(items, end, vocab);
    Selection selection;
    std::set<int64_t> left;
    for (int64_t item = 0; item < catalogue->items(); ++item) left.insert(item);
    if (random() % 3 == 0) {
      for (int i = 1 + static_cast<int>(random() % 8); i > 0; --i)
        selection.allowed.push_back(static_cast<int64_t>(random() % items.size()));
      left = {selection.allowed.begin(), selection.allowed.end()};
    }
    if (random() % 2 == 0) {
      for (int i = static_cast<int>(random() % (2 * items.size())); i > 0; --i) {
        selection.excluded.push_back(static_cast<int64_t>(random() % items.size()));
        left.erase(selection.excluded.back());
      }
    }
    if (random() % 3 == 0) {
      selection.prefix = catalogue->Tokens(static_cast<int64_t>(random() % items.size()));
      selection.prefix.resize(random() % (selection.prefix.size() + 1));
    }
    std::vector<Tokens> rest;  // of the items that are left, after the prefix
    for (const int64_t item : left) {
      const Tokens tokens = catalogue->Tokens(item);
      if (Begins(tokens, selection.prefix))
        rest.emplace_back(tokens.begin() + selection.prefix.size(), tokens.end());
    }
    const auto format =
        MakeCatalogueFormat(catalogue, selection, stop < 0 ? Tokens() : Tokens{stop});
    const bool nothing = NextByDefinition(rest, {}, stop).empty();
    ASSERT_EQ(format.ok(), !nothing) << format.status();
    empty += nothing;
    prefixes += !nothing && !selection.prefix.empty();
    if (!nothing) ExpectIs(**format, rest, {}, (*format)->Start(), stop, vocab, &states);
    if (HasFailure()) return;
  }
  EXPECT_GT(states, 5000);
  EXPECT_GT(empty, 10);
  EXPECT_GT(prefixes, 20);
}

// Nodes with many children, of which a short list of items leaves few.
TEST(CatalogueFormat, AShortListOfManyItemsIsItsDefinition) {
  std::mt19937 random(13);
  int states = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const ItemEnd end = round % 2 == 0 ? ItemEnd::kNone : ItemEnd::kStop;
    const int vocab = 90;
    const TokenId stop = end == ItemEnd::kStop ? vocab - 1 : -1;
    auto items = RandomItems(&random, 80, 600, 2, end);
    if (end == ItemEnd::kStop) {  // ends at inner nodes that have many children
      for (int token = 0; token < 80; ++token)
        items.push_back({{85, token}, absl::StrCat("e", token), ""});
      items.push_back({{85}, "inner", ""});
    }
    const auto catalogue = MakeCatalogue(items, end, vocab);
    Selection selection;
    if (end == ItemEnd::kStop)
      selection.allowed = {catalogue->FindId("inner"), catalogue->FindId("e3")};
    while (selection.allowed.size() < 1 + random() % 12)
      selection.allowed.push_back(static_cast<int64_t>(random() % items.size()));
    std::vector<Tokens> left;
    for (const int64_t item : selection.allowed) left.push_back(catalogue->Tokens(item));
    const auto format =
        *MakeCatalogueFormat(catalogue, selection, stop < 0 ? Tokens() : Tokens{stop});
    ExpectIs(*format, left, {}, format->Start(), stop, vocab, &states);
    if (HasFailure()) return;
  }
  EXPECT_GT(states, 200);
}

// More than AllowedTokens::kMostListed children are bits.
TEST(CatalogueFormat, ManyChildrenAreBits) {
  std::vector<SampleItem> items;
  for (int token = 0; token < 3000; ++token)
    items.push_back({{2 * token, token}, absl::StrCat(token), ""});
  const auto catalogue = MakeCatalogue(items, ItemEnd::kNone, 7000);
  const auto format = *MakeCatalogueFormat(catalogue, {}, {});
  const auto allowed = format->Allowed(format->Start());
  EXPECT_EQ(allowed->count, 3000);
  EXPECT_TRUE(allowed->listed.empty());
  for (TokenId token = -1; token < 7001; ++token)
    EXPECT_EQ(allowed->Has(token), token >= 0 && token < 6000 && token % 2 == 0);
  EXPECT_EQ(format->Allowed(format->Start()), allowed);  // the same object
  Selection some;
  for (int64_t item = 0; item < 2000; ++item) some.allowed.push_back(item);
  const auto fewer = *MakeCatalogueFormat(catalogue, some, {});
  const auto listed = fewer->Allowed(fewer->Start());
  EXPECT_EQ(listed->listed.size(), 2000u);
  EXPECT_TRUE(listed->bits.empty());
}

TEST(CatalogueFormat, RefusesWhatServesNothing) {
  const std::vector<SampleItem> items = {{{1, 2}, "a", ""}, {{1, 3}, "b", ""}, {{4}, "c", ""}};
  const auto none = MakeCatalogue(items, ItemEnd::kNone, 10);
  const auto stop = MakeCatalogue(items, ItemEnd::kStop, 10);
  const auto error = [](const auto& catalogue, Selection selection, Tokens ends = {}) {
    const auto format = MakeCatalogueFormat(catalogue, std::move(selection), std::move(ends));
    EXPECT_FALSE(format.ok());
    EXPECT_EQ(format.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string prefix = catalogue->path() + ": ";
    EXPECT_EQ(format.status().message().substr(0, prefix.size()), prefix);
    return std::string(format.status().message().substr(prefix.size()));
  };
  EXPECT_EQ(error(none, {{}, {0, 1, 2}, {}}), "no item is left: all are excluded");
  EXPECT_EQ(error(none, {{1}, {1}, {}}), "no item is left: those that are allowed are excluded");
  EXPECT_EQ(error(none, {{3}, {}, {}}), "item 3 is none of the 3 of the catalogue");
  EXPECT_EQ(error(none, {{}, {-1}, {}}), "item -1 is none of the 3 of the catalogue");
  EXPECT_EQ(error(none, {{}, {}, {2}}), "no item begins with the prefix 2");
  EXPECT_EQ(error(none, {{}, {}, {1, 2}}), "nothing follows the prefix 1 2");
  EXPECT_EQ(error(none, {{}, {none->ItemOf(Tokens{4})}, {4}}),
            "no item that is left begins with the prefix 4");
  EXPECT_EQ(error(stop, {}), "a stop id follows an item, and there is none");
  EXPECT_EQ(error(stop, {}, {10}), "token 10 is none of the vocabulary");
  EXPECT_EQ(error(stop, {}, {9, 3}), "token 3 ends a text, and is inside of an item");
  EXPECT_EQ(error(none, {}, {1}), "token 1 ends a text, and is inside of an item");
  EXPECT_TRUE(MakeCatalogueFormat(none, {}, {4, 2}).ok());  // last tokens
  EXPECT_TRUE(MakeCatalogueFormat(stop, {{}, {}, {4}}, {9}).ok());
}

// Decoders ask from many threads.
TEST(CatalogueFormat, ServesManyThreads) {
  std::mt19937 random(12);
  const auto items = RandomItems(&random, 30, 400, 3, ItemEnd::kNone);
  const auto catalogue = MakeCatalogue(items, ItemEnd::kNone, 30);
  const auto format = *MakeCatalogueFormat(catalogue, {{}, {0, 5}, {}}, {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t item = 0; item < catalogue->items(); ++item) {
        OutputFormat::State state = format->Start();
        for (const TokenId token : catalogue->Tokens(item)) {
          const bool left = item != 0 && item != 5;
          EXPECT_TRUE(!left || format->Allowed(state)->Has(token));
          state = format->Next(state, token);
          if (state < 0) break;
        }
        EXPECT_EQ(format->Complete(state), item != 0 && item != 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace coppice::catalogue
