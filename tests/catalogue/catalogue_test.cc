// What a compiled catalogue says of its items, against a std::map of them; its file when it is
// damaged, cut off, overwritten or replaced.
#include "catalogue/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "catalogue/content_hash.h"
#include "tests/catalogue/sample_catalogue.h"

namespace coppice::catalogue {
namespace {

using testing::HasSubstr;
using Tokens = std::vector<TokenId>;

TEST(ContentHash, IsXxh64) {
  EXPECT_EQ(Xxh64(""), 0xEF46DB3751D8E999);
  EXPECT_EQ(Xxh64("a"), 0xD24EC4F1A98C6E5B);
  EXPECT_EQ(Xxh64("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(Xxh64("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
}

TEST(ContentHash, DoesNotDependOnThePieces) {
  std::mt19937 random(1);
  std::string bytes(300'000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  ContentHash whole;
  whole.Add(bytes);
  for (int round = 0; round < 20; ++round) {
    ContentHash pieces;
    for (size_t at = 0, more = 0; at < bytes.size(); at += more) {
      more = std::min<size_t>(bytes.size() - at, random() % (round % 2 == 0 ? 100'000 : 9000));
      pieces.Add(absl::string_view(bytes).substr(at, more));
    }
    EXPECT_EQ(pieces.Value(), whole.Value());
  }
  bytes[70'000] ^= 1;
  ContentHash other;
  other.Add(bytes);
  EXPECT_NE(other.Value(), whole.Value());
}

struct Oracle {
  std::map<Tokens, SampleItem> items;
  std::map<Tokens, std::set<TokenId>> next;  // of every path that some item begins with

  explicit Oracle(const std::vector<SampleItem>& list) {
    for (const SampleItem& item : list) {
      items[item.tokens] = item;
      Tokens path;
      for (const TokenId token : item.tokens) {
        next[path].insert(token);
        path.push_back(token);
      }
      next[path];
    }
  }
};

void ExpectIsThe(const Catalogue& catalogue, const Oracle& oracle) {
  ASSERT_EQ(catalogue.items(), static_cast<int64_t>(oracle.items.size()));
  EXPECT_EQ(catalogue.trie().size(), static_cast<int64_t>(oracle.next.size()));
  std::set<int64_t> seen;
  size_t longest = 0;
  for (const auto& [tokens, item] : oracle.items) {
    const int64_t number = catalogue.ItemOf(tokens);
    ASSERT_GE(number, 0);
    ASSERT_LT(number, catalogue.items());
    EXPECT_TRUE(seen.insert(number).second);
    EXPECT_EQ(catalogue.Tokens(number), tokens);
    EXPECT_EQ(catalogue.Id(number), item.id);
    EXPECT_EQ(catalogue.Name(number), item.name);
    EXPECT_EQ(catalogue.FindId(item.id), number);
    longest = std::max(longest, tokens.size());
  }
  EXPECT_EQ(catalogue.longest(), static_cast<int>(longest));
  EXPECT_EQ(catalogue.FindId("nobody"), -1);
  const ItemTrie& trie = catalogue.trie();
  for (const auto& [path, next] : oracle.next) {
    const ItemTrie::Place place = trie.Find(path);
    ASSERT_NE(place, ItemTrie::kNowhere);
    EXPECT_EQ(trie.Path(place), path);
    EXPECT_EQ(trie.IsItem(place), oracle.items.count(path) > 0);
    EXPECT_EQ(catalogue.ItemOf(path) >= 0, oracle.items.count(path) > 0);
    std::set<TokenId> children;
    for (auto child = trie.ChildrenBegin(place); child < trie.ChildrenEnd(place); ++child) {
      children.insert(trie.token(child));
      EXPECT_EQ(trie.Child(place, trie.token(child)), child);
    }
    EXPECT_EQ(children, next);
    std::set<int64_t> below, wanted;
    trie.VisitItems(place, [&](int64_t begin, int64_t end) {
      for (; begin < end; ++begin) EXPECT_TRUE(below.insert(begin).second);
      return true;
    });
    for (const auto& [tokens, item] : oracle.items) {
      if (tokens.size() >= path.size() && std::equal(path.begin(), path.end(), tokens.begin()))
        wanted.insert(catalogue.ItemOf(tokens));
    }
    EXPECT_EQ(below, wanted);
  }
  EXPECT_TRUE(catalogue.Check().ok()) << catalogue.Check();
}

TEST(Catalogue, IsTheSetOfItsItems) {
  std::mt19937 random(2);
  std::set<size_t> lengths;
  for (int round = 0; round < 300; ++round) {
    const ItemEnd end = round % 2 == 0 ? ItemEnd::kNone : ItemEnd::kStop;
    const int vocab = 1 + static_cast<int>(random() % (round % 3 == 0 ? 5 : 300));
    const auto items = RandomItems(&random, vocab, 1 + static_cast<int>(random() % 90),
                                   1 + static_cast<int>(random() % 6), end);
    const Oracle oracle(items);
    const test::TempDir dir;
    ASSERT_TRUE(Compile(items, end, vocab, dir.File("c")).ok());
    const auto catalogue = Catalogue::Open(dir.File("c"));
    ASSERT_TRUE(catalogue.ok()) << catalogue.status();
    SCOPED_TRACE(round);
    ExpectIsThe(**catalogue, oracle);
    for (int tries = 0; tries < 100; ++tries) {  // sequences that are mostly no items
      Tokens tokens(random() % 6);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % (vocab + 2)) - 1;
      EXPECT_EQ((*catalogue)->ItemOf(tokens) >= 0, oracle.items.count(tokens) > 0);
    }
    if (HasFailure()) return;
    lengths.insert((*catalogue)->longest());
  }
  EXPECT_EQ(lengths.size(), 6u);
}

// Long runs of nodes without items and with nothing but items, past the words of the bits.
TEST(Catalogue, LevelsOfThousandsOfNodes) {
  std::vector<SampleItem> items;
  for (int a = 0; a < 700; ++a) items.push_back({{a, a % 7, 3}, absl::StrCat("a", a), ""});
  for (int b = 700; b < 1400; ++b) items.push_back({{b}, absl::StrCat("b", b), "short"});
  const auto catalogue = MakeCatalogue(items, ItemEnd::kNone, 1400);
  for (const SampleItem& item : items) {
    const int64_t number = catalogue->ItemOf(item.tokens);
    ASSERT_GE(number, 0);
    EXPECT_EQ(catalogue->Tokens(number), item.tokens);
  }
  EXPECT_EQ(catalogue->trie().ItemsBefore(static_cast<int>(catalogue->trie().size())), 1400);
}

// The order in which items come makes no difference.
TEST(Catalogue, TheSameItemsGiveTheSameFile) {
  std::mt19937 random(3);
  auto items = RandomItems(&random, 40, 200, 4, ItemEnd::kStop);
  const test::TempDir dir;
  ASSERT_TRUE(Compile(items, ItemEnd::kStop, 40, dir.File("one")).ok());
  std::shuffle(items.begin(), items.end(), random);
  ASSERT_TRUE(Compile(items, ItemEnd::kStop, 40, dir.File("two")).ok());
  const auto one = *Catalogue::Open(dir.File("one")), two = *Catalogue::Open(dir.File("two"));
  EXPECT_EQ(one->header().trie_hash, two->header().trie_hash);
  EXPECT_EQ(FileBytes(dir.File("one")), FileBytes(dir.File("two")));
  EXPECT_EQ(one->fingerprint(), two->fingerprint());
  items[0].name += "!";
  ASSERT_TRUE(Compile(items, ItemEnd::kStop, 40, dir.File("three")).ok());
  EXPECT_NE((*Catalogue::Open(dir.File("three")))->fingerprint(), one->fingerprint());
}

class CatalogueFile : public ::testing::Test {
 protected:
  CatalogueFile() : path_(dir_.File("books.cat")) {
    std::mt19937 random(4);
    items_ = RandomItems(&random, 50, 120, 3, ItemEnd::kNone);
    EXPECT_TRUE(Compile(items_, ItemEnd::kNone, 50, path_).ok());
    bytes_ = FileBytes(path_);
  }
  void Write(const std::string& bytes) { dir_.Write("books.cat", bytes); }
  std::string ErrorOf(const std::string& bytes) {
    Write(bytes);
    const auto opened = Catalogue::Open(path_);
    if (opened.ok()) return "opened";
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(opened.status().message().substr(0, path_.size() + 2), path_ + ": ");
    EXPECT_THAT(opened.status().message(), testing::Not(HasSubstr("\n")));
    return std::string(opened.status().message().substr(path_.size() + 2));
  }
  // With a header that is right about itself.
  std::string Sealed(std::string bytes, const std::function<void(FileHeader*)>& change) {
    FileHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    change(&header);
    header.fingerprint = header.Fingerprint();
    header.header_hash = header.Hash();
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  }

  const test::TempDir dir_;
  const std::string path_;
  std::vector<SampleItem> items_;
  std::string bytes_;
};

TEST_F(CatalogueFile, ThatIsNoneIsRefusedInOneLine) {
  EXPECT_EQ(ErrorOf(""), "not a catalogue, which coppice-catalogue compiles");
  EXPECT_EQ(ErrorOf("{\"id\": 1}"), "not a catalogue, which coppice-catalogue compiles");
  EXPECT_THAT(ErrorOf(bytes_.substr(0, 50)),
              HasSubstr("cut off: 50 bytes, the header alone has 96"));
  EXPECT_THAT(ErrorOf(bytes_.substr(0, bytes_.size() - 1)), HasSubstr("cut off: "));
  EXPECT_THAT(ErrorOf(bytes_ + "x"), HasSubstr("too long: "));
  EXPECT_EQ(ErrorOf(Sealed(bytes_, [](FileHeader* h) { h->version = 2; })),
            "a catalogue of version 2, expected 1: compile it again");
  std::string changed = bytes_;
  changed[20] ^= 1;
  EXPECT_EQ(ErrorOf(changed), "the header is damaged");
  EXPECT_EQ(ErrorOf(Sealed(bytes_, [](FileHeader* h) { h->items = 0; })),
            "the header contradicts itself");
  changed = bytes_;
  changed[sizeof(FileHeader) + 9] ^= 1;
  EXPECT_EQ(ErrorOf(changed), "the trie is damaged");
  EXPECT_EQ(ErrorOf(bytes_), "opened");
  EXPECT_EQ(Catalogue::Open(dir_.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Catalogue::Open(dir_.path()).status().message(), HasSubstr("not a regular file"));
}

// A trie whose hash is right and whose nodes lead astray: each number of a node in turn.
TEST_F(CatalogueFile, ATrieThatLeadsAstrayIsRefused) {
  FileHeader header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  int refused = 0, opened = 0;
  for (uint64_t at = sizeof(header); at < header.offsets_at(); at += 4) {
    for (const uint32_t value : {1u, 49u, 0x7fffffffu}) {
      std::string changed = bytes_;
      std::memcpy(changed.data() + at, &value, sizeof(value));
      ContentHash hash;
      hash.Add(
          absl::string_view(changed).substr(sizeof(header), header.offsets_at() - sizeof(header)));
      Write(Sealed(changed, [&](FileHeader* h) { h->trie_hash = hash.Value(); }));
      const auto catalogue = Catalogue::Open(path_);
      catalogue.ok() ? ++opened : ++refused;
      if (!catalogue.ok()) continue;
      for (int64_t item = 0; item < (*catalogue)->items(); ++item)
        EXPECT_EQ((*catalogue)->ItemOf((*catalogue)->Tokens(item)), item);
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(opened, 10);  // with another token in a place where it ascends
}

TEST_F(CatalogueFile, DamagedTextsAreFoundByACheck) {
  FileHeader header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  for (uint64_t at = header.offsets_at(); at < bytes_.size(); at += 37) {
    std::string changed = bytes_;
    changed[at] ^= 1;
    Write(changed);
    const auto catalogue = Catalogue::Open(path_);
    ASSERT_TRUE(catalogue.ok());
    EXPECT_EQ((*catalogue)->Check().message(), path_ + ": the ids and names are damaged");
    for (int64_t item = 0; item < (*catalogue)->items(); ++item) {  // whatever they are, no crash
      (*catalogue)->Id(item);
      (*catalogue)->Name(item);
    }
    for (const SampleItem& item : items_) (*catalogue)->FindId(item.id);
  }
}

// That is how a catalogue is refreshed.
TEST_F(CatalogueFile, AFileThatIsReplacedLeavesTheOpenedOneAsItWas) {
  const auto old = *Catalogue::Open(path_);
  ASSERT_TRUE(Compile({{{7}, "new", "the new one"}}, ItemEnd::kNone, 50, path_).ok());
  EXPECT_FALSE(old->FileChanged());
  ExpectIsThe(*old, Oracle(items_));
  EXPECT_EQ((*Catalogue::Open(path_))->FindId("new"), 0);
  std::remove(path_.c_str());
  ExpectIsThe(*old, Oracle(items_));
}

// The allowed sequences stay; ids and names are gone, and nothing ends the process.
TEST_F(CatalogueFile, AFileThatIsOverwrittenInPlaceLeavesTheTrie) {
  std::string other = bytes_;
  FileHeader header;
  std::memcpy(&header, bytes_.data(), sizeof(header));
  // Another catalogue: all ids are capital.
  std::replace(other.begin() + header.texts_at(), other.begin() + header.slots_at(), 'd', 'D');
  for (const std::string& bytes : {std::string(), bytes_.substr(0, 200), other}) {
    Write(bytes_);
    std::filesystem::last_write_time(  // the clock of files is coarse
        path_, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    const auto catalogue = *Catalogue::Open(path_);
    EXPECT_EQ(catalogue->FindId(items_[0].id), catalogue->ItemOf(items_[0].tokens));
    Write(bytes);
    EXPECT_TRUE(catalogue->FileChanged());
    for (const SampleItem& item : items_) {
      const int64_t number = catalogue->ItemOf(item.tokens);
      ASSERT_GE(number, 0);
      EXPECT_EQ(catalogue->Tokens(number), item.tokens);
      EXPECT_EQ(catalogue->Id(number), "");
      EXPECT_EQ(catalogue->Name(number), "");
      EXPECT_EQ(catalogue->FindId(item.id), -1);
    }
    EXPECT_FALSE(catalogue->Check().ok());
  }
}

}  // namespace
}  // namespace coppice::catalogue
