// Every wrapper of hopper.h against its definition, bit by bit, as device_probe_test.cc does for device.h.
// On a GPU: of compute capability 9.0 alone.
#include <functional>
#include <numeric>

#include "tests/kernels/cuda/device_memory.h"
#include "tests/kernels/cuda/device_probe.h"

namespace coppice::kernels::cuda {
namespace {

uint16_t BitsOf(bool f16, int value) {
  return f16 ? __half_as_ushort(__float2half_rn(static_cast<float>(value)))
             : __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
}

using Entry = std::function<int(int row, int column)>;

struct ProductCase {
  bool f16 = false, transposed = false;
  int eights = 8, step = 0;
  bool add = true;

  std::string Name() const {
    return std::string(f16 ? "f16" : "bf16") + (transposed ? ", transposed, " : ", ") +
           std::to_string(8 * eights) + " columns, part " + std::to_string(step);
  }
};

// a [64, 16], b [16, 8 eights]. What lies in shared memory around the 16 rows or columns is NaN.
void CheckProduct(const ProductCase& c, const Entry& a, const Entry& b, const std::string& what) {
  std::vector<uint32_t> of_a(128 * 4);
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 4; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
      const int k = thread % 4 * 2 + i / 2 * 8;
      of_a[thread * 4 + i] = BitsOf(c.f16, a(row, k)) | uint32_t{BitsOf(c.f16, a(row, k + 1))}
                                                            << 16;
    }
  }
  const int columns = 8 * c.eights;
  std::vector<uint16_t> of_b(columns * 64, 0x7fff);
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < columns; ++n) {
      const int at = c.transposed ? n / 64 * 64 * 64 + (c.step * 16 + k) * 64 + n % 64
                                  : n * 64 + c.step * 16 + k;
      of_b[at] = BitsOf(c.f16, b(k, n));
    }
  }
  const DeviceArray<uint32_t> device_a(of_a);
  const DeviceArray<uint16_t> device_b(of_b);
  DeviceArray<float> d(128 * columns / 2);
  for (size_t i = 0; i < d.size(); ++i) d[i] = c.add ? static_cast<float>(100000 + i) : NAN;
  ProbeMmaAsync(c.f16, c.transposed, c.eights, c.step, c.add, device_a.data(), device_b.data(),
                d.data());
  WaitForDevice();
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      const int place = thread * columns / 2 + i;
      int want = c.add ? 100000 + place : 0;
      for (int k = 0; k < 16; ++k) want += a(row, k) * b(k, column);
      ASSERT_EQ(d[place], static_cast<float>(want))
          << c.Name() << ", " << what << ": thread " << thread << " register " << i;
    }
  }
}

// Numbers of elements in two digits, since bf16 holds integers up to 256.
int Digit(int number, int which) { return which == 0 ? number % 128 + 1 : number / 128 + 1; }

TEST(DeviceProbeWide, MmaAsyncHoldsEveryElementOfAWhereItSays) {
  for (const bool f16 : {false, true}) {
    for (const int digit : {0, 1}) {
      for (const int k : {0, 1, 7, 8, 15}) {
        CheckProduct(
            {f16}, [&](int row, int column) { return Digit(row * 16 + column, digit); },
            [&](int row, int) { return row == k ? 1 : 0; }, "column " + std::to_string(k));
      }
    }
  }
}

TEST(DeviceProbeWide, MmaAsyncHoldsEveryElementOfBWhereItSays) {
  for (const bool transposed : {false, true}) {
    for (const int eights : {8, 16}) {
      for (int step = 0; step < 4; ++step) {
        const ProductCase c = {step % 2 == 1, transposed, eights, step, step != 2};
        for (const int digit : {0, 1}) {
          for (const int k : {0, 3, 8, 15}) {
            CheckProduct(
                c, [&](int, int column) { return column == k ? 1 : 0; },
                [&](int row, int column) { return Digit(row * 128 + column, digit); },
                "row " + std::to_string(k));
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(DeviceProbeWide, MmaAsyncSumsExactlyWhatIsSmall) {
  for (const bool transposed : {false, true}) {
    CheckProduct(
        {false, transposed, 16, 1, true}, [](int row, int k) { return row * 7 % 13 - k; },
        [](int k, int column) { return column * 5 % 11 - k % 9; }, "small integers");
  }
}

// Row r's 16 bytes number c lie at number c ^ r % 8; outside of the matrix are zeros.
TEST(DeviceProbeWide, CopyBoxSwizzlesAndFillsUp) {
  constexpr int kRows = 41, kColumns = 192;
  std::vector<uint16_t> values(kRows * kColumns);
  std::iota(values.begin(), values.end(), uint16_t{1});
  const DeviceArray<uint16_t> matrix(values);
  for (const int box_rows : {8, 16, 64}) {
    for (const auto& [column, row] : std::vector<std::pair<int, int>>{{0, 0}, {64, 5}, {128, 30}}) {
      DeviceArray<uint16_t> out(box_rows * 64);
      ASSERT_EQ(ProbeCopyBox(matrix.data(), kRows, kColumns, box_rows, column, row, out.data()),
                cudaSuccess);
      WaitForDevice();
      for (int r = 0; r < box_rows; ++r) {
        for (int c = 0; c < 64; ++c) {
          const uint16_t want = row + r < kRows ? values[(row + r) * kColumns + column + c] : 0;
          ASSERT_EQ(out[r * 64 + (c / 8 ^ r % 8) * 8 + c % 8], want)
              << box_rows << " rows at " << row << ", " << column << ": " << r << ", " << c;
        }
      }
    }
  }
}

TEST(DeviceProbeWide, BarriersOrderARing) {
  constexpr int kRounds = 301;
  DeviceArray<uint32_t> out(kRounds * 32);
  ProbeBarriers(kRounds, out.data());
  WaitForDevice();
  for (int round = 0; round < kRounds; ++round) {
    for (int lane = 0; lane < 32; ++lane)
      ASSERT_EQ(out[round * 32 + lane], static_cast<uint32_t>(round * 32 + (lane + 5) % 32));
  }
}

TEST(DeviceProbeWide, RegistersChangeHands) {
  std::vector<float> values(384);
  std::iota(values.begin(), values.end(), 1.0f);
  const DeviceArray<float> of_values(values);
  DeviceArray<float> out(384);
  ProbeRegisters(of_values.data(), out.data());
  WaitForDevice();
  for (int thread = 0; thread < 384; ++thread) {
    double want = values[thread] + 1;
    if (thread < 256) {
      want = 0;
      for (int i = 99; i >= 0; --i) want = want * 0.5 + values[(thread * 7 + i) % 384];
    }
    ASSERT_NEAR(out[thread], want, 1e-3) << thread;
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
