// Folders that cannot be served. LoadTransformer fails with one line that names the file, the
// tensor and what was expected.
#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/model/model_harness.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct BadFolder {
  const char* name;
  std::function<void(test::TinyLlama*)> change_model;
  std::function<void(const test::TempDir&)> change_files;
  const char* message;  // after "DIR/"
  int shards = 0;
};

class BadCheckpoint : public testing::TestWithParam<BadFolder> {};

TEST_P(BadCheckpoint, NamesFileTensorAndExpectation) {
  const test::TempDir dir;
  test::TinyLlama tiny = test::MakeTinyLlama({.attention_bias = true, .shards = GetParam().shards});
  if (GetParam().change_model) GetParam().change_model(&tiny);
  test::WriteTinyLlama(tiny, dir.path());
  if (GetParam().change_files) GetParam().change_files(dir);
  const absl::Status status = LoadForTest({.dir = dir.path(), .max_rows = 8}).status();
  EXPECT_EQ(std::string(status.message()), absl::StrCat(dir.path(), "/", GetParam().message));
}

// A head of three rows whose ids are told by these distances.
std::function<void(test::TinyLlama*)> WithDraftVocabulary(std::vector<float> distances) {
  return [distances](test::TinyLlama* model) {
    test::ReduceHead(model, {2, 5, 9});
    model->tensors["d2t"] = {"I64", {static_cast<int64_t>(distances.size())}, distances};
  };
}

constexpr char kDown[] = "model.layers.1.mlp.down_proj.weight";

INSTANTIATE_TEST_SUITE_P(
    Folders, BadCheckpoint,
    testing::Values(
        BadFolder{
            "NoWeights", nullptr,
            [](const test::TempDir& dir) {
              std::filesystem::remove(dir.File("model.safetensors"));
            },
            "model.safetensors: missing, expected it, model.safetensors.index.json or "
            "pytorch_model.bin in the model folder"},
        BadFolder{"EmptyWeights", nullptr,
                  [](const test::TempDir& dir) { dir.Write("model.safetensors", ""); },
                  "model.safetensors: the file is empty"},
        BadFolder{"WeightsAreAFolder", nullptr,
                  [](const test::TempDir& dir) {
                    std::filesystem::remove(dir.File("model.safetensors"));
                    std::filesystem::create_directory(dir.File("model.safetensors"));
                  },
                  "model.safetensors: not a regular file but a folder"},
        BadFolder{"WeightsAreAPipe", nullptr,
                  [](const test::TempDir& dir) {
                    std::filesystem::remove(dir.File("model.safetensors"));
                    mkfifo(dir.File("model.safetensors").c_str(), 0600);
                  },
                  "model.safetensors: not a regular file but a pipe"},
        BadFolder{"IndexIsTooLarge", nullptr,
                  [](const test::TempDir& dir) {
                    std::filesystem::resize_file(dir.File("model.safetensors.index.json"),
                                                 uint64_t{6} << 30);
                  },
                  "model.safetensors.index.json: 6442450944 bytes, expected at most 268435456", 2},
        BadFolder{"Truncated", nullptr,
                  [](const test::TempDir& dir) {
                    std::filesystem::resize_file(
                        dir.File("model.safetensors"),
                        std::filesystem::file_size(dir.File("model.safetensors")) - 1);
                  },
                  "model.safetensors: model.norm.weight: data_offsets: end at byte 87424 of 87423 "
                  "data bytes, the "
                  "file is truncated"},
        BadFolder{"MissingMatrix", [](test::TinyLlama* model) { model->tensors.erase(kDown); },
                  nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight: missing, expected a "
                  "tensor of shape "
                  "[32, 48]"},
        BadFolder{
            "MissingHead", [](test::TinyLlama* model) { model->tensors.erase("lm_head.weight"); },
            nullptr,
            "model.safetensors: lm_head.weight: missing, expected a tensor of shape [96, 32]"},
        BadFolder{"MissingNorm",
                  [](test::TinyLlama* model) { model->tensors.erase("model.norm.weight"); },
                  nullptr,
                  "model.safetensors: model.norm.weight: missing, expected a tensor of shape [32]"},
        BadFolder{
            "MissingBias",
            [](test::TinyLlama* model) {
              model->tensors.erase("model.layers.0.self_attn.k_proj.bias");
            },
            nullptr,
            "model.safetensors: model.layers.0.self_attn.k_proj.bias: missing, expected a tensor "
            "of shape "
            "[16]"},
        BadFolder{"TransposedMatrix",
                  [](test::TinyLlama* model) {
                    model->tensors[kDown].shape = {48, 32};
                  },
                  nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight: shape [48, 32], "
                  "expected [32, 48] by "
                  "config.json"},
        BadFolder{"FlatMatrix",
                  [](test::TinyLlama* model) { model->tensors[kDown].shape = {48 * 32}; }, nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight: shape [1536], expected "
                  "[32, 48] by "
                  "config.json"},
        BadFolder{"VocabularyOfConfigDiffers",
                  [](test::TinyLlama* model) { test::SetConfig(model, "vocab_size", "100"); },
                  nullptr,
                  "model.safetensors: model.embed_tokens.weight: shape [96, 32], expected [100, "
                  "32] by config.json"},
        BadFolder{"IntegerMatrix", nullptr,
                  // I32 has four bytes per element, like F32. So only the name in the header
                  // changes.
                  [](const test::TempDir& dir) {
                    std::string file = Slurp(dir.File("model.safetensors"));
                    file[file.find("F32", file.find(kDown))] = 'I';
                    dir.Write("model.safetensors", file);
                  },
                  "model.safetensors: model.layers.1.mlp.down_proj.weight: dtype I32, expected "
                  "F32, F16, BF16 or I8"},
        BadFolder{"IntegersWithoutScales",
                  [](test::TinyLlama* model) {
                    test::StoreIntegers(model);
                    model->tensors.erase(std::string(kDown) + "_scale");
                  },
                  nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight_scale: missing, expected "
                  "a tensor of shape [32]"},
        BadFolder{"TooFewScales",
                  [](test::TinyLlama* model) {
                    test::StoreIntegers(model);
                    model->tensors[std::string(kDown) + "_scale"] = {"F32", {2}, {1, 1}};
                  },
                  nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight_scale: shape [2], "
                  "expected [32] by config.json"},
        BadFolder{"ScaleThatIsNoNumber",
                  [](test::TinyLlama* model) {
                    test::StoreIntegers(model);
                    model->tensors[std::string(kDown) + "_scale"].values[7] = INFINITY;
                  },
                  nullptr,
                  "model.safetensors: model.layers.1.mlp.down_proj.weight_scale: row 7 is inf, "
                  "expected a finite number"},
        BadFolder{"IntegerGain",
                  [](test::TinyLlama* model) { model->tensors["model.norm.weight"].dtype = "I8"; },
                  nullptr,
                  "model.safetensors: model.norm.weight: dtype I8, expected F32, F16 or BF16"},
        BadFolder{"MissingDraftVocabulary",
                  [](test::TinyLlama* model) {
                    test::ReduceHead(model, {2, 5, 9});
                    model->tensors.erase("d2t");
                  },
                  nullptr, "model.safetensors: d2t: missing, expected a tensor of shape [3]"},
        BadFolder{"TooFewDraftVocabulary", WithDraftVocabulary({2, 4}), nullptr,
                  "model.safetensors: d2t: shape [2], expected [3] by config.json"},
        BadFolder{"FloatDraftVocabulary",
                  [](test::TinyLlama* model) {
                    test::ReduceHead(model, {2, 5, 9});
                    model->tensors["d2t"].dtype = "F32";
                  },
                  nullptr, "model.safetensors: d2t: dtype F32, expected I64"},
        BadFolder{"HeadIdBelowTheVocabulary", WithDraftVocabulary({2, -2, 7}), nullptr,
                  "model.safetensors: d2t: row 1 has -2, expected -1 to 94, which are the ids of "
                  "the vocabulary"},
        BadFolder{"HeadIdBehindTheVocabulary", WithDraftVocabulary({2, 4, 94}), nullptr,
                  "model.safetensors: d2t: row 2 has 94, expected -2 to 93, which are the ids of "
                  "the vocabulary"},
        BadFolder{"HeadIdTwice", WithDraftVocabulary({2, 4, 3}), nullptr,
                  "model.safetensors: d2t: row 2 is id 5, expected more than 5, the id of the row "
                  "before"},
        BadFolder{"DraftVocabularyOutOfOrder", WithDraftVocabulary({5, 1, 7}), nullptr,
                  "model.safetensors: d2t: row 1 is id 2, expected more than 5, the id of the row "
                  "before"},
        BadFolder{"DraftVocabularyOfAnotherSize",
                  [](test::TinyLlama* model) {
                    const test::TinyTensor whole = model->tensors["lm_head.weight"];
                    test::ReduceHead(model, {2, 5, 9});
                    model->tensors["lm_head.weight"] = whole;
                  },
                  nullptr,
                  "model.safetensors: lm_head.weight: shape [96, 32], expected [3, 32] by "
                  "config.json"},
        BadFolder{"MissingShard", nullptr,
                  [](const test::TempDir& dir) {
                    std::filesystem::remove(dir.File("model-2-of-2.safetensors"));
                  },
                  "model-2-of-2.safetensors: cannot be opened: No such file or directory", 2},
        BadFolder{"ShardWithoutItsTensor", nullptr,
                  [](const test::TempDir& dir) {
                    dir.Write("model.safetensors.index.json",
                              R"({"weight_map": {"lost.weight": "model-1-of-2.safetensors"}})");
                  },
                  "model.safetensors.index.json: weight_map.lost.weight: listed in "
                  "model-1-of-2.safetensors, which "
                  "does not hold it",
                  2},
        BadFolder{"ShardOutsideTheFolder", nullptr,
                  [](const test::TempDir& dir) {
                    dir.Write("model.safetensors.index.json",
                              R"({"weight_map": {"w": "../model.safetensors"}})");
                  },
                  "model.safetensors.index.json: weight_map.w: expected the name of a file in the "
                  "same folder",
                  2},
        BadFolder{"IndexWithoutMap", nullptr,
                  [](const test::TempDir& dir) { dir.Write("model.safetensors.index.json", "{}"); },
                  "model.safetensors.index.json: weight_map: missing, expected an object", 2},
        BadFolder{"IndexNotJson", nullptr,
                  [](const test::TempDir& dir) { dir.Write("model.safetensors.index.json", "{"); },
                  "model.safetensors.index.json: not valid JSON (1 bytes)", 2},
        BadFolder{"IndexWithoutATensor", nullptr,
                  [](const test::TempDir& dir) {
                    nlohmann::json index =
                        nlohmann::json::parse(Slurp(dir.File("model.safetensors.index.json")));
                    index["weight_map"].erase("model.norm.weight");
                    dir.Write("model.safetensors.index.json", index.dump());
                  },
                  "model.safetensors.index.json: model.norm.weight: missing, expected a tensor of "
                  "shape [32]",
                  2}),
    [](const auto& info) { return info.param.name; });

TEST(Checkpoint, ExtraTensorsAreNotFatalAndRotaryFrequenciesIgnored) {
  const test::TempDir dir;
  test::TinyLlama tiny = test::MakeTinyLlama({});
  tiny.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {4}, {1, 2, 3, 4}};
  tiny.tensors["vision_tower.weight"] = {"F32", {2}, {1, 2}};
  test::WriteTinyLlama(tiny, dir.path());
  EXPECT_TRUE(LoadForTest({.dir = dir.path(), .max_rows = 8}).ok());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  const std::vector<std::string> unused = (*checkpoint)->UnusedNames();
  EXPECT_THAT(unused, testing::Contains("vision_tower.weight"));
  EXPECT_THAT(unused, Not(testing::Contains(HasSubstr("inv_freq"))));
}

// Data that starts at an odd byte, as in files of early writers.
TEST(Checkpoint, ReadsUnalignedTensors) {
  const test::TempDir dir;
  const test::TinyLlama tiny = test::MakeTinyLlama({});
  test::WriteTinyLlama(tiny, dir.path());
  const PlanSketch sketch = PlanSketch(16).Prefix({5, 6, 7}, 0, 3, 3);
  const std::vector<float> aligned =
      *LoadForTest({.dir = dir.path(), .max_rows = 8})->Run(sketch.plan);
  std::string file = Slurp(dir.File("model.safetensors"));
  const size_t length =
      static_cast<unsigned char>(file[0]) + 256 * static_cast<unsigned char>(file[1]);
  file = absl::StrCat(file.substr(0, 8 + length), " ", file.substr(8 + length));
  file[0] = static_cast<char>((length + 1) & 255);
  file[1] = static_cast<char>((length + 1) >> 8);
  dir.Write("model.safetensors", file);
  EXPECT_EQ(*LoadForTest({.dir = dir.path(), .max_rows = 8})->Run(sketch.plan), aligned);
}

// If the header or the length of the file is damaged, loading gives an error or a model, but never
// a crash.
TEST(Checkpoint, LoadSurvivesRandomDamage) {
  const test::TempDir dir;
  test::WriteTinyLlama(
      test::MakeTinyLlama(
          {.hidden = 8, .layers = 1, .heads = 2, .kv_heads = 1, .intermediate = 8, .vocab = 8}),
      dir.path());
  const std::string good = Slurp(dir.File("model.safetensors"));
  const size_t header =
      8 + static_cast<unsigned char>(good[0]) + 256 * static_cast<unsigned char>(good[1]);
  std::mt19937_64 random(7);
  int refused = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    std::string file = good;
    if (round % 4 == 0) file.resize(random() % file.size());
    if (!file.empty())
      file[random() % std::min(header, file.size())] ^= static_cast<char>(1 << random() % 8);
    dir.Write("model.safetensors", file);
    const absl::Status status = LoadForTest({.dir = dir.path(), .max_rows = 4}).status();
    if (status.ok()) continue;
    ++refused;
    ASSERT_THAT(std::string(status.message()), HasSubstr("model.safetensors: "));
    ASSERT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
  }
  EXPECT_GT(refused, kRounds / 2);
}

}  // namespace
}  // namespace coppice::model
