// Files of torch.save: one that PyTorch wrote (fixtures/make_state_dict.py), what is refused of such
// files by name, and damaged ones.
#include "model/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "kernels/element.h"
#include "model/checkpoint.h"
#include "sampling/rng.h"
#include "tests/testing/temp_dir.h"

namespace coppice::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Fixture() {
  std::ifstream file("tests/model/fixtures/state_dict.bin", std::ios::binary);
  EXPECT_TRUE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

absl::StatusOr<std::vector<TensorInfo>> Parse(const std::string& file) {
  return ParseTorchFile("m.bin", file);
}

// The fixture with its only `from` replaced by `to`, of the same length.
std::string Spoilt(const std::string& from, const std::string& to) {
  std::string file = Fixture();
  const size_t at = file.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return file.replace(at, to.size(), to);
}

std::string Refusal(const std::string& file) { return std::string(Parse(file).status().message()); }

TEST(TorchFile, HasTheTensorsThatPyTorchWrote) {
  const std::string file = Fixture();
  const auto parsed = Parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::map<std::string, TensorInfo> tensors;
  for (const TensorInfo& tensor : *parsed) tensors[tensor.name] = tensor;
  EXPECT_EQ(tensors.size(), 9u);
  const auto values = [&](const std::string& name, kernels::DType dtype) {
    const TensorInfo& tensor = tensors.at(name);
    const size_t count = (tensor.end - tensor.begin) / kernels::DTypeSize(dtype);
    std::vector<float> found;
    for (size_t i = 0; i < count; ++i)
      found.push_back(kernels::ElementToFloat(file.data() + tensor.begin, dtype, i));
    return found;
  };
  using kernels::DType;
  EXPECT_EQ(tensors.at("weight").dtype, "F32");
  EXPECT_THAT(tensors.at("weight").shape, ElementsAre(2, 3));
  EXPECT_THAT(values("weight", DType::kF32), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values("bias", DType::kF32), ElementsAre(1, 2));
  EXPECT_EQ(tensors.at("half").dtype, "F16");
  EXPECT_THAT(values("half", DType::kF16), ElementsAre(1, 2, 3));
  EXPECT_EQ(tensors.at("bf16").dtype, "BF16");
  EXPECT_THAT(values("bf16", DType::kBF16), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values("last_rows", DType::kF32), ElementsAre(5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_EQ(tensors.at("last_rows").begin, tensors.at("whole").begin + 16) << "one storage";
  EXPECT_THAT(values("parameter", DType::kF32), ElementsAre(1, 1));
  EXPECT_EQ(tensors.at("t2d").dtype, "BOOL");
  const TensorInfo& d2t = tensors.at("d2t");
  EXPECT_EQ(d2t.dtype, "I64");
  int64_t ids[3];
  ASSERT_EQ(d2t.end - d2t.begin, sizeof ids);
  std::memcpy(ids, file.data() + d2t.begin, sizeof ids);
  EXPECT_THAT(ids, ElementsAre(0, 3, -1));
}

TEST(TorchFile, IsReadOfAFolderThatHasNoSafetensors) {
  test::TempDir dir;
  dir.Write("pytorch_model.bin", Fixture());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto weight = (*checkpoint)->Matrix("weight", 2, 3);
  ASSERT_TRUE(weight.ok()) << weight.status();
  EXPECT_EQ(kernels::ElementToFloat(weight->data, weight->dtype, 5), 6);
  EXPECT_THAT(*(*checkpoint)->Vector("half", 3, 1, 3), ElementsAre(2, 3));
  EXPECT_THAT(*(*checkpoint)->Integers("d2t", 3), ElementsAre(0, 3, -1));
  dir.Write("model.safetensors", "");
  EXPECT_THAT(Checkpoint::Open(dir.path()).status().message(), HasSubstr("model.safetensors: "));
}

TEST(TorchFile, RefusesEveryOtherGlobalByName) {
  EXPECT_THAT(Refusal(Spoilt("torch\nHalfStorage\n", "posix\nsystem     \n")),
              HasSubstr("m.bin: state_dict/data.pkl: byte "));
  EXPECT_THAT(Refusal(Spoilt("torch\nHalfStorage\n", "posix\nsystem     \n")),
              HasSubstr("global posix.system     , expected only tensors"));
  EXPECT_THAT(Refusal(Spoilt("collections\nOrderedDict\n", "collections\ndefaultdict\n")),
              HasSubstr("global collections.defaultdict, expected only"));
}

TEST(TorchFile, RefusesViewsWithGapsAndBeyondTheirStorage) {
  const std::string strides = "K\3K\1\x86";  // of weight
  EXPECT_THAT(Refusal(Spoilt(strides, "K\4K\1\x86")),
              HasSubstr("m.bin: weight: strides of shape [2, 3] with gaps"));
  EXPECT_THAT(Refusal(Spoilt(strides, "K\1K\3\x86")), HasSubstr("weight: strides of shape [2, 3]"));
  EXPECT_THAT(Refusal(Spoilt("K\2K\3\x86", "K\3K\3\x86")),
              HasSubstr("m.bin: weight: ends beyond its storage of 24 bytes"));
}

TEST(TorchFile, RefusesWhatIsNoSuchFile) {
  EXPECT_THAT(Refusal(""), HasSubstr("m.bin: not a ZIP archive, expected a file of torch.save"));
  EXPECT_THAT(Refusal(std::string(500, 'x')), HasSubstr("not a ZIP archive"));
  EXPECT_THAT(Refusal(Spoilt("little", "middle")),
              HasSubstr("state_dict/byteorder: expected little"));
  std::string packed = Fixture();
  packed[packed.find("PK\1\2") + 10] = 8;  // the method of the first entry
  EXPECT_THAT(Refusal(packed), HasSubstr("member state_dict/data.pkl: compression 8, expected 0"));
  const std::string whole = Fixture();
  const size_t directory = whole.find("PK\1\2");
  EXPECT_THAT(Refusal(whole.substr(100)), HasSubstr("m.bin: ")) << "offsets are of the whole file";
  EXPECT_THAT(Refusal(whole.substr(0, directory)), HasSubstr("not a ZIP archive"));
}

// A damaged file is refused, or its tensors still lie in it and have the bytes of their shapes.
TEST(TorchFile, DamagedFilesAreHarmless) {
  const std::string whole = Fixture();
  int refused = 0, kept = 0;
  for (size_t i = 0; i < 3 * whole.size(); ++i) {
    std::string file = whole;
    file[i % whole.size()] ^= static_cast<char>(1 + sampling::Finalize(i) % 255);
    const auto tensors = Parse(file);
    ++(tensors.ok() ? kept : refused);
    if (!tensors.ok()) continue;
    for (const TensorInfo& tensor : *tensors) {
      ASSERT_LE(tensor.begin, tensor.end);
      ASSERT_LE(tensor.end, file.size());
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(kept, 100) << "bytes of values";
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_FALSE(Parse(whole.substr(0, size)).ok()) << size;
}

// A pickle of a few bytes cannot ask for much memory.
TEST(TorchFile, ASmallPickleStaysSmall) {
  EXPECT_THAT(
      Refusal(Spoilt(std::string("X\6\0\0\0weight", 11), std::string("X\6\0\0\1weight", 11))),
      HasSubstr("a text of "));
}

}  // namespace
}  // namespace coppice::model
