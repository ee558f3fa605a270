// Typed access to metadata, and models that are split into files.
#include "model_files/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

using test::GgufBuilder;
using test::GgufNumber;
using testing::ElementsAre;

class GgufFileTest : public testing::Test {
 protected:
  GgufFile Open(const GgufBuilder& builder) {
    dir_.Write("F.gguf", builder.Bytes());
    auto file = GgufFile::Open(dir_.File("F.gguf"));
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::string Said(const absl::Status& status) {
    std::string text(status.message());
    const std::string path = dir_.path() + "/";
    for (size_t at; (at = text.find(path)) != std::string::npos;) text.erase(at, path.size());
    return text;
  }
  test::TempDir dir_;
};

TEST_F(GgufFileTest, ReadsEveryTypeOfNumber) {
  GgufBuilder builder;
  const int64_t minus = -5;
  for (const auto& [type, bytes] : {std::pair(0, 1), {2, 2}, {4, 4}, {10, 8}}) {
    builder.Key(absl::StrCat("u", type), GgufNumber(type, 4) + GgufNumber(200, bytes));
    const int with_sign = type == 10 ? 11 : type + 1;
    builder.Key(absl::StrCat("i", with_sign),
                GgufNumber(with_sign, 4) + GgufNumber(static_cast<uint64_t>(minus), bytes));
  }
  builder.F32("f", 1e-5f);
  builder.Key("big", GgufNumber(10, 4) + GgufNumber(UINT64_MAX, 8));
  const GgufFile file = Open(builder);
  for (const char* key : {"u0", "u2", "u4", "u10"}) EXPECT_EQ(*file.Int(key, 0, 255), 200) << key;
  for (const char* key : {"i1", "i3", "i5", "i11"}) EXPECT_EQ(*file.Int(key, -9, 9), -5) << key;
  EXPECT_EQ(*file.Number("f", 0, 1), 1e-5);  // as written, not as the f32 that is nearest
  EXPECT_EQ(*file.NumberOr("absent", 0, 1, 0.5), 0.5);
  EXPECT_EQ(Said(file.Int("u4", 0, 100).status()),
            "F.gguf: key u4: 200, expected an integer from 0 to 100");
  EXPECT_EQ(Said(file.Int("big", 0, 100).status()),
            "F.gguf: key big: expected an integer from 0 to 100");
  EXPECT_EQ(Said(file.Int("absent", 0, 100).status()), "F.gguf: key absent: missing");
  EXPECT_EQ(Said(file.Number("f", 1, 2).status()),
            "F.gguf: key f: 1e-05, expected a number from 1 to 2");
  EXPECT_FALSE(Open(GgufBuilder().F32("nan", NAN)).Number("nan", 0, 1).ok());
}

TEST_F(GgufFileTest, ReadsTextsAndLists) {
  GgufBuilder builder;
  builder.Text("text", "d\xC3\xA9j\xC3\xA0").Texts("texts", {"a", "", "bc"}).I32s("ints", {3, -1});
  builder.F32s("floats", {0.5f})
      .Bool("yes", true)
      .Text("bad", "\xFF")
      .Texts("worse", {"a", "\xC0"});
  const GgufFile file = Open(builder);
  EXPECT_EQ(*file.Text("text"), "d\xC3\xA9j\xC3\xA0");
  EXPECT_THAT(*file.Texts("texts"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(*file.Ints("ints"), ElementsAre(3, -1));
  EXPECT_THAT(*file.Floats("floats"), ElementsAre(0.5f));
  EXPECT_TRUE(*file.BoolOr("yes", false));
  EXPECT_EQ(Said(file.Text("bad").status()), "F.gguf: key bad: expected a text in UTF-8");
  EXPECT_EQ(Said(file.Texts("worse").status()), "F.gguf: key worse[1]: expected a text in UTF-8");
  EXPECT_EQ(Said(file.Text("texts").status()), "F.gguf: key texts: expected a text");
  EXPECT_EQ(Said(file.Texts("ints").status()), "F.gguf: key ints: expected a list of texts");
  EXPECT_EQ(Said(file.BoolOr("text", true).status()), "F.gguf: key text: expected true or false");
}

TEST_F(GgufFileTest, RefusesWhatCannotBeMapped) {
  dir_.Write("empty.gguf", "");
  EXPECT_EQ(Said(GgufFile::Open(dir_.File("empty.gguf")).status()),
            "empty.gguf: the file is empty");
  EXPECT_FALSE(GgufFile::Open(dir_.File("nowhere.gguf")).ok());
}

GgufBuilder Part(int number, int count, const std::string& tensor) {
  GgufBuilder part;
  part.U32("split.no", number).U32("split.count", count).U32("split.tensors.count", 2);
  part.F32Tensor(tensor, {2}, {1.0f + number, 2});
  return part;
}

TEST_F(GgufFileTest, JoinsTheFilesOfASplitModel) {
  dir_.Write("m-00001-of-00002.gguf", Part(0, 2, "a").Bytes());
  dir_.Write("m-00002-of-00002.gguf", Part(1, 2, "b").Bytes());
  const auto file = GgufFile::Open(dir_.File("m-00001-of-00002.gguf"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file->Vector("a", 2), ElementsAre(1, 2));
  EXPECT_THAT(*file->Vector("b", 2), ElementsAre(2, 2));
}

TEST_F(GgufFileTest, NamesWhatIsWrongWithASplitModel) {
  const auto open = [&](const std::string& name) {
    return Said(GgufFile::Open(dir_.File(name)).status());
  };
  dir_.Write("m-00001-of-00002.gguf", Part(0, 2, "a").Bytes());
  EXPECT_THAT(open("m-00001-of-00002.gguf"), testing::StartsWith("m-00002-of-00002.gguf: "));
  dir_.Write("m-00002-of-00002.gguf", Part(1, 2, "a").Bytes());
  EXPECT_EQ(open("m-00001-of-00002.gguf"),
            "m-00002-of-00002.gguf: tensor a: is also in another part of the model");
  EXPECT_EQ(open("m-00002-of-00002.gguf"),
            "m-00002-of-00002.gguf: key split.count: 2 parts, and this is number 2; expected the "
            "first, NAME-00001-of-00002.gguf");
  dir_.Write("m-00002-of-00002.gguf", Part(0, 2, "b").Bytes());
  EXPECT_EQ(open("m-00001-of-00002.gguf"),
            "m-00002-of-00002.gguf: key split.no: 0, expected 1, the part that its name says");
  dir_.Write("m-00002-of-00002.gguf", Part(1, 2, "b").Bytes());
  dir_.Write("m-00001-of-00002.gguf", Part(0, 2, "a").U32("split.tensors.count", 3).Bytes());
  EXPECT_EQ(open("m-00001-of-00002.gguf"),
            "m-00001-of-00002.gguf: key split.tensors.count: 3, but the parts hold 2 tensors");
}

}  // namespace
}  // namespace coppice::model_files
