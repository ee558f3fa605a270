// A quantised folder is the folder of the values that its tensors stand for: bit for bit as f32, and
// near to them where it is kept in blocks. Folders that cannot be served are refused.
#include "model/quantised_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "tests/model/last_logits.h"
#include "tests/model/model_harness.h"
#include "tests/model/reference_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_quantised.h"

namespace coppice::model {
namespace {

using test::QuantisedOptions;
using test::TinyLlama;
using test::TinyQuantised;

struct Case {
  const char* name;
  QuantisedOptions options;
  const char* kept = "";    // types of weights in memory if nothing is asked; "": as all others
  const char* family = "";  // "": a Llama whose matrices are all quantised
};

// The first row of each matrix is positive, so that its zeros are 0.
TinyQuantised Make(const Case& c) {
  TinyLlama model = *c.family == '\0'
                        ? test::MakeTinyLlama({.hidden = 64, .intermediate = 96, .tied = true})
                        : test::MakeTinyFamily(c.family, {.layers = 2});
  for (auto& [name, tensor] : model.tensors) {
    if (tensor.shape.size() != 2) continue;
    for (int64_t i = 0; i < tensor.shape[1]; ++i) tensor.values[i] = std::fabs(tensor.values[i]);
  }
  return test::Quantise(model, c.options);
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Quantised : public testing::TestWithParam<Case> {};

TEST_P(Quantised, AsF32ItIsItsValues) {
  const TinyQuantised made = Make(GetParam());
  for (const int ranks : {1, 2}) {
    const std::vector<float> found = LastLogits(made.folder, ranks, "f32", "auto");
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found, LastLogits(made.values, ranks, "f32", "auto")) << ranks << " ranks";
  }
}

// Where blocks are kept, products have their inputs as int8.
TEST_P(Quantised, AsItIsItIsNearTheReference) {
  const TinyQuantised made = Make(GetParam());
  const auto reference = ReferenceLogits(made.values, {5, 17, 90, 3, 0, 95, 44});
  for (const int ranks : {1, 2}) {
    const std::vector<float> found = LastLogits(made.folder, ranks, "auto", "auto");
    ASSERT_EQ(found.size(), size_t{3 * 96});
    double error = 0, norm = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double expected = reference[4 + i / 96][i % 96];
      error += std::pow(expected - found[i], 2);
      norm += std::pow(expected, 2);
    }
    EXPECT_LT(std::sqrt(error / norm), *GetParam().kept == '\0' ? 1e-5 : 0.05) << ranks;
  }
}

TEST_P(Quantised, IsKeptAsItIs) {
  const test::TempDir dir;
  test::WriteTinyLlama(Make(GetParam()).folder, dir.path());
  const auto loaded = LoadForTest({.dir = dir.path(), .max_rows = 8});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::string kept = GetParam().kept;
  EXPECT_EQ(loaded->parts().weight_types, kept.empty() ? "F32" : kept);
  const auto whole = LoadForTest({.dir = dir.path(), .dtype = "f32", .max_rows = 8});
  ASSERT_TRUE(whole.ok()) << whole.status();
  if (kept.empty()) {
    EXPECT_EQ(loaded->parts().weights.bytes, whole->parts().weights.bytes);
  } else {
    EXPECT_LT(loaded->parts().weights.bytes, whole->parts().weights.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Folders, Quantised,
    testing::Values(
        Case{"Gptq", {.layout = "gptq"}, "Q4_0"},
        Case{"GptqOfRows", {.layout = "gptq", .group = -1}, "Q4_0"},
        Case{"GptqWithAShortGroup", {.layout = "gptq", .group = 64}, "Q4_0"},
        Case{"GptqWithZeros", {.layout = "gptq", .symmetric = false}, "Q5_0"},
        Case{"GptqOfVersion2", {.layout = "gptq", .v2 = true}, "Q4_0"},
        Case{"GptqOfVersion2WithZeros",
             {.layout = "gptq", .group = 64, .symmetric = false, .v2 = true},
             "Q5_0"},
        Case{"GptqWithIndices", {.layout = "gptq", .indices = true}, "Q4_0"},
        Case{"GptqOf8Bits", {.layout = "gptq", .bits = 8}, "Q8_0"},
        Case{"GptqOf8BitsOfVersion2",
             {.layout = "gptq", .bits = 8, .group = -1, .v2 = true},
             "Q8_0"},
        Case{"PackedOf8Bits", {.layout = "packed", .bits = 8, .group = 64}, "Q8_0"},
        Case{"Awq", {.layout = "awq"}, "Q5_0"},
        Case{"AwqOf64", {.layout = "awq", .group = 64}, "Q5_0"},
        Case{"Packed", {.layout = "packed"}, "Q4_0"},
        Case{"PackedOfRows", {.layout = "packed", .group = -1, .scale_dtype = "BF16"}, "Q4_0"},
        Case{"PackedWithZeros",
             {.layout = "packed", .symmetric = false, .scale_dtype = "BF16"},
             "Q5_0"},
        Case{"Int8", {.layout = "int8", .scale_dtype = "BF16"}, "Q8_0"},
        Case{"Int8WithOneScale", {.layout = "int8", .one_scale = true}, "Q8_0"},
        Case{"Int8WithWideScales", {.layout = "int8", .scale_dtype = "F32"}},
        Case{"Fp8", {.layout = "fp8", .scale_dtype = "F32"}},
        Case{"Fp8WithOneScale", {.layout = "fp8", .scale_dtype = "BF16", .one_scale = true}},
        Case{"Fp8InBlocks", {.layout = "fp8_blocks", .scale_dtype = "F32"}},
        Case{"StackedTensors", {.layout = "gptq", .symmetric = false}, "Q5_0", "phi3"},
        Case{"StackedTensorsOfAwq", {.layout = "awq"}, "Q5_0", "phi3"},
        Case{"Experts", {.layout = "awq"}, "Q5_0", "qwen3_moe"},
        Case{"ExpertsOfFp8", {.layout = "fp8", .scale_dtype = "F32"}, "", "mixtral"},
        Case{"Biases", {.layout = "gptq"}, "Q4_0", "opt"},
        Case{"RowsOfHeads", {.layout = "packed"}, "Q4_0", "gpt_neox"}),
    [](const auto& info) { return info.param.name; });

struct BadFolder {
  const char* name;
  QuantisedOptions options;
  std::function<void(TinyLlama*)> change;
  const char* message;  // after "DIR/"
};

void PrintTo(const BadFolder& folder, std::ostream* out) { *out << folder.name; }

class BadQuantised : public testing::TestWithParam<BadFolder> {};

TEST_P(BadQuantised, NamesFileTensorAndExpectation) {
  const test::TempDir dir;
  TinyLlama folder = Make({"", GetParam().options}).folder;
  GetParam().change(&folder);
  test::WriteTinyLlama(folder, dir.path());
  const absl::Status status = LoadForTest({.dir = dir.path(), .max_rows = 8}).status();
  EXPECT_EQ(std::string(status.message()), absl::StrCat(dir.path(), "/", GetParam().message));
}

constexpr char kUp[] = "model.layers.1.mlp.up_proj";

std::function<void(TinyLlama*)> Without(const char* suffix) {
  return [suffix](TinyLlama* model) { model->tensors.erase(absl::StrCat(kUp, suffix)); };
}
std::function<void(TinyLlama*)> OfShape(const char* suffix, std::vector<int64_t> shape) {
  return [=](TinyLlama* model) { model->tensors[absl::StrCat(kUp, suffix)].shape = shape; };
}
std::function<void(TinyLlama*)> WithScale(const char* suffix, int at, float value) {
  return [=](TinyLlama* model) { model->tensors[absl::StrCat(kUp, suffix)].values[at] = value; };
}
std::function<void(TinyLlama*)> WithByte(const char* suffix, int at, char value) {
  return [=](TinyLlama* model) { model->tensors[absl::StrCat(kUp, suffix)].bytes[at] = value; };
}
std::function<void(TinyLlama*)> WithConfig(const char* json) {
  return [json](TinyLlama* model) { test::SetConfig(model, "quantization_config", json); };
}

INSTANTIATE_TEST_SUITE_P(
    Folders, BadQuantised,
    testing::Values(
        BadFolder{"NoCodes",
                  {.layout = "gptq"},
                  Without(".qweight"),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight: missing, expected a "
                  "tensor of shape [96, 64]"},
        BadFolder{"NoScales",
                  {.layout = "gptq"},
                  Without(".scales"),
                  "model.safetensors: model.layers.1.mlp.up_proj.scales: missing, expected a "
                  "tensor of shape [2, 96]"},
        BadFolder{"NoZeros",
                  {.layout = "awq"},
                  Without(".qzeros"),
                  "model.safetensors: model.layers.1.mlp.up_proj.qzeros: missing, expected a "
                  "tensor of shape [2, 12]"},
        BadFolder{"NoIndices",
                  {.layout = "gptq", .indices = true},
                  Without(".g_idx"),
                  "model.safetensors: model.layers.1.mlp.up_proj.g_idx: missing, expected a "
                  "tensor of shape [64]"},
        BadFolder{"NoScalesOfBytes",
                  {.layout = "fp8"},
                  Without(".weight_scale"),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_scale: missing, expected "
                  "the scales of a matrix"},
        BadFolder{"ShapeOfCodes",
                  {.layout = "gptq"},
                  OfShape(".qweight", {96, 8}),
                  "model.safetensors: model.layers.1.mlp.up_proj.qweight: I32 [96, 8], expected "
                  "I32 [8, 96] by config.json"},
        BadFolder{"ShapeOfScales",
                  {.layout = "packed"},
                  OfShape(".weight_scale", {2, 96}),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_scale: F16 [2, 96], "
                  "expected F16 [96, 2] by config.json"},
        BadFolder{"ShapeOfScalesOfBytes",
                  {.layout = "int8"},
                  OfShape(".weight_scale", {2, 48}),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_scale: shape [2, 48], "
                  "expected [96, 1] by config.json"},
        BadFolder{"ShapeOfBytes",
                  {.layout = "fp8"},
                  OfShape(".weight", {64, 96}),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight: F8_E4M3 [64, 96], "
                  "expected F8_E4M3 [96, 64] by config.json"},
        BadFolder{"OtherShapeTensor",
                  {.layout = "packed"},
                  WithScale(".weight_shape", 1, 60),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_shape: [96, 60], expected "
                  "[96, 64] by config.json"},
        BadFolder{"ScaleIsNaN",
                  {.layout = "awq", .scale_dtype = "BF16"},
                  WithScale(".scales", 97, NAN),
                  "model.safetensors: model.layers.1.mlp.up_proj.scales: scale 97 is nan, expected "
                  "a finite number"},
        BadFolder{"ScaleOfBytesIsNaN",
                  {.layout = "fp8", .scale_dtype = "F32"},
                  WithScale(".weight_scale", 3, NAN),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_scale: scale 3 is nan, "
                  "expected a finite number"},
        BadFolder{"ScaleIsNoF16",
                  {.layout = "awq", .scale_dtype = "BF16"},
                  WithScale(".scales", 1, 0x1p-30f),
                  "model.safetensors: model.layers.1.mlp.up_proj.scales: scale 1 is "
                  "9.31323e-10, expected one that F16 holds exactly"},
        BadFolder{"CodeIsNaN",
                  {.layout = "fp8"},
                  WithByte(".weight", 70, '\xff'),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight: element 70 is nan, "
                  "expected a finite number"},
        BadFolder{"IndexOutOfRange",
                  {.layout = "gptq", .indices = true},
                  WithByte(".g_idx", 7, 1),
                  "model.safetensors: model.layers.1.mlp.up_proj.g_idx: element 1 is 16777216, "
                  "expected 0: groups in the order of activations (desc_act) are not served yet"},
        BadFolder{"OtherOrder",
                  {.layout = "gptq", .indices = true},
                  WithByte(".g_idx", 252, 0),
                  "model.safetensors: model.layers.1.mlp.up_proj.g_idx: element 63 is 0, expected "
                  "1: groups in the order of activations (desc_act) are not served yet"},
        BadFolder{"ZeroOfASymmetricMatrix",
                  {.layout = "gptq"},
                  WithByte(".qzeros", 48, 0x75),
                  "model.safetensors: model.layers.1.mlp.up_proj.qzeros: the zero of group 1, "
                  "output 0 is 6, expected 8, as quantization_config.sym is true"},
        BadFolder{"UnknownMethod",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"),
                  "config.json: quantization_config.quant_method: bitsandbytes is not served yet "
                  "(gptq, awq, compressed-tensors, fp8 are)"},
        BadFolder{"Bits",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "gptq", "bits": 3, "group_size": 32})"),
                  "config.json: quantization_config.bits: 3 bits are not served yet (4, 8 are)"},
        BadFolder{"Group",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "gptq", "bits": 4, "group_size": 48})"),
                  "config.json: quantization_config.group_size: 48, expected -1 or a multiple of "
                  "32"},
        BadFolder{"ZerosOf8Bits",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "gptq", "bits": 8, "group_size": 32,
                             "sym": false})"),
                  "config.json: quantization_config.sym: false is not served yet with 8 bits, "
                  "expected true"},
        BadFolder{"FormatOfGptq",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "gptq", "bits": 4, "group_size": 32,
                             "checkpoint_format": "marlin"})"),
                  "config.json: quantization_config.checkpoint_format: marlin is not served yet "
                  "(gptq, gptq_v2 are)"},
        BadFolder{"MatricesOfTheirOwn",
                  {.layout = "gptq"},
                  WithConfig(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"x": {}}})"),
                  "config.json: quantization_config.dynamic: is not served yet, expected none"},
        BadFolder{"VersionOfAwq",
                  {.layout = "awq"},
                  WithConfig(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})"),
                  "config.json: quantization_config.version: gemv is not served yet (gemm is)"},
        BadFolder{"AwqWithoutZeros",
                  {.layout = "awq"},
                  WithConfig(R"({"quant_method": "awq", "bits": 4, "group_size": 32,
                             "zero_point": false})"),
                  "config.json: quantization_config.zero_point: false is not served yet, expected "
                  "true"},
        BadFolder{"TypeOfFp8",
                  {.layout = "fp8"},
                  WithConfig(R"({"quant_method": "fp8", "fmt": "e5m2"})"),
                  "config.json: quantization_config.fmt: e5m2 is not served yet (e4m3 is)"},
        BadFolder{"Sparsity",
                  {.layout = "fp8"},
                  WithConfig(R"({"quant_method": "compressed-tensors",
                             "sparsity_config": {"format": "sparse-24-bitmask"}})"),
                  "config.json: quantization_config.sparsity_config.format: sparse-24-bitmask is "
                  "not served yet (dense is)"},
        BadFolder{"Transforms",
                  {.layout = "fp8"},
                  WithConfig(R"({"quant_method": "compressed-tensors",
                             "transform_config": {"config_groups": {}}})"),
                  "config.json: quantization_config.transform_config: is not served yet, expected "
                  "none"},
        BadFolder{"SeveralGroups",
                  {.layout = "fp8"},
                  WithConfig(R"({"quant_method": "compressed-tensors", "format": "int-quantized",
                             "config_groups": {"a": {}, "b": {}}})"),
                  "config.json: quantization_config.config_groups: 2 groups, expected one"},
        BadFolder{"FormatOfCompressedTensors",
                  {.layout = "fp8"},
                  WithConfig(R"({"quant_method": "compressed-tensors", "format": "nvfp4",
                             "config_groups": {"a": {"weights": {}}}})"),
                  "config.json: quantization_config.format: nvfp4 is not served yet "
                  "(pack-quantized, int-quantized, float-quantized are)"},
        BadFolder{"NotSymmetric",
                  {.layout = "packed"},
                  WithConfig(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                             "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int",
                             "strategy": "channel", "symmetric": false}}}})"),
                  "config.json: quantization_config.config_groups.a.weights.symmetric: false is "
                  "not served yet with 8 bits, expected true"},
        BadFolder{"NoZerosOfPacked",
                  {.layout = "packed", .symmetric = false},
                  Without(".weight_zero_point"),
                  "model.safetensors: model.layers.1.mlp.up_proj.weight_zero_point: missing, "
                  "expected a tensor of shape [12, 2]"},
        BadFolder{"Strategy",
                  {.layout = "int8"},
                  WithConfig(R"({"quant_method": "compressed-tensors", "format": "int-quantized",
                             "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int",
                             "strategy": "group"}}}})"),
                  "config.json: quantization_config.config_groups.a.weights.strategy: group is not "
                  "served yet (channel, tensor are)"}),
    [](const auto& info) { return info.param.name; });

// A check reads headers and scales alone.
TEST(QuantisedCheckpoint, IsCheckedWithoutItsValues) {
  const test::TempDir dir;
  TinyLlama folder = Make({"", {.layout = "fp8", .scale_dtype = "F32"}}).folder;
  WithByte(".weight", 70, '\xff')(&folder);
  test::WriteTinyLlama(folder, dir.path());
  auto checkpoint = *Checkpoint::Open(dir.path());
  const std::string name = absl::StrCat(kUp, ".weight");
  EXPECT_TRUE(checkpoint->CheckMatrix(name, 96, 64).ok());
  EXPECT_FALSE(checkpoint->Matrix(name, 96, 64).ok());
  EXPECT_FALSE(checkpoint->CheckMatrix(name, 64, 96).ok());
}

TEST(QuantisedCheckpoint, ListsTensorsThatNothingReads) {
  const test::TempDir dir;
  TinyLlama folder = Make({"", {.layout = "packed"}}).folder;
  folder.tensors["model.layers.0.mlp.up_proj.input_scale"] = {"F32", {1}, {1}};
  test::WriteTinyLlama(folder, dir.path());
  auto checkpoint = *Checkpoint::Open(dir.path());
  const size_t all = checkpoint->UnusedNames().size();
  ASSERT_TRUE(checkpoint->Matrix("model.layers.0.mlp.up_proj.weight", 96, 64).ok());
  EXPECT_EQ(checkpoint->UnusedNames().size(), all - 3);
  EXPECT_THAT(checkpoint->UnusedNames(),
              testing::Contains("model.layers.0.mlp.up_proj.input_scale"));
}

}  // namespace
}  // namespace coppice::model
