// The commands of coppice-catalogue: what they print, and their exit status.
#include "catalogue/catalogue_tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/catalogue/sample_catalogue.h"

namespace coppice::catalogue {
namespace {

using testing::HasSubstr;

constexpr char kModel[] = "tests/models/stories260k";
constexpr char kOtherModel[] = "deploy/demo/wikisql-target";

class CatalogueToolTest : public ::testing::Test {
 protected:
  CatalogueToolTest() {
    dir_.Write("items.jsonl",
               "{\"id\": \"B1\", \"name\": \"Moby Dick\", \"tokens\": [11, 12, 13]}\n"
               "{\"id\": \"B2\", \"tokens\": [11, 14]}\n");
  }
  // A flag with the path of a file.
  std::string With(const std::string& flag, const std::string& name) const {
    return absl::StrCat("--", flag, "=", dir_.File(name));
  }
  static int Call(std::vector<std::string> words) {
    words.insert(words.begin(), "coppice-catalogue");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return CatalogueMain(static_cast<int>(argv.size()), argv.data());
  }
  int Run(std::vector<std::string> words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = Call(std::move(words));
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }
  int Compile(const std::string& model = kModel) {
    return Run({"compile", With("items", "items.jsonl"), "--model=" + model, With("output", "c")});
  }

  const test::TempDir dir_;
  std::string out_, err_;
};

TEST_F(CatalogueToolTest, CompilesShowsAndChecks) {
  ASSERT_EQ(Compile(), 0) << err_;
  EXPECT_THAT(err_, HasSubstr("coppice-catalogue: 2 items, 5 nodes, "));
  EXPECT_EQ(Run({"show", dir_.File("c")}), 0);
  EXPECT_THAT(out_, HasSubstr("2 items of at most 3 tokens, followed by nothing"));
  EXPECT_THAT(out_, HasSubstr("item 0: B2, \"\", tokens 11 14\n"));
  EXPECT_THAT(out_, HasSubstr("item 1: B1, \"Moby Dick\", tokens 11 12 13\n"));
  EXPECT_EQ(Run({"check", dir_.File("c"), absl::StrCat("--model=", kModel)}), 0) << err_;
  EXPECT_EQ(out_, dir_.File("c") + ": 2 items, whole\n");
  EXPECT_EQ(err_, "");
}

TEST_F(CatalogueToolTest, AFailureIsALineAndStatusOne) {
  const std::string path = dir_.File("c");
  EXPECT_EQ(Run({"check", path}), 1);
  EXPECT_EQ(err_, "coppice-catalogue: " + path + ": cannot be opened: No such file or directory\n");
  ASSERT_EQ(Compile(), 0);
  EXPECT_EQ(Run({"check", path, absl::StrCat("--model=", kOtherModel)}), 1);
  EXPECT_EQ(err_,
            absl::StrCat("coppice-catalogue: ", path, ": compiled for another tokenizer than ",
                         "that of ", kOtherModel, ", 512 tokens there, 4608 here\n"));
  std::string bytes = FileBytes(path);
  bytes.back() ^= 1;
  dir_.Write("c", bytes);
  EXPECT_EQ(Run({"show", path}), 0);
  EXPECT_EQ(Run({"check", path}), 1);
  EXPECT_EQ(err_, "coppice-catalogue: " + path + ": the ids and names are damaged\n");
  dir_.Write("items.jsonl", "{\"id\": \"B1\", \"tokens\": [512]}\n");
  EXPECT_EQ(Compile(), 1);
  EXPECT_EQ(err_, absl::StrCat("coppice-catalogue: ", dir_.File("items.jsonl"),
                               ":1: token 512 is outside of the vocabulary, which has 512\n"));
}

TEST_F(CatalogueToolTest, AWrongCallIsStatusTwo) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(err_, "coppice-catalogue: '', expected compile, show or check first\n");
  EXPECT_EQ(Run({"list"}), 2);
  EXPECT_EQ(Run({"show"}), 2);
  EXPECT_EQ(err_, "coppice-catalogue: show: expected a file\n");
  EXPECT_EXIT(Call({"compile"}), testing::ExitedWithCode(2), "--model: is missing");
  EXPECT_EXIT(Call({"show", "c", "--items=x"}), testing::ExitedWithCode(2), "is only for compile");
  EXPECT_EXIT(Call({"compile", "--end=maybe"}), testing::ExitedWithCode(2), "--end: ");
}

}  // namespace
}  // namespace coppice::catalogue
