// Matrices kept as 8-bit integers with a scale for each row compute what the same values in f32 do,
// bit for bit. Folders that are refused: checkpoint_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/last_logits.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

struct Case {
  const char* name;
  test::TinyLlamaOptions options = {};
  int ranks = 1;
  const char* dtype = "f32";
  const char* weight_dtype = "auto";
  bool draft_vocab_size = false;
};

// What the integers stand for, in f32.
test::TinyLlama Unpacked(const test::TinyLlama& integers) {
  test::TinyLlama model = integers;
  for (const auto& [name, tensor] : integers.tensors) {
    if (tensor.dtype != "I8") continue;
    const test::TinyTensor& scales = integers.tensors.at(name + "_scale");
    test::TinyTensor& matrix = model.tensors[name];
    matrix.dtype = "F32";
    const size_t columns = matrix.shape[1];
    for (size_t i = 0; i < matrix.values.size(); ++i)
      matrix.values[i] *= scales.values[i / columns];
    model.tensors.erase(name + "_scale");
  }
  return model;
}

class IntegerWeights : public testing::TestWithParam<Case> {
 protected:
  static std::vector<float> Logits(const test::TinyLlama& model, const std::string& dtype) {
    return LastLogits(model, GetParam().ranks, dtype, GetParam().weight_dtype);
  }
};

TEST_P(IntegerWeights, ComputeWhatTheyStandFor) {
  test::TinyLlama integers = test::MakeTinyLlama(GetParam().options);
  if (GetParam().draft_vocab_size) test::ReduceHead(&integers, {2, 5, 9, 60, 61, 80});
  const std::vector<float> exact = Logits(integers, "f32");
  test::StoreIntegers(&integers);
  const std::string dtype = GetParam().dtype;
  const std::vector<float> expected = Logits(Unpacked(integers), dtype == "auto" ? "bf16" : dtype);
  ASSERT_EQ(expected.size(), size_t{3 * 96});
  EXPECT_EQ(Logits(integers, dtype), expected);
  EXPECT_NE(expected, exact);
}

INSTANTIATE_TEST_SUITE_P(Folders, IntegerWeights,
                         testing::Values(Case{"F32"}, Case{"ServedAsBf16ByDefault", {}, 1, "auto"},
                                         Case{"TwoRanks", {.attention_bias = true}, 2},
                                         Case{"Shards", {.tied = true, .shards = 3}},
                                         Case{"DraftVocabulary", {}, 2, "f32", "auto", true},
                                         Case{"ServedAsInt8", {.hidden = 128}, 1, "bf16", "int8"},
                                         Case{"OfUnalignedColumns", {.intermediate = 47}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace coppice::model
