#include "kernels/cuda/collectives/staged_communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "a sum over the ranks through the host";

class StagedCommunicator final : public DeviceCollectives {
 public:
  StagedCommunicator(comm::Communicator* communicator, std::string reason, DeviceEvent copied)
      : communicator_(communicator), reason_(std::move(reason)), copied_(std::move(copied)) {}

  std::string description() const override {
    return absl::StrCat("sums through the host",
                        reason_.empty() ? "" : absl::StrCat(" because ", reason_));
  }
  bool only_enqueues() const override { return false; }
  bool through_host() const override { return true; }

  absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) override {
    const size_t bytes = count * sizeof(float);
    if (staging_.size() < bytes) {
      COPPICE_RETURN_IF_ERROR(stream->Synchronize(kWhat));  // it may still read the old memory
      COPPICE_ASSIGN_OR_RETURN(staging_,
                               PinnedBuffer::Allocate(std::max(bytes, 2 * staging_.size()), kWhat));
    }
    COPPICE_RETURN_IF_ERROR(stream->CopyToHost(staging_.data(), values, bytes, kWhat));
    COPPICE_RETURN_IF_ERROR(copied_.Record(*stream, kWhat));
    COPPICE_RETURN_IF_ERROR(copied_.Wait(kWhat));
    COPPICE_RETURN_IF_ERROR(Failure());
    auto* staged = reinterpret_cast<float*>(staging_.data());
    COPPICE_RETURN_IF_ERROR(communicator_->AllReduceSum({staged, static_cast<size_t>(count)}));
    return stream->CopyToDevice(values, staged, bytes, kWhat);
  }

  absl::Status Failure() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }
  // Does not reach a thread that waits inside the communicator.
  void Abort(const absl::Status& reason) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_.Update(reason);
  }

 private:
  comm::Communicator* const communicator_;
  const std::string reason_;
  DeviceEvent copied_;
  PinnedBuffer staging_;  // grows to the largest sum
  std::mutex mutex_;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCollectives>> MakeStagedCommunicator(
    comm::Communicator* communicator, const std::string& reason) {
  absl::StatusOr<DeviceEvent> copied = DeviceEvent::Create(kWhat);
  COPPICE_RETURN_IF_ERROR(Agree(communicator, copied.status()));
  return std::make_unique<StagedCommunicator>(communicator, reason, *std::move(copied));
}

}  // namespace coppice::kernels::cuda
