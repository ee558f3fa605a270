// Compiling files of items: both forms of a line, and every fault, named by file, line and reason.
#include "catalogue/item_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "catalogue/vocabulary_check.h"
#include "tests/catalogue/sample_catalogue.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace coppice::catalogue {
namespace {

using coordinator::ByteTokenizer;
using testing::HasSubstr;
using Tokens = std::vector<TokenId>;

class ItemReaderTest : public ::testing::Test {
 protected:
  // What compiling the lines says: "" or the error without the path.
  std::string Compiled(const std::string& lines, ItemEnd end = ItemEnd::kNone) {
    const std::string path = dir_.File("books.txt");
    dir_.Write("books.txt", lines);
    std::filesystem::remove(output_);
    const auto builder = *CatalogueBuilder::Make({.source = path,
                                                  .output = output_,
                                                  .vocab_size = tokenizer_.vocab_size(),
                                                  .vocabulary = Fingerprint(),
                                                  .end = end});
    absl::Status status = ReadItems(
        path, tokenizer_, end, [](int64_t) {}, builder.get());
    if (status.ok()) status = builder->Write().status();
    EXPECT_EQ(std::filesystem::exists(output_), status.ok());
    // Nothing but the items and the catalogue is left in the folder.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}),
              status.ok() ? 2 : 1);
    if (status.ok()) return "";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const std::string message(status.message());
    EXPECT_EQ(message.substr(0, path.size()), path);
    EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
    return message.substr(path.size());
  }
  uint64_t Fingerprint() const { return VocabularyFingerprint(tokenizer::Vocabulary(tokenizer_)); }
  std::shared_ptr<const Catalogue> Opened() { return *Catalogue::Open(output_); }

  const test::TempDir dir_;
  const std::string output_ = dir_.File("books.cat");
  const ByteTokenizer tokenizer_;
};

TEST_F(ItemReaderTest, LinesOfTokens) {
  ASSERT_EQ(Compiled("1 2 3\n  1\t2 4 \r\n5\n"), "");
  const auto catalogue = Opened();
  EXPECT_EQ(catalogue->items(), 3);
  EXPECT_EQ(catalogue->FindId("1"), catalogue->ItemOf(Tokens{1, 2, 3}));
  EXPECT_EQ(catalogue->FindId("2"), catalogue->ItemOf(Tokens{1, 2, 4}));
  EXPECT_EQ(catalogue->Tokens(catalogue->FindId("3")), Tokens{5});
  EXPECT_EQ(catalogue->Name(0), "");
  ASSERT_EQ(Compiled("7 8"), "");  // the last line need not end
  EXPECT_EQ(Opened()->Tokens(0), (Tokens{7, 8}));
}

TEST_F(ItemReaderTest, LinesOfJson) {
  ASSERT_EQ(Compiled(R"({"id": "B1", "name": "Moby \"Dick\"", "tokens": [1, 2]})"
                     "\n"
                     R"({"tokens": [3], "id": "B2"})"
                     "\n"
                     R"({"id": 17, "name": "Émile", "text": "abc"})"
                     "\n"),
            "");
  const auto catalogue = Opened();
  EXPECT_EQ(catalogue->Name(catalogue->ItemOf(Tokens{1, 2})), "Moby \"Dick\"");
  EXPECT_EQ(catalogue->Id(catalogue->ItemOf(Tokens{3})), "B2");
  EXPECT_EQ(catalogue->Name(catalogue->FindId("17")), "Émile");
  EXPECT_EQ(catalogue->Tokens(catalogue->FindId("17")),
            tokenizer_.Encode("abc", /*add_special_tokens=*/false));
  EXPECT_TRUE(catalogue->Check().ok());
}

TEST_F(ItemReaderTest, EveryFaultIsNamed) {
  EXPECT_EQ(Compiled(""), ": there are no items");
  EXPECT_EQ(Compiled("1 2\n\n3\n"), ":2: the line is empty");
  EXPECT_EQ(Compiled("1 2\n3 x4\n"), ":2: \"x4\" is no token id");
  EXPECT_EQ(Compiled("1 99999999999\n"), ":1: \"99999999999\" is no token id");
  EXPECT_EQ(Compiled("1\n2 -3\n"), ":2: token -3 is outside of the vocabulary, which has 258");
  EXPECT_EQ(Compiled("1\n2 258\n"), ":2: token 258 is outside of the vocabulary, which has 258");
  EXPECT_EQ(Compiled("1 2\n4\n3 5\n1 2\n"), ":4: the item has the same tokens as that of line 1");
  EXPECT_EQ(Compiled("1 2 3\n4\n1 2\n"),
            ":1: the item begins with all tokens of that of line 3, which only --end=stop allows");
  EXPECT_EQ(Compiled("1 2 3\n4\n1 2\n", ItemEnd::kStop), "");
  std::string many = "1";
  for (int i = 0; i < 255; ++i) many += " 1";
  EXPECT_EQ(Compiled(many), ":1: the item has 256 tokens, at most 255 are possible");
  EXPECT_EQ(Compiled(many.substr(2)), "");
}

TEST_F(ItemReaderTest, EveryFaultOfAnObjectIsNamed) {
  const auto second = [this](const std::string& line) {
    return Compiled("{\"id\": \"a\", \"tokens\": [1]}\n" + line + "\n");
  };
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [2]"), ":2: no JSON");
  EXPECT_EQ(second("{\"id\": \"\xff\", \"tokens\": [2]}"), ":2: no JSON");
  EXPECT_EQ(second("[2]"), ":2: no JSON object");
  EXPECT_EQ(second("2"), ":2: no JSON object");
  EXPECT_EQ(second("{\"tokens\": [2]}"), ":2: \"id\" is missing");
  EXPECT_EQ(second("{\"id\": \"b\"}"), ":2: expected one of \"tokens\" and \"text\"");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [2], \"text\": \"x\"}"),
            ":2: expected one of \"tokens\" and \"text\"");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": []}"), ":2: the item has no tokens");
  EXPECT_EQ(second("{\"id\": \"b\", \"text\": \"\"}"), ":2: the item has no tokens");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": 2}"), ":2: \"tokens\" is no list");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [2, \"3\"]}"), ":2: tokens[1] is no token id");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [2.5]}"), ":2: tokens[0] is no token id");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [99999999999]}"), ":2: tokens[0] is no token id");
  EXPECT_EQ(second("{\"id\": \"b\", \"tokens\": [2], \"nmae\": \"x\"}"),
            ":2: unknown field \"nmae\"");
  EXPECT_EQ(second("{\"id\": [], \"tokens\": [2]}"), ":2: \"id\" is no string");
  EXPECT_EQ(second("{\"id\": \"\", \"tokens\": [2]}"), ":2: the id is empty");
  EXPECT_EQ(second("{\"id\": \"b\", \"name\": 3, \"tokens\": [2]}"), ":2: \"name\" is no string");
  EXPECT_EQ(second("{\"id\": \"a\", \"tokens\": [2]}"),
            ":2: the item has the same id as that of line 1, \"a\"");
  EXPECT_EQ(second("{\"id\": \"" + std::string(5000, 'i') + "\", \"tokens\": [2]}"),
            ":2: the id has more than 4096 bytes");
  EXPECT_EQ(
      second("{\"id\": \"b\", \"name\": \"" + std::string(70'000, 'n') + "\", \"tokens\": [2]}"),
      ":2: the name has more than 65536 bytes");
  EXPECT_EQ(second(std::string((1 << 20) + 1, ' ') + "2"), ":2: no JSON object");
  EXPECT_EQ(second("{" + std::string(1 << 20, ' ') + "}"),
            ":2: the line has more than 1048576 bytes");
}

// The token is that of the model's tokenizer.
TEST_F(ItemReaderTest, ATokenThatEndsATextIsOnlyTheLastOfAnItem) {
  const TokenId eos = tokenizer_.eos_ids()[0];
  const std::string inside = absl::StrCat("1 ", eos, " 2"), last = absl::StrCat("1 2 ", eos);
  const std::string error =
      absl::StrCat(":1: token ", eos, " ends a text, and is inside of the item");
  EXPECT_EQ(Compiled(inside), error);
  EXPECT_EQ(Compiled(last), "");
  EXPECT_EQ(Compiled(last, ItemEnd::kStop), error);
}

// A catalogue that was there stays until the new one is whole.
TEST_F(ItemReaderTest, AFailureLeavesTheOldCatalogue) {
  ASSERT_EQ(Compiled("1\n"), "");
  const std::string old = FileBytes(output_);
  dir_.Write("books.txt", "1\n1\n");
  const auto builder =
      *CatalogueBuilder::Make({.source = "books.txt", .output = output_, .vocab_size = 258});
  ASSERT_TRUE(ReadItems(
                  dir_.File("books.txt"), tokenizer_, ItemEnd::kNone, [](int64_t) {}, builder.get())
                  .ok());
  EXPECT_FALSE(builder->Write().ok());
  EXPECT_EQ(FileBytes(output_), old);
}

TEST_F(ItemReaderTest, PlacesThatCannotBeReadOrWritten) {
  EXPECT_EQ(CatalogueBuilder::Make({.source = "s", .output = dir_.File("none/x")}).status().code(),
            absl::StatusCode::kNotFound);
  const auto builder = *CatalogueBuilder::Make({.source = "s", .output = output_});
  EXPECT_THAT(ReadItems(
                  dir_.File("none"), tokenizer_, ItemEnd::kNone, [](int64_t) {}, builder.get())
                  .message(),
              HasSubstr("cannot be opened"));
  EXPECT_THAT(ReadItems(
                  dir_.path(), tokenizer_, ItemEnd::kNone, [](int64_t) {}, builder.get())
                  .message(),
              HasSubstr("not a regular file"));
}

// Another size, another text of one token.
TEST_F(ItemReaderTest, ACatalogueKnowsItsTokenizer) {
  ASSERT_EQ(Compiled("1\n"), "");
  const tokenizer::Vocabulary own(tokenizer_);
  EXPECT_TRUE(CheckVocabulary(*Opened(), own, "model").ok());
  class Renamed : public ByteTokenizer {
   public:
    std::string TokenBytes(TokenId id, bool skip_special) const override {
      return id == 'a' ? "b" : ByteTokenizer::TokenBytes(id, skip_special);
    }
  };
  const tokenizer::Vocabulary other((Renamed()));
  EXPECT_EQ(
      CheckVocabulary(*Opened(), other, "model").message(),
      output_ + ": compiled for another tokenizer than that of model, 258 tokens there, 258 here");
}

}  // namespace
}  // namespace coppice::catalogue
