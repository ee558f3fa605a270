#include "comm/communicator_shared.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/status.h"
#include "comm/shared_barrier.h"

namespace coppice::comm {
namespace {

constexpr size_t kPiece = 32 << 10;  // floats that a rank shows at once: 128 KiB
constexpr size_t kScatterFromShared =
    2 << 10;                        // floats; from here on each of 3 or more ranks sums a part
constexpr size_t kBlock = 1 << 10;  // floats that are added while they are in the nearest cache
constexpr int kBuffers = 2;

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kSum:
      return "sum";
    case Collective::kSumPiece:
      return "second half of a sum";
    case Collective::kGather:
      return "gather";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
  }
  return "collective of another program";
}

// A rank writes a piece into one of its two buffers, arrives, waits until all ranks have arrived,
// and reads theirs. Two buffers are enough: before a rank writes to a buffer again, it has waited
// in the collective between, and every rank arrives there only after it has read.
class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(SharedMemory memory, int rank, int size, std::chrono::milliseconds patience)
      : memory_(std::move(memory)), rank_(rank), size_(size), patience_(patience) {
    COPPICE_CHECK(memory_.size() == SharedBytes(size) && rank >= 0 && rank < size);
    auto* slots = reinterpret_cast<BarrierSlot*>(memory_.data());
    for (int r = 0; r < size; ++r) {
      slots_.push_back(slots + r);
      processes_.emplace_back(slots + r);
    }
    buffers_ = reinterpret_cast<float*>(slots + size);
    JoinSlot(slots_[rank_]);
  }
  ~SharedCommunicator() override { LeaveSlot(slots_[rank_]); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    if (size_ == 1) return absl::OkStatus();
    for (size_t begin = 0; begin < data.size(); begin += kPiece)
      COPPICE_RETURN_IF_ERROR(SumPiece(data.subspan(begin, kPiece)));
    return absl::OkStatus();
  }

  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    if (all.size() != (rank_ == 0 ? mine.size() * size_ : 0)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " of ", size_, ": gather of ",
                                                     mine.size(), " values a rank into ",
                                                     all.size()));
    }
    for (size_t begin = 0; begin < mine.size(); begin += kPiece) {
      const absl::Span<const float> piece = mine.subspan(begin, kPiece);
      std::copy(piece.begin(), piece.end(), NextBuffer());
      COPPICE_RETURN_IF_ERROR(Meet(Collective::kGather, piece.size()));
      for (int r = 0; r < size_ && rank_ == 0; ++r)
        std::copy_n(Buffer(r), piece.size(), all.data() + r * mine.size() + begin);
    }
    return absl::OkStatus();
  }

  absl::Status Broadcast(std::string* data) override {
    uint64_t bytes = data->size();
    COPPICE_RETURN_IF_ERROR(CopyFromFirst(reinterpret_cast<char*>(&bytes), sizeof bytes));
    data->resize(bytes);
    for (size_t begin = 0; begin < bytes; begin += kPiece * sizeof(float)) {
      const size_t piece = std::min<size_t>(bytes - begin, kPiece * sizeof(float));
      COPPICE_RETURN_IF_ERROR(CopyFromFirst(data->data() + begin, piece));
    }
    return absl::OkStatus();
  }

  absl::Status Barrier() override { return Meet(Collective::kBarrier, 0); }

 private:
  // The values that a rank shares in the current collective.
  float* Buffer(int rank) const { return buffers_ + (rank * kBuffers + turn_) * kPiece; }
  float* NextBuffer() {
    turn_ = (turn_ + 1) % kBuffers;
    return Buffer(rank_);
  }

  // Waits until all ranks have come to this collective.
  absl::Status Meet(Collective collective, size_t count) {
    COPPICE_RETURN_IF_ERROR(failure_);
    ++number_;
    Arrive(slots_[rank_], number_, {collective, count});
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::string gone = AwaitSlot(slots_[r], &processes_[r], number_, patience_);
      if (!gone.empty()) {
        failure_ = absl::UnavailableError(absl::StrCat(Mine(collective, count), ": rank ", r,
                                                       " (pid ", processes_[r].pid(), ") ", gone));
        return failure_;
      }
      const BarrierSlot::Call other = slots_[r]->calls[number_ % 2];
      if (other.collective == collective && other.count == count) continue;
      failure_ = absl::InternalError(absl::StrCat(Mine(collective, count), " meets a ",
                                                  Name(other.collective), " of ", other.count,
                                                  " values on rank ", r));
      return failure_;
    }
    return absl::OkStatus();
  }

  std::string Mine(Collective collective, size_t count) const {
    return absl::StrCat("rank ", rank_, " of ", size_, ": a ", Name(collective), " of ", count,
                        " values");
  }

  // Adds values begin to end of all buffers in rank order, ((b0 + b1) + b2) + ..., into `sum`.
  void SumInRankOrder(size_t begin, size_t end, float* sum) const {
    for (; begin < end; begin += kBlock) {
      const size_t count = std::min(kBlock, end - begin);
      const float *first = Buffer(0) + begin, *second = Buffer(1) + begin;
      float* into = sum + begin;
      for (size_t i = 0; i < count; ++i) into[i] = first[i] + second[i];
      for (int r = 2; r < size_; ++r) {
        const float* next = Buffer(r) + begin;
        for (size_t i = 0; i < count; ++i) into[i] += next[i];
      }
    }
  }

  absl::Status SumPiece(absl::Span<float> data) {
    std::copy(data.begin(), data.end(), NextBuffer());
    COPPICE_RETURN_IF_ERROR(Meet(Collective::kSum, data.size()));
    if (size_ == 2 || data.size() < kScatterFromShared) {
      SumInRankOrder(0, data.size(), data.data());
      return absl::OkStatus();
    }
    // Rank r sums part r into its own buffer, where no other rank reads that part before.
    const auto part = [&](int r) { return data.size() * r / size_; };
    SumInRankOrder(part(rank_), part(rank_ + 1), data.data());
    std::copy(data.data() + part(rank_), data.data() + part(rank_ + 1),
              Buffer(rank_) + part(rank_));
    COPPICE_RETURN_IF_ERROR(Meet(Collective::kSumPiece, data.size()));
    for (int r = 0; r < size_; ++r) {
      if (r != rank_)
        std::copy(Buffer(r) + part(r), Buffer(r) + part(r + 1), data.data() + part(r));
    }
    return absl::OkStatus();
  }

  // Copies rank 0's bytes to every rank. All ranks know the number of bytes.
  absl::Status CopyFromFirst(char* data, size_t bytes) {
    float* mine = NextBuffer();
    if (rank_ == 0) std::memcpy(mine, data, bytes);
    COPPICE_RETURN_IF_ERROR(Meet(Collective::kBroadcast, bytes));
    if (rank_ != 0) std::memcpy(data, Buffer(0), bytes);
    return absl::OkStatus();
  }

  SharedMemory memory_;
  const int rank_, size_;
  const std::chrono::milliseconds patience_;
  std::vector<BarrierSlot*> slots_;
  std::vector<RankProcess> processes_;
  float* buffers_ = nullptr;
  int turn_ = 0;  // which buffer of each rank is in use
  uint32_t number_ = 0;
  absl::Status failure_;
};

}  // namespace

size_t SharedBytes(int size) {
  return size * (sizeof(BarrierSlot) + kBuffers * kPiece * sizeof(float));
}

std::unique_ptr<Communicator> MakeSharedCommunicator(SharedMemory memory, int rank, int size,
                                                     std::chrono::milliseconds patience) {
  return std::make_unique<SharedCommunicator>(std::move(memory), rank, size, patience);
}

}  // namespace coppice::comm
