// The file of tuned products: what is written is read, and nothing else.
#include "kernels/cuda/products/product_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tests/testing/temp_dir.h"

namespace coppice::kernels::cuda {
namespace {

using testing::HasSubstr;

const TuningPlace kPlace = {"NVIDIA H100 80GB HBM3", 132, 130100, 32 << 20};

ProductTable SomeTable() {
  ProductChoice library, skinny, blocks;
  blocks.kind = ProductChoice::Kind::kBlocks;
  blocks.seconds = 5e-6;
  library.seconds = 1.25e-5;
  for (size_t i = 0; i < library.algorithm.size(); ++i)
    library.algorithm[i] = 0xfedcba9876543210u * (i + 1);
  skinny.kind = ProductChoice::Kind::kSkinny;
  skinny.splits = 6;
  skinny.seconds = 9.875e-6;
  return {{{6144, 4096, 1, DType::kBF16, DType::kBF16, false, false}, library},
          {{6144, 4096, 1, DType::kBF16, DType::kBF16, false, true}, skinny},
          {{4096, 14336, 40, DType::kBF16, DType::kF32, true, false}, skinny},
          {{4096, 14336, 40, DType::kF32, DType::kF32, true, true}, library},
          {{28672, 4096, 8, DType::kBF16, DType::kBF16, false, false, true}, skinny},
          {{28672, 4096, 8, DType::kBF16, DType::kBF16, false, true, true}, library},
          {{4096, 14336, 768, DType::kF16, DType::kF16, false, false}, library},
          {{32000, 8192, 8, DType::kQ4_0, DType::kF32, true, false}, blocks},
          {{32000, 2048, 8, DType::kQ8_0, DType::kBF16, false, true}, blocks}};
}

TEST(ProductTableTest, TheTextSaysAll) {
  const ProductTable table = SomeTable();
  EXPECT_EQ(ParseProductTable(kPlace, ProductTableText(kPlace, table)).value(), table);
  EXPECT_EQ(ParseProductTable(kPlace, ProductTableText(kPlace, {})).value(), ProductTable());
}

TEST(ProductTableTest, AnotherPlaceIsRefused) {
  const std::string text = ProductTableText(kPlace, SomeTable());
  for (const TuningPlace& other : {TuningPlace{"NVIDIA H200", 132, 130100, 32 << 20},
                                   TuningPlace{kPlace.device, 114, 130100, 32 << 20},
                                   TuningPlace{kPlace.device, 132, 130200, 32 << 20},
                                   TuningPlace{kPlace.device, 132, 130100, 16 << 20}}) {
    const absl::Status status = ParseProductTable(other, text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(status.message(), HasSubstr("it is of another place: "));
  }
}

// Whatever is cut off, nothing that is left is taken for a whole file.
TEST(ProductTableTest, EveryTruncationIsNoticed) {
  const std::string text = ProductTableText(kPlace, SomeTable());
  for (size_t size = 0; size + 1 < text.size(); ++size)
    EXPECT_FALSE(ParseProductTable(kPlace, text.substr(0, size)).ok()) << size;
}

TEST(ProductTableTest, WrongLinesAreNamed) {
  const std::string text = ProductTableText(kPlace, SomeTable());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.replace(at, from.size(), to);
    return std::string(ParseProductTable(kPlace, other).status().message());
  };
  EXPECT_THAT(changed("4096 14336 40", "4096 0 40"), HasSubstr("line 6: it is no product"));
  EXPECT_THAT(changed("4096 14336 40", "4096 x 40"), HasSubstr("line 6: it is no product"));
  EXPECT_THAT(changed("skinny 6", "skinny 0"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("skinny 6", "skinny 6 7"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("skinny 6", "thick 6"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("blocks", "blocks 2"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("9.875e-06", "-1"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("9.875e-06", "nan"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("BF16 BF16 plain", "BF16 BF17 plain"), HasSubstr("it is no product"));
  EXPECT_THAT(changed("BF16 BF16 bias", "BF16 BF16 plain"), HasSubstr("twice"));
  EXPECT_THAT(changed("products 9", "products 8"), HasSubstr("the file is not whole"));
}

TEST(ProductTableTest, NoTextIsTakenForMoreThanItIs) {
  const std::string text = ProductTableText(kPlace, SomeTable());
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    std::string other = text;
    for (int changes = 1 + random() % 3; changes > 0; --changes)
      other[random() % other.size()] = static_cast<char>(random());
    const auto table = ParseProductTable(kPlace, other);
    if (!table.ok()) continue;
    for (const auto& [key, choice] : *table) {
      EXPECT_GT(key.outputs, 0);
      EXPECT_GT(key.inputs, 0);
      EXPECT_GT(key.rows, 0);
      EXPECT_GT(choice.seconds, 0);
      EXPECT_TRUE(choice.kind != ProductChoice::Kind::kSkinny || choice.splits > 0);
    }
  }
}

class TuningFileTest : public testing::Test {
 protected:
  test::TempDir dir_;
  const std::string path_ = TuningFilePath(dir_.path() + "/deep/folder", kPlace);
};

TEST_F(TuningFileTest, IsMadeWithItsFolderAndReplaced) {
  EXPECT_THAT(path_, HasSubstr("/deep/folder/products-NVIDIA-H100-80GB-HBM3-132-130100.txt"));
  EXPECT_EQ(ReadTuningFile(path_, kPlace).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteTuningFile(path_, kPlace, {}).ok());
  ASSERT_TRUE(WriteTuningFile(path_, kPlace, SomeTable()).ok());
  EXPECT_EQ(ReadTuningFile(path_, kPlace).value(), SomeTable());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path() + "/deep/folder"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 1);  // nothing else is left
}

TEST_F(TuningFileTest, ErrorsNameTheFile) {
  std::filesystem::create_directories(path_);  // a folder in its place
  EXPECT_THAT(ReadTuningFile(path_, kPlace).status().message(), HasSubstr(path_));
  EXPECT_THAT(WriteTuningFile(path_, kPlace, SomeTable()).message(),
              HasSubstr(path_ + ": cannot be written"));
  const std::string below = path_ + "/file";
  std::ofstream(below) << "text";
  EXPECT_THAT(WriteTuningFile(below + "/products.txt", kPlace, SomeTable()).message(),
              HasSubstr("cannot be written"));
  std::ofstream(below) << ProductTableText(kPlace, SomeTable()).substr(0, 300);
  EXPECT_THAT(ReadTuningFile(below, kPlace).status().message(), HasSubstr(below + ": line "));
}

TEST(TuningFolderTest, FollowsTheEnvironmentWhereItIsAuto) {
  const auto folder = [](const char* cache, const char* home) {
    cache != nullptr ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME");
    home != nullptr ? setenv("HOME", home, 1) : unsetenv("HOME");
    return TuningFolder("auto");
  };
  EXPECT_EQ(TuningFolder("/some/place"), "/some/place");
  EXPECT_EQ(folder("/caches", "/home/me"), "/caches/coppice");
  EXPECT_EQ(folder(nullptr, "/home/me"), "/home/me/.cache/coppice");
  EXPECT_EQ(folder("relative", "/home/me"), "/home/me/.cache/coppice");
  EXPECT_EQ(folder(nullptr, nullptr), "");
}

}  // namespace
}  // namespace coppice::kernels::cuda
