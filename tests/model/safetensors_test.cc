#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i)
    length[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i) & 255);
  return length + header + std::string(data_bytes, 'x');
}

absl::StatusOr<std::vector<TensorInfo>> Parse(const std::string& file) {
  return ParseSafetensorsHeader("m.safetensors", file);
}

TEST(Safetensors, ReadsTensorsInFileOrder) {
  const std::string header = R"({"__metadata__": {"format": "pt"},
      "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [4, 16]},
      "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
      "empty": {"dtype": "F32", "shape": [0, 5], "data_offsets": [16, 16]}})";
  const auto tensors = Parse(FileOf(header, 16));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].begin, 8 + header.size());
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].dtype, "BF16");
  EXPECT_THAT((*tensors)[1].shape, testing::ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[1].begin, 8 + header.size() + 4);
  EXPECT_EQ((*tensors)[1].end, 8 + header.size() + 16);
}

struct BadHeader {
  const char* name;
  std::string file;
  const char* message;  // after "m.safetensors: "
};

std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"w": {"dtype": )", dtype, R"(, "shape": )", shape,
                      R"(, "data_offsets": )", offsets, "}}");
}

class BadSafetensors : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensors, NamesFileTensorAndExpectation) {
  const auto tensors = Parse(GetParam().file);
  ASSERT_FALSE(tensors.ok());
  EXPECT_EQ(std::string(tensors.status().message()),
            absl::StrCat("m.safetensors: ", GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Headers, BadSafetensors,
    testing::Values(
        BadHeader{"Short", "abc", "3 bytes, expected a safetensors header: the file is truncated"},
        BadHeader{"HugeLength", std::string(64, 'Z'),
                  "header length 6510615555426900570, expected at most 100000000: not a "
                  "safetensors file"},
        BadHeader{"LengthBeyondFile", FileOf(std::string(100, ' '), 0).substr(0, 50),
                  "header length 100, but the file has 50 bytes: it is truncated"},
        BadHeader{"NotJson", FileOf("{\"w\": ", 8), "header: not a JSON object"},
        BadHeader{"NotAnObject", FileOf("[1, 2]", 8), "header: not a JSON object"},
        BadHeader{"NotUtf8", FileOf("{\"\xff\": 1}", 8), "header: not a JSON object"},
        BadHeader{"TensorNotObject", FileOf(R"({"w": 3})", 8),
                  "w: expected {dtype, shape, data_offsets}"},
        BadHeader{"NoDType", FileOf(R"({"w": {"shape": [2]}})", 8), "w: dtype: expected a string"},
        BadHeader{"UnknownDType", FileOf(One("\"Q4\"", "[2]", "[0, 8]"), 8),
                  "w: dtype: Q4 is unknown, expected F32, F16 or BF16"},
        BadHeader{"NegativeSize", FileOf(One("\"F32\"", "[-2]", "[0, 8]"), 8),
                  "w: shape: expected a list of sizes"},
        BadHeader{"FractionalSize", FileOf(One("\"F32\"", "[2.5]", "[0, 8]"), 8),
                  "w: shape: expected a list of sizes"},
        BadHeader{"OneOffset", FileOf(One("\"F32\"", "[2]", "[8]"), 8),
                  "w: data_offsets: expected [begin, end] with begin <= end"},
        BadHeader{"BackwardOffsets", FileOf(One("\"F32\"", "[2]", "[8, 0]"), 8),
                  "w: data_offsets: expected [begin, end] with begin <= end"},
        BadHeader{"Truncated", FileOf(One("\"F32\"", "[2]", "[0, 8]"), 5),
                  "w: data_offsets: end at byte 8 of 5 data bytes, the file is truncated"},
        BadHeader{"BytesNotOfShape", FileOf(One("\"F32\"", "[3]", "[0, 8]"), 8),
                  "w: data_offsets: 8 bytes, expected those of F32 [3]"},
        BadHeader{"ShapeOverflows", FileOf(One("\"F32\"", "[4611686018427387904, 4]", "[0, 0]"), 8),
                  "w: data_offsets: 0 bytes, expected those of F32 [4611686018427387904, 4]"},
        BadHeader{"Overlap",
                  FileOf(R"({"u": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                                        "v": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}})",
                         12),
                  "v: data_offsets: overlap those of u"},
        BadHeader{"HoleBeforeTheFirst", FileOf(One("\"F32\"", "[2]", "[4, 12]"), 12),
                  "w: data_offsets: begin at byte 4, but the 4 data bytes before it belong to no "
                  "tensor"},
        BadHeader{"HoleBetween",
                  FileOf(R"({"u": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                             "v": {"dtype": "F32", "shape": [1], "data_offsets": [10, 14]}})",
                         14),
                  "v: data_offsets: begin at byte 10, but the 2 data bytes before it belong to no "
                  "tensor"},
        BadHeader{"BytesAfterTheData", FileOf(One("\"F32\"", "[2]", "[0, 8]"), 11),
                  "the tensors end at byte 77, but the file has 80 bytes: 3 of them belong to no "
                  "tensor"},
        BadHeader{"BytesWithoutTensors", FileOf("{}", 1),
                  "the tensors end at byte 10, but the file has 11 bytes: 1 of them belong to no "
                  "tensor"},
        BadHeader{"NewlineInName", FileOf(R"({"a\nb": 3})", 8),
                  "a\\nb: expected {dtype, shape, data_offsets}"}),
    [](const auto& info) { return info.param.name; });

// For any bytes, the parser returns an error of one line, or tensors that lie inside the file.
TEST(Safetensors, SurvivesRandomDamage) {
  const std::string good = test::tiny_llama::Serialize(
      test::MakeTinyLlama({.hidden = 8, .layers = 1, .intermediate = 8, .vocab = 8}).tensors);
  ASSERT_TRUE(Parse(good).ok());
  std::mt19937_64 random(20250101);
  const size_t header =
      8 + static_cast<unsigned char>(good[0]) + 256 * static_cast<unsigned char>(good[1]);
  int refused = 0;
  constexpr int kRounds = 6000;
  for (int round = 0; round < kRounds; ++round) {
    std::string file = good;
    const int flips = static_cast<int>(random() % 4) + (round % 3 == 0 ? 0 : 1);
    for (int i = 0; i < flips; ++i) file[random() % header] = static_cast<char>(random());
    if (round % 3 == 0) file.resize(random() % file.size());
    const auto tensors = Parse(file);
    if (!tensors.ok()) {
      ++refused;
      ASSERT_THAT(std::string(tensors.status().message()), Not(HasSubstr("\n")));
      continue;
    }
    for (const TensorInfo& tensor : *tensors) {
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(tensor.end, file.size());
    }
  }
  EXPECT_GT(refused, kRounds / 2);
  EXPECT_LT(refused, kRounds);
}

}  // namespace
}  // namespace coppice::model
