// Random items, and catalogues that are compiled of them. Used by tests/catalogue.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "catalogue/catalogue.h"
#include "catalogue/catalogue_builder.h"
#include "tests/testing/temp_dir.h"

namespace coppice::catalogue {

struct SampleItem {
  std::vector<TokenId> tokens;
  std::string id, name;
};

// At most `most` items of 1 to `longest` tokens below `vocab`, with ids and names of many lengths.
// With ItemEnd::kNone none begins another one.
inline std::vector<SampleItem> RandomItems(std::mt19937* random, int vocab, int most, int longest,
                                           ItemEnd end) {
  const auto pick = [random](int n) { return static_cast<int>((*random)() % n); };
  std::vector<SampleItem> items;
  for (int tries = 0; tries < 4 * most && static_cast<int>(items.size()) < most; ++tries) {
    SampleItem item;
    item.tokens.resize(1 + pick(longest));
    for (TokenId& token : item.tokens) token = pick(vocab);
    const bool clashes = std::any_of(items.begin(), items.end(), [&](const SampleItem& other) {
      const size_t length = std::min(item.tokens.size(), other.tokens.size());
      const bool begins =
          std::equal(item.tokens.begin(), item.tokens.begin() + length, other.tokens.begin());
      return end == ItemEnd::kNone ? begins : item.tokens == other.tokens;
    });
    if (clashes) continue;
    item.id = absl::StrCat("id", std::string(pick(6), 'x'), items.size());
    item.name = std::string(pick(40), 'n');
    items.push_back(item);
  }
  return items;
}

// The header that was written to `path`.
inline absl::StatusOr<FileHeader> Compile(const std::vector<SampleItem>& items, ItemEnd end,
                                          int vocab, const std::string& path,
                                          const std::string& source = "items") {
  auto builder = CatalogueBuilder::Make(
      {.source = source, .output = path, .vocab_size = vocab, .vocabulary = 17, .end = end});
  if (!builder.ok()) return builder.status();
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Status added =
        (*builder)->Add(items[i].tokens, items[i].id, items[i].name, static_cast<uint32_t>(i + 1));
    if (!added.ok()) return added;
  }
  return (*builder)->Write();
}

inline std::shared_ptr<const Catalogue> MakeCatalogue(const std::vector<SampleItem>& items,
                                                      ItemEnd end, int vocab) {
  const test::TempDir dir;
  const std::string path = dir.File("catalogue");
  EXPECT_TRUE(Compile(items, end, vocab, path).ok());
  auto catalogue = Catalogue::Open(path);
  EXPECT_TRUE(catalogue.ok()) << catalogue.status();
  return catalogue.ok() ? *catalogue : nullptr;
}

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace coppice::catalogue
