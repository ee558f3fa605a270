#include "kernels/cuda/collectives/one_shot_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/collectives/peer_shutdown.h"
#include "kernels/cuda/ops/one_shot.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_error.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kMemory[] = "the memory of one-shot sums", kSum[] = "a one-shot sum over the ranks",
               kFirstSum[] = "the first one-shot sum over the ranks";
constexpr int64_t kFirstSumCount = 1000;
constexpr double kPartWithin_s = 5;

uint32_t Load(uint32_t* word) { return std::atomic_ref<uint32_t>(*word).load(); }

absl::Status Launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? absl::OkStatus() : CudaStatus(error, "kernel launch", what);
}

class OneShotCommunicator final : public DeviceCollectives {
 public:
  OneShotCommunicator(int rank, int ranks, const OneShotOptions& options)
      : rank_(rank), ranks_(ranks), limit_s_(options.limit_s) {}
  ~OneShotCommunicator() override;

  absl::Status Allocate(DeviceStream* stream);
  // Collective, before anybody opens our memory.
  void JoinShutdown(comm::Communicator* communicator);
  // Bytes that another process opens our memory by.
  absl::StatusOr<cudaIpcMemHandle_t> Handle() const;
  absl::Status Open(const std::vector<cudaIpcMemHandle_t>& handles, DeviceStream* stream);
  absl::Status SumOnce(DeviceStream* stream, double deadline_s);

  std::string description() const override { return "one-shot sums"; }
  bool only_enqueues() const override { return true; }
  absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) override;
  absl::Status AllReduceSumAndNorm(const AddNormArgs& norm, DeviceStream* stream) override;
  bool CanNorm(int64_t rows, int64_t columns) const override {
    return CanSumAndNorm(rows, columns);
  }
  absl::Status Failure() override;
  void Abort(const absl::Status& reason) override;

 private:
  size_t InboxBytes() const { return size_t{2} * ranks_ * kMostOneShotFloats * sizeof(float); }
  size_t FlagBytes() const { return size_t{sizeof(uint64_t)} * ranks_ * kMostOneShotBlocks; }
  OneShotReport* report() const { return reinterpret_cast<OneShotReport*>(report_.data()); }
  OneShotArgs Args(double limit_s) const;
  absl::Status Sum(float* values, int64_t count, double limit_s, DeviceStream* stream);

  const int rank_, ranks_;
  const double limit_s_;
  DeviceBuffer shared_;  // the inboxes, then the flags: what the other ranks open
  DeviceBuffer own_;     // OneShotPeers, then OneShotCount
  PinnedBuffer report_;  // OneShotReport
  bool others_open_ours_ = false;
  std::unique_ptr<PeerShutdown> shutdown_;
  std::vector<void*> opened_;  // [ranks] buffers of other ranks; nullptr: ours, or not open
  std::mutex mutex_;
  absl::Status failure_;
};

// The owner has waited, so no queued launch still uses what is closed here. Memory that another
// process still has open must not be freed; it then stays until this process ends.
OneShotCommunicator::~OneShotCommunicator() {
  for (void* memory : opened_) {
    if (memory != nullptr) cudaIpcCloseMemHandle(memory);
  }
  if (!others_open_ours_) return;
  if (shutdown_ != nullptr) shutdown_->Leave();
  if (shutdown_ == nullptr || !shutdown_->AllLeft(kPartWithin_s))
    new DeviceBuffer(std::move(shared_));
}

// Without it, this rank cannot know when the others have closed its memory.
void OneShotCommunicator::JoinShutdown(comm::Communicator* communicator) {
  others_open_ours_ = true;
  auto joined = PeerShutdown::Join(communicator);
  if (joined.ok()) shutdown_ = *std::move(joined);
}

absl::Status OneShotCommunicator::Allocate(DeviceStream* stream) {
  const size_t own = sizeof(OneShotPeers) + sizeof(OneShotCount);
  COPPICE_ASSIGN_OR_RETURN(shared_, DeviceBuffer::Allocate(InboxBytes() + FlagBytes(), kMemory));
  COPPICE_ASSIGN_OR_RETURN(own_, DeviceBuffer::Allocate(own, kMemory));
  COPPICE_ASSIGN_OR_RETURN(report_, PinnedBuffer::Allocate(sizeof(OneShotReport), kMemory));
  std::memset(report_.data(), 0, report_.size());
  COPPICE_RETURN_IF_ERROR(stream->FillZero(shared_.data(), shared_.size(), kMemory));
  COPPICE_RETURN_IF_ERROR(stream->FillZero(own_.data(), own_.size(), kMemory));
  return stream->Synchronize(kMemory);  // before anybody else raises a flag
}

absl::StatusOr<cudaIpcMemHandle_t> OneShotCommunicator::Handle() const {
  cudaIpcMemHandle_t handle;
  const cudaError_t error = cudaIpcGetMemHandle(&handle, shared_.data());
  if (error != cudaSuccess) return CudaStatus(error, "cudaIpcGetMemHandle", kMemory);
  return handle;
}

absl::Status OneShotCommunicator::Open(const std::vector<cudaIpcMemHandle_t>& handles,
                                       DeviceStream* stream) {
  OneShotPeers peers;
  opened_.resize(ranks_);
  for (int r = 0; r < ranks_; ++r) {
    void* memory = shared_.data();
    if (r != rank_) {
      const cudaError_t error =
          cudaIpcOpenMemHandle(&opened_[r], handles[r], cudaIpcMemLazyEnablePeerAccess);
      if (error != cudaSuccess) {
        opened_[r] = nullptr;
        return CudaStatus(error, "cudaIpcOpenMemHandle",
                          absl::StrCat(kMemory, " of rank ", r, ", by rank ", rank_));
      }
      memory = opened_[r];
    }
    peers.inbox[r] = static_cast<float*>(memory);
    peers.flags[r] = reinterpret_cast<uint64_t*>(static_cast<uint8_t*>(memory) + InboxBytes());
  }
  COPPICE_ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(sizeof peers, kMemory));
  std::memcpy(host.data(), &peers, sizeof peers);
  COPPICE_RETURN_IF_ERROR(stream->CopyToDevice(own_.data(), host.data(), sizeof peers, kMemory));
  return stream->Synchronize(kMemory);
}

OneShotArgs OneShotCommunicator::Args(double limit_s) const {
  OneShotArgs args;
  args.peers = static_cast<const OneShotPeers*>(own_.data());
  args.count =
      reinterpret_cast<OneShotCount*>(static_cast<uint8_t*>(own_.data()) + sizeof(OneShotPeers));
  args.report = report();
  args.rank = rank_;
  args.ranks = ranks_;
  args.limit_ns = static_cast<uint64_t>(limit_s * 1e9);
  return args;
}

absl::Status OneShotCommunicator::SumOnce(DeviceStream* stream, double deadline_s) {
  const size_t bytes = kFirstSumCount * sizeof(float);
  COPPICE_ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(bytes, kFirstSum));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer device, DeviceBuffer::Allocate(bytes, kFirstSum));
  auto* values = reinterpret_cast<float*>(host.data());
  std::fill_n(values, kFirstSumCount, static_cast<float>(rank_ + 1));
  COPPICE_RETURN_IF_ERROR(stream->CopyToDevice(device.data(), values, bytes, kFirstSum));
  absl::Status summed = Sum(device.floats(), kFirstSumCount, deadline_s, stream);
  if (summed.ok()) summed = stream->CopyToHost(values, device.data(), bytes, kFirstSum);
  summed.Update(stream->Synchronize(kFirstSum));
  COPPICE_RETURN_IF_ERROR(summed);
  COPPICE_RETURN_IF_ERROR(Failure());
  const auto expected = static_cast<float>(ranks_ * (ranks_ + 1) / 2);
  for (int64_t i = 0; i < kFirstSumCount; ++i) {
    if (values[i] == expected) continue;
    return absl::InternalError(absl::StrCat(kFirstSum, ": ", values[i], " instead of ", expected));
  }
  return absl::OkStatus();
}

absl::Status OneShotCommunicator::Sum(float* values, int64_t count, double limit_s,
                                      DeviceStream* stream) {
  for (int64_t begin = 0; begin < count; begin += kMostOneShotFloats) {
    OneShotSum(Args(limit_s), values + begin, std::min(count - begin, kMostOneShotFloats),
               stream->get());
    COPPICE_RETURN_IF_ERROR(Launched(kSum));
  }
  return absl::OkStatus();
}

absl::Status OneShotCommunicator::AllReduceSum(float* values, int64_t count, DeviceStream* stream) {
  return Sum(values, count, limit_s_, stream);
}

absl::Status OneShotCommunicator::AllReduceSumAndNorm(const AddNormArgs& norm,
                                                      DeviceStream* stream) {
  OneShotSumAndNorm(Args(limit_s_), norm, stream->get());
  return Launched(kSum);
}

absl::Status OneShotCommunicator::Failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> missing;
  for (int r = 0; r < ranks_; ++r) {
    if (failure_.ok() && Load(&report()->missing[r]) != 0) missing.push_back(r);
  }
  if (!missing.empty()) {
    failure_ = absl::DeadlineExceededError(absl::StrCat(kSum, ": rank ", rank_, " of ", ranks_,
                                                        ": its kernel has waited too long for ",
                                                        "rank ", absl::StrJoin(missing, ", ")));
  }
  return failure_;
}

void OneShotCommunicator::Abort(const absl::Status& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_.Update(reason);
  std::atomic_ref<uint32_t>(report()->abort).store(1);
}

// The handles of all ranks. Bytes as floats, which hold them exactly.
absl::StatusOr<std::vector<cudaIpcMemHandle_t>> ShareHandles(const cudaIpcMemHandle_t& mine,
                                                             comm::Communicator* communicator) {
  constexpr size_t kBytes = sizeof(cudaIpcMemHandle_t);
  std::vector<float> words(communicator->size() * kBytes);
  uint8_t bytes[kBytes];
  std::memcpy(bytes, &mine, kBytes);
  std::copy_n(bytes, kBytes, words.begin() + communicator->rank() * kBytes);
  COPPICE_RETURN_IF_ERROR(communicator->AllReduceSum(absl::MakeSpan(words)));
  std::vector<cudaIpcMemHandle_t> handles(communicator->size());
  for (int r = 0; r < communicator->size(); ++r) {
    for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<uint8_t>(words[r * kBytes + i]);
    std::memcpy(&handles[r], bytes, kBytes);
  }
  return handles;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinOneShot(comm::Communicator* communicator,
                                                               DeviceStream* stream,
                                                               const OneShotOptions& options) {
  auto made =
      std::make_unique<OneShotCommunicator>(communicator->rank(), communicator->size(), options);
  COPPICE_RETURN_IF_ERROR(Agree(communicator, made->Allocate(stream)));
  const absl::StatusOr<cudaIpcMemHandle_t> handle = made->Handle();
  COPPICE_RETURN_IF_ERROR(Agree(communicator, handle.status()));
  made->JoinShutdown(communicator);
  COPPICE_ASSIGN_OR_RETURN(const auto handles, ShareHandles(*handle, communicator));
  COPPICE_RETURN_IF_ERROR(Agree(communicator, made->Open(handles, stream)));
  COPPICE_RETURN_IF_ERROR(Agree(communicator, made->SumOnce(stream, options.start_deadline_s)));
  return made;
}

}  // namespace coppice::kernels::cuda
