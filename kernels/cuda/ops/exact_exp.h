// exp in f64 from IEEE operations, operation for operation as sampling/deterministic_math.cc has it:
// the same bits. For .cu files.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"

namespace coppice::kernels::cuda {

// c0 + c1 r + c2 r^2 + c3 r^3.
DEV_FUNCTION double Quad(double r, double r2, double c0, double c1, double c2, double c3) {
  return dev::AddRn(dev::AddRn(c0, dev::MulRn(c1, r)),
                    dev::MulRn(dev::AddRn(c2, dev::MulRn(c3, r)), r2));
}

// exp(x) for x <= 0; 0 below -700.
DEV_FUNCTION double ExpNonPositive(double x) {
  if (x < -700.0) return 0.0;
  constexpr double kMagic = 0x1.8p52;
  const double shifted = dev::AddRn(dev::MulRn(x, 1.4426950408889634), kMagic);
  const double k = dev::AddRn(shifted, -kMagic);
  const double high = dev::AddRn(x, -dev::MulRn(k, 6.93147180369123816490e-01));
  const double low = dev::MulRn(k, 1.90821492927058770002e-10);
  const double r = dev::AddRn(high, -low);
  const double r2 = dev::MulRn(r, r);
  const double r4 = dev::MulRn(r2, r2);
  const double p0 = Quad(r, r2, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0);
  const double p4 = Quad(r, r2, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0);
  const double p8 =
      Quad(r, r2, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0);
  const double p = dev::AddRn(p0, dev::MulRn(r4, dev::AddRn(p4, dev::MulRn(r4, p8))));
  const double error = dev::AddRn(dev::AddRn(high, -r), -low);
  const double y = dev::AddRn(1.0, dev::AddRn(r, dev::AddRn(dev::MulRn(r2, p), error)));
  const uint64_t power = (static_cast<uint64_t>(__double_as_longlong(shifted)) + 1023) << 52;
  return dev::MulRn(y, __longlong_as_double(static_cast<long long>(power)));
}

}  // namespace coppice::kernels::cuda
