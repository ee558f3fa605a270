#include <cmath>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

// Every `stride`-th column from `first` on takes the next value of the short row.
void TestScatter(int64_t rows, int64_t columns, int64_t first, int64_t stride) {
  std::vector<int32_t> places(columns, -1);
  int32_t kept_columns = 0;
  for (int64_t c = first; c < columns; c += stride) places[c] = kept_columns++;
  DeviceArray<int32_t> place(places);
  DeviceArray<float> kept(RandomValues<float>(rows * kept_columns, rows + columns));
  DeviceArray<float> wide(rows * columns);
  ScatterArgs args;
  args.place = place.data();
  args.kept = kept.data();
  args.wide = wide.data();
  args.rows = rows;
  args.kept_columns = kept_columns;
  args.columns = columns;
  Scatter(args, nullptr);
  WaitForDevice();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const float want = places[c] < 0 ? -INFINITY : kept[r * kept_columns + places[c]];
      ASSERT_EQ(wide[r * columns + c], want) << "row " << r << " column " << c;
    }
  }
}

TEST(CudaScatter, PutsValuesInTheirPlacesAndNothingElsewhere) {
  for (const int64_t columns : {1, 5, 64, 1027, 4100}) {
    for (const int64_t rows : {1, 3, 34}) {
      TestScatter(rows, columns, 0, 1);
      TestScatter(rows, columns, 0, 4);
      TestScatter(rows, columns, columns - 1, 1);
    }
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
