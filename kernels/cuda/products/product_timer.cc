#include "kernels/cuda/products/product_timer.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the tuning of matrix products";
constexpr int kRuns = 5;
constexpr double kFarAbove = 1.5;
constexpr size_t kCaches = 4;  // reading this many takes as long as enqueuing some products
constexpr size_t kPatternBytes = size_t{1} << 20;

size_t BytesOf(const Tensor& tensor) {
  return static_cast<size_t>(tensor.rows) * tensor.columns * DTypeSize(tensor.dtype);
}

}  // namespace

absl::StatusOr<ProductTimer> ProductTimer::Create(const DeviceFacts& device, DeviceStream* stream) {
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent begin, DeviceEvent::Create(kWhat, /*timed=*/true));
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent end, DeviceEvent::Create(kWhat, /*timed=*/true));
  ProductTimer timer(stream, std::move(begin), std::move(end));
  COPPICE_ASSIGN_OR_RETURN(timer.values_, PinnedBuffer::Allocate(kPatternBytes, kWhat));
  if (device.l2_bytes > 0) {
    absl::StatusOr<CacheCover> cover =
        CacheCover::Allocate(kCaches * device.l2_bytes, device, kWhat);
    if (cover.ok()) {
      timer.cover_ = *std::move(cover);
    } else if (!absl::IsResourceExhausted(cover.status())) {
      return cover.status();
    }
  }
  return timer;
}

absl::Status ProductTimer::FillInputs(const Tensor& tensor) {
  std::mt19937 random(1);
  const bool wide = tensor.dtype == DType::kF32;
  auto* words = reinterpret_cast<uint32_t*>(values_.data());
  for (size_t i = 0; i < kPatternBytes / sizeof(uint32_t); ++i) {
    // Sign, exponents of 2^-7 to 2^0, mantissa: of one f32, or of two values of bf16.
    const uint32_t bits = random();
    words[i] = wide ? (bits & 0x83ffffffu) | 0x3c000000u : (bits & 0x83ff83ffu) | 0x3c003c00u;
  }
  const size_t bytes = BytesOf(tensor);
  for (size_t at = 0; at < bytes; at += kPatternBytes) {
    COPPICE_RETURN_IF_ERROR(stream_->CopyToDevice(static_cast<uint8_t*>(tensor.data) + at,
                                                  values_.data(),
                                                  std::min(kPatternBytes, bytes - at), kWhat));
  }
  return stream_->Synchronize(kWhat);
}

absl::Status ProductTimer::FillZero(const Tensor& tensor) {
  return stream_->FillZero(tensor.data, BytesOf(tensor), kWhat);
}

absl::StatusOr<double> ProductTimer::RunOnce(absl::Span<const MatMulArgs> calls,
                                             const ProductChoice& choice,
                                             MatrixProducts* products) {
  if (cover_.has_value()) COPPICE_RETURN_IF_ERROR(cover_->Read(stream_, kWhat));
  COPPICE_RETURN_IF_ERROR(begin_.Record(*stream_, kWhat));
  for (const MatMulArgs& call : calls) {
    const absl::Status enqueued = products->Enqueue(call, choice);
    if (!enqueued.ok()) return Refusal(enqueued);
  }
  COPPICE_RETURN_IF_ERROR(end_.Record(*stream_, kWhat));
  COPPICE_RETURN_IF_ERROR(stream_->Synchronize(kWhat));
  COPPICE_ASSIGN_OR_RETURN(const double seconds, end_.SecondsSince(begin_, kWhat));
  return seconds / static_cast<double>(calls.size());
}

// If the device is lost, every later call fails. Otherwise only the choice cannot be used here.
absl::Status ProductTimer::Refusal(const absl::Status& why) {
  COPPICE_RETURN_IF_ERROR(stream_->Synchronize(kWhat));
  return absl::UnimplementedError(why.message());
}

absl::StatusOr<double> ProductTimer::Time(absl::Span<const MatMulArgs> calls,
                                          const ProductChoice& choice, double good_enough,
                                          MatrixProducts* products) {
  // The first run loads the kernel, and does not count.
  COPPICE_RETURN_IF_ERROR(RunOnce(calls, choice, products).status());
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    COPPICE_ASSIGN_OR_RETURN(const double once, RunOnce(calls, choice, products));
    seconds.push_back(once);
    if (once > kFarAbove * good_enough) break;
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace coppice::kernels::cuda
