// The text of what a request asks of a catalogue.
#include "catalogue/catalogue_query.h"

#include <gtest/gtest.h>

namespace coppice::catalogue {
namespace {

TEST(CatalogueQueryTest, IsReadAsItWasWritten) {
  CatalogueQuery query;
  query.name = "books \"of\" 2026";
  query.fingerprint = 0x0123456789abcdef;
  for (const bool selects : {false, true}) {
    if (selects) query.selection = {{7, 0, 10'000'000'000}, {3}, {5, 5}};
    const auto read = ParseQuery(QueryText(query));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->name, query.name);
    EXPECT_EQ(read->fingerprint, query.fingerprint);
    EXPECT_EQ(read->selection.allowed, query.selection.allowed);
    EXPECT_EQ(read->selection.excluded, query.selection.excluded);
    EXPECT_EQ(read->selection.prefix, query.selection.prefix);
  }
}

TEST(CatalogueQueryTest, OtherTextsAreErrors) {
  const std::string start = R"({"catalogue":"books","fingerprint":"00000000000000aa")";
  ASSERT_TRUE(ParseQuery(start + "}").ok());
  for (const std::string& text :
       {std::string(), start, std::string("[]"), std::string(R"({"fingerprint":"aa"})"),
        std::string(R"({"catalogue":"","fingerprint":"aa"})"),
        std::string(R"({"catalogue":"books","fingerprint":"xyz"})"),
        std::string(R"({"catalogue":"books","fingerprint":7})"), start + R"(,"allowed":7})",
        start + R"(,"allowed":[-1]})", start + R"(,"excluded":["3"]})",
        start + R"(,"prefix":[2147483648]})", start + R"(,"prefix":[1.5]})"}) {
    EXPECT_EQ(ParseQuery(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace coppice::catalogue
