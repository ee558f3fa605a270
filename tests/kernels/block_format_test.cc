// The block formats of GGUF as sources of matrices.
#include "kernels/block_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/element.h"
#include "kernels/matrix_source.h"
#include "tests/kernels/block_samples.h"

namespace coppice::kernels {
namespace {

using testing::HasSubstr;

TEST(BlockFormatTest, NamesAndSizesAreThoseOfGguf) {
  const std::pair<const char*, std::pair<int, int>> expected[] = {
      {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},   {"Q5_0", {32, 22}},
      {"Q5_1", {32, 24}},   {"Q8_0", {32, 34}},   {"IQ4_NL", {32, 18}},
      {"Q4_K", {256, 144}}, {"Q5_K", {256, 176}}, {"Q6_K", {256, 210}}};
  ASSERT_EQ(BlockFormats().size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const BlockFormat& format = BlockFormats()[i];
    EXPECT_STREQ(format.name, expected[i].first);
    EXPECT_STREQ(DTypeName(format.dtype), expected[i].first);
    EXPECT_EQ(format.values, expected[i].second.first) << format.name;
    EXPECT_EQ(format.bytes, expected[i].second.second) << format.name;
    EXPECT_EQ(&FormatOf(format.dtype), &format);
    EXPECT_EQ(RowBytes(format.dtype, 768), 768 / format.values * format.bytes);
    EXPECT_TRUE(IsBlockFormat(format.dtype));
    EXPECT_EQ(IsQuantisedTo(format.dtype),
              format.dtype == DType::kQ4_0 || format.dtype == DType::kQ8_0);
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    EXPECT_FALSE(IsBlockFormat(dtype));
  EXPECT_EQ(RowBytes(DType::kBF16, 768), 1536);
}

TEST(BlockFormatTest, ValuesAreExactButForOneRounding) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 40, 512, 1);
    const std::vector<float> want = matrix.Values();
    std::vector<float> values(want.size());
    DecodeBlocks(dtype, matrix.source().data,
                 static_cast<int64_t>(want.size()) / FormatOf(dtype).values, values.data());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(values[i], want[i]) << DTypeName(dtype) << " value " << i;
  }
}

// Largest and smallest f16 with the largest codes: nothing overflows.
TEST(BlockFormatTest, ScalesOfAllSizesAreExact) {
  for (const DType dtype : AllBlockTypes()) {
    BlockMatrix matrix(dtype, 3, 256, 2);
    const uint16_t bits[] = {0x7bff, 0xfbff, 0x0001};
    for (int row = 0; row < 3; ++row) {
      for (int64_t block = 0; block < 256 / FormatOf(dtype).values; ++block)
        matrix.SetScale(row, block, bits[row]);
    }
    const std::vector<float> want = matrix.Values();
    std::vector<float> values(want.size());
    DecodeBlocks(dtype, matrix.source().data, 3 * 256 / FormatOf(dtype).values, values.data());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(values[i], want[i]) << DTypeName(dtype) << " value " << i;
  }
}

TEST(BlockFormatTest, FindsTheFirstScaleThatIsNotFinite) {
  for (const DType dtype : AllBlockTypes()) {
    for (const uint16_t bits : {0x7c00, 0xfc00, 0x7e01}) {
      BlockMatrix matrix(dtype, 1, 1024, 3);
      const int64_t blocks = 1024 / FormatOf(dtype).values;
      EXPECT_EQ(FirstNotFinite(dtype, matrix.source().data, blocks), -1) << DTypeName(dtype);
      matrix.SetScale(0, 3, bits);
      matrix.SetScale(0, 2, bits);
      EXPECT_EQ(FirstNotFinite(dtype, matrix.source().data, blocks), 2) << DTypeName(dtype);
      EXPECT_EQ(FirstNotFinite(dtype, matrix.source().data, 2), -1) << DTypeName(dtype);
    }
  }
  for (const DType dtype : {DType::kQ4_1, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K}) {
    BlockMatrix matrix(dtype, 1, 1024, 3);
    matrix.SetMinimum(0, 1, 0x7c00);
    EXPECT_EQ(FirstNotFinite(dtype, matrix.source().data, 4), 1) << DTypeName(dtype);
  }
}

TEST(BlockFormatTest, CutsRowsAnywhereAndColumnsBetweenBlocks) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 7, 1024, 4);
    const std::vector<float> all = matrix.Values();
    const MatrixSource rows = RowsOf(matrix.source(), 3, 6);
    const auto part = ColumnsOf(rows, 256, 768);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->rows, 3);
    EXPECT_EQ(part->columns, 512);
    std::vector<float> values(512);
    for (int row = 0; row < 3; ++row) {
      EXPECT_TRUE(ConvertRow(*part, row, DType::kF32, values.data()));
      for (int k = 0; k < 512; ++k) ASSERT_EQ(values[k], all[(3 + row) * 1024 + 256 + k]);
    }
    const int64_t block = FormatOf(dtype).values;
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, block / 2}, {block / 2, 1024}, {16, 1024}}) {
      const auto refused = ColumnsOf(matrix.source(), begin, end);
      EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(refused.status().message(),
                  HasSubstr(absl::StrCat("columns ", begin, " to ", end, ", expected multiples of ",
                                         block, ", a block of ", DTypeName(dtype))));
    }
  }
  const std::vector<uint16_t> plain(20 * 10);
  const MatrixSource source = {plain.data(), DType::kBF16, 20, 10, 10};
  const auto part = ColumnsOf(RowsOf(source, 5, 9), 3, 7);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->data, plain.data() + 53);
}

TEST(BlockFormatTest, ConvertsRowsToOtherTypes) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 2, 512, 5);
    const std::vector<float> values = matrix.Values();
    std::vector<uint16_t> bf16(512), f16(512);
    EXPECT_TRUE(ConvertRow(matrix.source(), 1, DType::kBF16, bf16.data()));
    EXPECT_TRUE(ConvertRow(matrix.source(), 1, DType::kF16, f16.data()));
    for (int k = 0; k < 512; ++k) {
      ASSERT_EQ(bf16[k], FloatToBf16(values[512 + k])) << DTypeName(dtype);
      ASSERT_EQ(f16[k], FloatToF16(values[512 + k])) << DTypeName(dtype);
    }
  }
  BlockMatrix large(DType::kQ8_0, 1, 32, 6);
  large.SetScale(0, 0, 0x7bff);
  std::vector<uint16_t> f16(32);
  EXPECT_FALSE(ConvertRow(large.source(), 0, DType::kF16, f16.data()));
}

}  // namespace
}  // namespace coppice::kernels
