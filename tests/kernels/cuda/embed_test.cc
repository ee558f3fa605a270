#include "tests/kernels/cuda/device_blocks.h"
#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

// format: of the matrix, whose values are T.
template <class T>
void TestEmbed(int rows, int64_t columns, int64_t matrix_rows, int64_t first_row, float scale = 1,
               DType format = kTypeOf<T>) {
  StepPlan plan;
  std::mt19937_64 generator(rows * 31 + columns);
  for (int r = 0; r < rows; ++r) {
    plan.token.push_back(static_cast<int32_t>(generator() % (first_row + matrix_rows + 3)));
  }
  plan.token[0] = static_cast<int32_t>(first_row);  // the edges of what the matrix holds
  if (rows > 3) {
    plan.token[1] = static_cast<int32_t>(first_row + matrix_rows - 1);
    plan.token[2] = static_cast<int32_t>(first_row + matrix_rows);
    plan.token[3] = static_cast<int32_t>(first_row == 0 ? 0 : first_row - 1);
  }
  plan.position.assign(rows, 0);
  plan.slot.assign(rows, 0);
  plan.chain_begin.assign(rows + 1, 0);
  const TestStep step(plan);
  const bool in_blocks = IsDeviceBlocks(format);
  const DeviceBlocks blocks(in_blocks ? format : DType::kQ8_0, matrix_rows, columns, 3);
  const DeviceArray<T> matrix(in_blocks ? blocks.Values<T>()
                                        : RandomValues<T>(matrix_rows * columns, columns));
  DeviceArray<float> x(rows * columns);
  EmbedArgs args;
  args.matrix = in_blocks ? blocks.data() : matrix.data();
  args.dtype = format;
  args.value_dtype = kTypeOf<T>;
  args.matrix_rows = matrix_rows;
  args.columns = columns;
  args.first_row = first_row;
  args.scale = scale;
  args.x = x.data();
  Embed(step.view, args, nullptr);
  WaitForDevice();
  for (int r = 0; r < rows; ++r) {
    const int64_t row = plan.token[r] - first_row;
    for (int64_t c = 0; c < columns; ++c) {
      const bool held = row >= 0 && row < matrix_rows;
      const float want = held ? dev::ToFloat(matrix[row * columns + c]) * scale : 0.0f;
      ASSERT_EQ(x[r * columns + c], want) << "row " << r << " column " << c;
    }
  }
}

TEST(CudaEmbed, CopiesHeldRowsAndZeroesOthers) {
  for (const int64_t columns : {1, 8, 63, 72, 1032}) {
    for (const int rows : {1, 5, 34}) {
      for (const int64_t first_row : {0, 100}) {
        TestEmbed<float>(rows, columns, 50, first_row);
        TestEmbed<dev::bf16>(rows, columns, 51, first_row);
        TestEmbed<dev::f16>(rows, columns, 49, first_row);
      }
    }
  }
}

TEST(CudaEmbed, ScalesTheRows) {
  TestEmbed<float>(5, 72, 50, 0, 45.25f);
  TestEmbed<dev::bf16>(5, 63, 51, 100, 0.5f);
}

TEST(CudaEmbed, RowsInBlocks) {
  for (const DType format : {DType::kQ8_0, DType::kQ4_0}) {
    for (const int64_t columns : {8, 72, 328}) {
      for (const int64_t first_row : {0, 100}) {
        TestEmbed<dev::bf16>(5, columns, 51, first_row, 1.0f, format);
        TestEmbed<dev::f16>(5, columns, 49, first_row, 0.5f, format);
      }
    }
  }
}

template <class T>
void TestPositions(int rows, int64_t columns, int offset, DType format = kTypeOf<T>) {
  constexpr int kPositions = 40;
  StepPlan plan;
  std::mt19937_64 generator(rows * 31 + columns);
  for (int r = 0; r < rows; ++r) {
    plan.position.push_back(r == 0 ? kPositions - 1
                                   : static_cast<int32_t>(generator() % kPositions));
  }
  plan.token.assign(rows, 0);
  plan.slot.assign(rows, 0);
  plan.chain_begin.assign(rows + 1, 0);
  const TestStep step(plan);
  const bool in_blocks = IsDeviceBlocks(format);
  const DeviceBlocks blocks(in_blocks ? format : DType::kQ8_0, kPositions + offset, columns, 3);
  const DeviceArray<T> matrix(
      in_blocks ? blocks.Values<T>() : RandomValues<T>((kPositions + offset) * columns, columns));
  const std::vector<float> before = RandomValues<float>(rows * columns, 5);
  DeviceArray<float> x(before);
  PositionArgs args;
  args.matrix = in_blocks ? blocks.data() : matrix.data();
  args.dtype = format;
  args.value_dtype = kTypeOf<T>;
  args.columns = columns;
  args.offset = offset;
  args.x = x.data();
  AddPositions(step.view, args, nullptr);
  WaitForDevice();
  for (int r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const float added = dev::ToFloat(matrix[(plan.position[r] + offset) * columns + c]);
      ASSERT_EQ(x[r * columns + c], before[r * columns + c] + added) << "row " << r;
    }
  }
}

TEST(CudaEmbed, AddsLearnedPositions) {
  for (const int64_t columns : {1, 63, 72, 1032}) {
    for (const int rows : {1, 5, 34}) {
      for (const int offset : {0, 2}) {
        TestPositions<float>(rows, columns, offset);
        TestPositions<dev::bf16>(rows, columns, offset);
        TestPositions<dev::f16>(rows, columns, offset);
      }
    }
  }
  TestPositions<dev::bf16>(5, 72, 2, DType::kQ8_0);
  TestPositions<dev::f16>(5, 328, 0, DType::kQ4_0);
}

}  // namespace
}  // namespace coppice::kernels::cuda
