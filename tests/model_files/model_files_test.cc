// One way to the settings of a folder and of a file.
#include "model_files/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/model_files/sample_gguf.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model_files {
namespace {

constexpr uint64_t kMost = 1 << 20;

TEST(ModelFiles, OfAFolder) {
  const test::TempDir dir;
  dir.Write("config.json", "{}");
  EXPECT_FALSE(IsModelFile(dir.path()));
  EXPECT_TRUE(ModelTextExists(dir.File("config.json")));
  EXPECT_FALSE(ModelTextExists(dir.File("tokenizer.json")));
  EXPECT_EQ(*ReadModelText(dir.File("config.json"), kMost), "{}");
  EXPECT_FALSE(ReadModelText(dir.File("config.json"), 1).ok());
}

TEST(ModelFiles, OfAFile) {
  const test::TempDir dir;
  dir.Write("F.gguf", SampleGguf("llama").Bytes());
  const std::string file = dir.File("F.gguf");
  EXPECT_TRUE(IsModelFile(file));
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"}) {
    EXPECT_TRUE(ModelTextExists(absl::StrCat(file, "/", name))) << name;
    const auto text = ReadModelText(absl::StrCat(file, "/", name), kMost);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_TRUE(nlohmann::json::parse(*text).is_object()) << name;
  }
  for (const char* name : {"tokenizer.model", "chat_template.jinja", "model.safetensors"}) {
    EXPECT_FALSE(ModelTextExists(absl::StrCat(file, "/", name))) << name;
    EXPECT_EQ(ReadModelText(absl::StrCat(file, "/", name), kMost).status(),
              absl::NotFoundError(absl::StrCat(file, ": has no ", name)));
  }
  EXPECT_EQ(ReadModelText(file + "/tokenizer.json", 10).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// The reason is told by whoever reads, not hidden by a file that seems to be absent.
TEST(ModelFiles, OfABrokenFile) {
  const test::TempDir dir;
  dir.Write("F.gguf", "GGUF");
  const std::string path = dir.File("F.gguf/tokenizer.json");
  EXPECT_TRUE(ModelTextExists(path));
  EXPECT_EQ(
      ReadModelText(path, kMost).status().message(),
      dir.File("F.gguf") + ": the file ends at byte 4, inside of the header: it is truncated");
}

TEST(ModelFiles, NamesOfModels) {
  EXPECT_EQ(ModelName("/models/some-model/"), "some-model");
  EXPECT_EQ(ModelName("some-model"), "some-model");
  EXPECT_EQ(ModelName("/models/Some-7B.Q4_K_M.gguf"), "Some-7B.Q4_K_M");
  EXPECT_EQ(ModelName("./v1.5"), "v1.5");
}

}  // namespace
}  // namespace coppice::model_files
