// The field `catalogue` of a request (docs/catalogues.md): what it asks for, and what is refused.
#include "coordinator/api/catalogue_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "catalogue/catalogue_query.h"
#include "tests/catalogue/sample_catalogue.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CatalogueFields : public ::testing::Test {
 protected:
  CatalogueFields() {
    const std::vector<catalogue::SampleItem> items = {
        {{5, 6, 7}, "b", "Emma"}, {{5, 8}, "a", "Dune"}, {{9, 6}, "c", "Ubik"}};
    const std::string file = dir_.File("books.cat");
    EXPECT_TRUE(catalogue::Compile(items, catalogue::ItemEnd::kNone, 100, file).ok());
    EXPECT_TRUE(catalogue::Compile(items, catalogue::ItemEnd::kStop, 100, file + "2").ok());
    store_ = *catalogue::CatalogueStore::Open({"books=" + file, "stopped=" + file + "2"}, {});
  }
  api_text::Parsed Parse(const std::string& fields) {
    ApiContext context = api_text::Context();
    context.catalogues = store_.get();
    return ParseCompletion(absl::StrCat(R"({"prompt": "hi", )", fields, "}"), "", context);
  }
  GenerateRequest Good(const std::string& fields) {
    const api_text::Parsed parsed = Parse(fields);
    EXPECT_EQ(api_text::Bad(parsed).message, "");
    return std::get<GenerateRequest>(parsed);
  }
  catalogue::Selection SelectionOf(const GenerateRequest& request) {
    EXPECT_EQ(request.params.format_spec.kind, FormatSpec::Kind::kCatalogue);
    const auto query = catalogue::ParseQuery(request.params.format_spec.text);
    EXPECT_TRUE(query.ok()) << query.status();
    EXPECT_EQ(query->name, request.catalogue.name);
    EXPECT_EQ(query->fingerprint, request.catalogue.content->fingerprint());
    return query->selection;
  }

  const test::TempDir dir_;
  std::unique_ptr<catalogue::CatalogueStore> store_;
};

TEST_F(CatalogueFields, ANameAsksForAllItems) {
  for (const std::string value : {R"("books")", R"({"name": "books"})"}) {
    const GenerateRequest request = Good(R"("catalogue": )" + value);
    EXPECT_EQ(request.catalogue.name, "books");
    EXPECT_EQ(request.catalogue.items, 3);
    EXPECT_EQ(request.params.max_tokens, 3) << "of the longest item";
    EXPECT_TRUE(request.catalogue.ends_items());
    EXPECT_THAT(SelectionOf(request).allowed, IsEmpty());
  }
  const GenerateRequest stopped = Good(R"("catalogue": "stopped")");
  EXPECT_EQ(stopped.params.max_tokens, 4);
  EXPECT_FALSE(stopped.catalogue.ends_items());
}

TEST_F(CatalogueFields, ItemsAreNamedByTheirIds) {
  const GenerateRequest some = Good(R"("catalogue": {"name": "books", "items": ["a", "x", "c"]})");
  const auto& content = *some.catalogue.content;
  EXPECT_THAT(SelectionOf(some).allowed, ElementsAre(content.FindId("a"), content.FindId("c")));
  EXPECT_EQ(some.catalogue.items, 2);
  EXPECT_THAT(some.ignored.names(), ElementsAre("catalogue.items"));
  const GenerateRequest rest =
      Good(R"("catalogue": {"name": "books", "exclude": ["a"], "prefix": [5]})");
  EXPECT_THAT(SelectionOf(rest).excluded, ElementsAre(content.FindId("a")));
  EXPECT_THAT(SelectionOf(rest).prefix, ElementsAre(5));
  EXPECT_EQ(rest.catalogue.items, 1);
  EXPECT_EQ(rest.params.max_tokens, 2) << "without the prefix";
  EXPECT_THAT(rest.ignored.names(), IsEmpty());
}

TEST_F(CatalogueFields, WhatGivesNoItemIsRefused) {
  for (const api_text::Refusal& refusal : std::vector<api_text::Refusal>{
           {R"("catalogue": 7)", "invalid_type", "catalogue"},
           {R"("catalogue": "films")", "invalid_value", "catalogue.name"},
           {R"("catalogue": {"items": ["a"]})", "invalid_value", "catalogue.name"},
           {R"("catalogue": {"name": "books", "items": "a"})", "invalid_type", "catalogue.items"},
           {R"("catalogue": {"name": "books", "items": ["x"]})", "invalid_value",
            "catalogue.items"},
           {R"("catalogue": {"name": "books", "items": ["a"], "exclude": ["a"]})", "invalid_value",
            "catalogue.items"},
           {R"("catalogue": {"name": "books", "exclude": ["a", "b", "c"]})", "invalid_value",
            "catalogue.exclude"},
           {R"("catalogue": {"name": "books", "prefix": [6]})", "invalid_value",
            "catalogue.prefix"},
           {R"("catalogue": {"name": "books", "prefix": [-1]})", "invalid_value",
            "catalogue.prefix"},
           {R"("catalogue": "books", "max_tokens": 2)", "invalid_value", "max_tokens"},
           {R"("catalogue": "books", "stop": "a")", "unsupported_combination", "catalogue"},
           {R"("catalogue": "books", "structured_outputs": {"regex": "a"})", "conflicting_fields",
            "structured_outputs.regex"}}) {
    const ApiError error = api_text::Bad(Parse(refusal.fields));
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
  }
  EXPECT_THAT(api_text::Bad(Parse(R"("catalogue": "films")")).message,
              HasSubstr("one of books, stopped"));
}

TEST_F(CatalogueFields, AFileThatWasOverwrittenInPlaceServesNothingUntilItIsReplaced) {
  const std::string file = store_->entries().at(0).file;
  const std::string bytes = catalogue::FileBytes(file);
  std::ofstream(file) << "x";
  const ApiError error = api_text::Bad(Parse(R"("catalogue": "books")"));
  EXPECT_EQ(error.status, 503);
  EXPECT_EQ(error.code, "catalogue_changed");
  EXPECT_EQ(error.retry_after_s, 5);
  std::ofstream(file + ".new", std::ios::binary) << bytes;
  ASSERT_EQ(std::rename((file + ".new").c_str(), file.c_str()), 0);
  EXPECT_TRUE(store_->Reload().empty());
  EXPECT_EQ(Good(R"("catalogue": {"name": "books", "items": ["a"]})").catalogue.items, 1);
}

TEST_F(CatalogueFields, AServerWithoutAnySaysSo) {
  const ApiError error = api_text::Bad(api_text::Parse(R"("catalogue": "books")"));
  EXPECT_EQ(error.code, "unsupported_field");
  EXPECT_THAT(error.message, HasSubstr("the server has no catalogue"));
}

TEST_F(CatalogueFields, AnItemEndsWithoutAStopId) {
  GenerateRequest request = Good(R"("catalogue": "books", "ignore_eos": true)");
  const ModelLimits model{/*max_model_len=*/100, /*eos_ids=*/{2}, /*vocab_size=*/300};
  EXPECT_EQ(FitToModel(model, {}, &request), std::nullopt);
  const ApiError error = api_text::Bad(Parse(R"("catalogue": "stopped", "ignore_eos": true)"));
  EXPECT_EQ(error.code, "unsupported_combination");
  EXPECT_EQ(error.param, "catalogue");
}

}  // namespace
}  // namespace coppice::coordinator
