// docs/parameters.md is exactly the page that the tables give.
#include "lab/reference/parameter_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "decoding/parameter.h"

namespace coppice::reference {
namespace {

using ::testing::HasSubstr;

std::string PageInTree() {
  std::ifstream file("docs/parameters.md");  // tests run in the root of the source tree
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(ParameterPageTest, TheTreeHasTheCurrentPage) {
  EXPECT_EQ(PageInTree(), ParameterPage())
      << "docs/parameters.md is stale: coppice-reference > docs/parameters.md";
}

TEST(ParameterPageTest, EveryRowHasAnEntryWithItsAliases) {
  const std::string page = PageInTree();
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    const std::string object = *row.object == 0 ? "" : absl::StrCat(row.object, ".");
    EXPECT_THAT(page, HasSubstr(absl::StrCat("- **`", object, row.field(), "`**"))) << row.name;
    for (const char* field : row.fields) EXPECT_THAT(page, HasSubstr(field)) << row.name;
    EXPECT_GE(std::string(row.text).size(), 20u) << row.name << " has no paragraph";
  }
}

// An option that no method lists would be refused with every method.
TEST(ParameterPageTest, EveryOptionIsReadAndEveryReadOptionIsARow) {
  for (const decoding::ParameterRow& row : decoding::Parameters()) {
    if (row.read_by != decoding::ReadBy::kOption) continue;
    bool read = false;
    for (const decoding::MethodRow& method : decoding::Methods())
      read = read || method.reads(row.field());
    EXPECT_TRUE(read) << row.name;
  }
  for (const decoding::MethodRow& method : decoding::Methods()) {
    for (const std::string& option : method.options) {
      bool known = false;
      for (const decoding::ParameterRow& row : decoding::Parameters()) {
        known = known || (row.read_by == decoding::ReadBy::kOption && option == row.field());
      }
      EXPECT_TRUE(known) << method.name << " lists " << option;
    }
  }
}

}  // namespace
}  // namespace coppice::reference
