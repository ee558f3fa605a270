#include "tests/kernels/cuda/step_fixture.h"

namespace coppice::kernels::cuda {
namespace {

template <class T>
void TestEmbed(int rows, int64_t columns, int64_t matrix_rows, int64_t first_row) {
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
  DeviceArray<T> matrix(RandomValues<T>(matrix_rows * columns, columns));
  DeviceArray<float> x(rows * columns);
  EmbedArgs args;
  args.matrix = matrix.data();
  args.dtype = kTypeOf<T>;
  args.matrix_rows = matrix_rows;
  args.columns = columns;
  args.first_row = first_row;
  args.x = x.data();
  Embed(step.view, args, nullptr);
  WaitForDevice();
  for (int r = 0; r < rows; ++r) {
    const int64_t row = plan.token[r] - first_row;
    for (int64_t c = 0; c < columns; ++c) {
      const bool held = row >= 0 && row < matrix_rows;
      const float want = held ? dev::ToFloat(matrix[row * columns + c]) : 0.0f;
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

}  // namespace
}  // namespace coppice::kernels::cuda
