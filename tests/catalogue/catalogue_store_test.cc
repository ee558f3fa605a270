// The catalogues of a process: which content a name and a query give, also after files were replaced.
#include "catalogue/catalogue_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "catalogue/catalogue_format.h"
#include "catalogue/catalogue_query.h"
#include "tests/catalogue/sample_catalogue.h"

namespace coppice::catalogue {
namespace {

using ::testing::HasSubstr;

class CatalogueStoreTest : public ::testing::Test {
 protected:
  // Compiles items of `tokens` first tokens and puts them in the place of the file.
  void Write(int tokens) {
    std::vector<SampleItem> items;
    for (TokenId t = 0; t < tokens; ++t) items.push_back({{t, 7}, absl::StrCat("id", t), "name"});
    const std::string fresh = dir_.File("fresh");
    ASSERT_TRUE(Compile(items, ItemEnd::kNone, 10, fresh).ok());
    ASSERT_EQ(std::rename(fresh.c_str(), file_.c_str()), 0);
  }
  void Open() {
    auto store = CatalogueStore::Open({"books=" + file_}, {});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::string Query(Selection selection = {}) const {
    return QueryText({"books", store_->Newest("books")->fingerprint(), std::move(selection)});
  }
  // The number of first tokens that the format of the query allows; -1: it is refused.
  int Firsts(const std::string& query) {
    const auto format = store_->Find(query, {});
    return format.ok() ? (*format)->Allowed((*format)->Start())->count : -1;
  }

  const test::TempDir dir_;
  const std::string file_ = dir_.File("books.cat");
  std::unique_ptr<CatalogueStore> store_;
};

TEST_F(CatalogueStoreTest, EntriesThatCannotBeUsedAreNamed) {
  Write(3);
  const auto why = [](const std::vector<std::string>& entries) {
    return std::string(CatalogueStore::Open(entries, {}).status().message());
  };
  for (const std::string entry : {"books", "=file", "books="})
    EXPECT_THAT(why({entry}), HasSubstr("\"" + entry + "\" is not NAME=FILE"));
  EXPECT_THAT(why({"books=" + file_, "books=" + file_}), HasSubstr("\"books\" is given twice"));
  EXPECT_THAT(why({"books=" + dir_.File("none")}), HasSubstr(dir_.File("none")));
  EXPECT_TRUE(CatalogueStore::Open({}, {}).ok());
}

TEST_F(CatalogueStoreTest, EqualQueriesShareAFormat) {
  Write(3);
  Open();
  const auto first = store_->Find(Query(), {9}), again = store_->Find(Query(), {9});
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *store_->Find(Query(), {8}));
  EXPECT_EQ(Firsts(Query()), 3);
  EXPECT_EQ(Firsts(Query({{}, {1}, {}})), 2);
}

TEST_F(CatalogueStoreTest, AReloadSwitchesAndTheContentBeforeStays) {
  Write(3);
  Open();
  const std::string old = Query();
  Write(5);
  EXPECT_EQ(store_->Newest("books")->items(), 3) << "not before it is told";
  EXPECT_TRUE(store_->Reload().empty());
  EXPECT_EQ(store_->Newest("books")->items(), 5);
  EXPECT_EQ(store_->entries().at(0).newest->items(), 5);
  const std::string middle = Query();
  EXPECT_EQ(Firsts(middle), 5);
  EXPECT_EQ(Firsts(old), 3) << "of a request that was made before";
  Write(4);
  EXPECT_TRUE(store_->Reload().empty());
  EXPECT_EQ(Firsts(Query()), 4);
  EXPECT_EQ(Firsts(QueryText({"books", store_->Newest("books")->fingerprint() + 1, {}})), -1);
  EXPECT_EQ(Firsts(middle), 5);
}

TEST_F(CatalogueStoreTest, AContentThatNothingUsesIsFreed) {
  Write(3);
  Open();
  const std::weak_ptr<const Catalogue> old = store_->Newest("books");
  auto used = store_->Find(Query(), {});
  for (const int tokens : {4, 5}) {
    Write(tokens);
    EXPECT_TRUE(store_->Reload().empty());
    EXPECT_FALSE(old.expired()) << tokens;
  }
  used = absl::UnknownError("the sequence has ended");
  EXPECT_TRUE(old.expired());
}

// A node learns of a new content by the first request for it.
TEST_F(CatalogueStoreTest, AQueryForTheFilesNewContentOpensIt) {
  Write(3);
  Open();
  Write(5);
  const auto coordinator = CatalogueStore::Open({"books=" + file_}, {});
  ASSERT_TRUE(coordinator.ok());
  const std::string query =
      QueryText({"books", (*coordinator)->Newest("books")->fingerprint(), {}});
  EXPECT_EQ(Firsts(query), 5);
  const auto other = store_->Find(QueryText({"books", 1, {}}), {});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("0000000000000001"));
  EXPECT_EQ(store_->Find(QueryText({"films", 1, {}}), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CatalogueStoreTest, AFileThatCannotBeUsedLeavesTheOldContent) {
  Write(3);
  Open();
  std::ofstream(dir_.File("broken")) << "no catalogue";
  ASSERT_EQ(std::rename(dir_.File("broken").c_str(), file_.c_str()), 0);
  const std::vector<absl::Status> errors = store_->Reload();
  ASSERT_EQ(errors.size(), 1);
  EXPECT_THAT(std::string(errors[0].message()), HasSubstr(file_));
  EXPECT_EQ(Firsts(Query()), 3);
}

TEST_F(CatalogueStoreTest, CountsWhatASelectionLeaves) {
  Write(5);
  Open();
  const auto catalogue = store_->Newest("books");
  EXPECT_EQ(CountItems(*catalogue, {}), 5);
  EXPECT_EQ(CountItems(*catalogue, {{}, {1, 1, 4}, {}}), 3);
  EXPECT_EQ(CountItems(*catalogue, {{0, 1, 2}, {1}, {}}), 2);
  EXPECT_EQ(CountItems(*catalogue, {{1}, {1}, {}}), 0);
  EXPECT_EQ(CountItems(*catalogue, {{}, {}, {3}}), 1);
  EXPECT_EQ(CountItems(*catalogue, {{}, {3}, {3}}), 0);
  EXPECT_EQ(CountItems(*catalogue, {{}, {}, {8}}), 0);
}

}  // namespace
}  // namespace coppice::catalogue
