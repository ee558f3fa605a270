#include "comm/communicator_mpi.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::comm {
namespace {

constexpr int64_t kMostPerCall = 1 << 28;   // elements; MPI counts are int
constexpr int64_t kScatterFrom = 16 << 10;  // floats; from this size on each rank sums a piece

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiCommunicator() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized) MPI_Comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    for (size_t begin = 0; begin < data.size(); begin += kMostPerCall / size_) {
      COPPICE_RETURN_IF_ERROR(AllReducePiece(data.subspan(begin, kMostPerCall / size_)));
    }
    return absl::OkStatus();
  }

  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    const size_t wanted = rank_ == 0 ? mine.size() * size_ : 0;
    if (all.size() != wanted || mine.size() * size_ > kMostPerCall) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, " of ", size_, ": gather of ",
                                                     mine.size(), " values a rank into ",
                                                     all.size()));
    }
    const int count = static_cast<int>(mine.size());
    return Check(MPI_Gather(mine.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, 0, comm_),
                 "MPI_Gather");
  }

  absl::Status Broadcast(std::string* data) override {
    uint64_t bytes = data->size();
    COPPICE_RETURN_IF_ERROR(Check(MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, comm_), "MPI_Bcast"));
    data->resize(bytes);
    for (uint64_t begin = 0; begin < bytes; begin += kMostPerCall) {
      const int count = static_cast<int>(std::min<uint64_t>(bytes - begin, kMostPerCall));
      COPPICE_RETURN_IF_ERROR(
          Check(MPI_Bcast(data->data() + begin, count, MPI_BYTE, 0, comm_), "MPI_Bcast"));
    }
    return absl::OkStatus();
  }

  absl::Status Barrier() override { return Check(MPI_Barrier(comm_), "MPI_Barrier"); }

  // MPI sends only during its calls.
  void Progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE);
  }

 private:
  absl::Status Check(int result, const char* call) const {
    return MpiStatus(result, call, rank_, size_);
  }

  absl::Status AllReducePiece(absl::Span<float> data) {
    if (size_ == 1) return absl::OkStatus();
    if (size_ == 2) return ExchangeAndAdd(data);
    return static_cast<int64_t>(data.size()) < kScatterFrom ? GatherAndAdd(data)
                                                            : ScatterAddGather(data);
  }

  // Two ranks: a + b == b + a bit for bit, so each rank adds the other's data to its own.
  absl::Status ExchangeAndAdd(absl::Span<float> data) {
    buffer_.resize(std::max(buffer_.size(), data.size()));
    const int count = static_cast<int>(data.size());
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Sendrecv(data.data(), count, MPI_FLOAT, 1 - rank_, 0, buffer_.data(), count,
                           MPI_FLOAT, 1 - rank_, 0, comm_, MPI_STATUS_IGNORE),
              "MPI_Sendrecv"));
    for (int i = 0; i < count; ++i) data[i] += buffer_[i];
    return absl::OkStatus();
  }

  // Adds size_ pieces of `count` values in rank order: ((p0 + p1) + p2) + ...
  void SumInRankOrder(const float* pieces, size_t count, float* sum) const {
    for (size_t i = 0; i < count; ++i) sum[i] = pieces[i] + pieces[count + i];
    for (int r = 2; r < size_; ++r) {
      const float* piece = pieces + r * count;
      for (size_t i = 0; i < count; ++i) sum[i] += piece[i];
    }
  }

  absl::Status GatherAndAdd(absl::Span<float> data) {
    buffer_.resize(std::max(buffer_.size(), data.size() * size_));
    const int count = static_cast<int>(data.size());
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Allgather(data.data(), count, MPI_FLOAT, buffer_.data(), count, MPI_FLOAT, comm_),
              "MPI_Allgather"));
    SumInRankOrder(buffer_.data(), data.size(), data.data());
    return absl::OkStatus();
  }

  // Rank r sums piece r of all vectors. Then all ranks gather the sums. Each value is sent twice
  // instead of size_ times.
  absl::Status ScatterAddGather(absl::Span<float> data) {
    const size_t piece = data.size() / size_;  // the remainder is gathered below
    const int count = static_cast<int>(piece);
    buffer_.resize(std::max(buffer_.size(), piece * size_));
    sum_.resize(std::max(sum_.size(), piece));
    COPPICE_RETURN_IF_ERROR(
        Check(MPI_Alltoall(data.data(), count, MPI_FLOAT, buffer_.data(), count, MPI_FLOAT, comm_),
              "MPI_Alltoall"));
    SumInRankOrder(buffer_.data(), piece, sum_.data());
    const absl::Span<float> rest = data.subspan(piece * size_);
    if (!rest.empty()) COPPICE_RETURN_IF_ERROR(GatherAndAdd(rest));
    return Check(MPI_Allgather(sum_.data(), count, MPI_FLOAT, data.data(), count, MPI_FLOAT, comm_),
                 "MPI_Allgather");
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  std::vector<float> buffer_, sum_;  // kept to reuse their memory
};

}  // namespace

std::unique_ptr<Communicator> MakeMpiCommunicator(MPI_Comm comm) {
  return std::make_unique<MpiCommunicator>(comm);
}

absl::Status MpiStatus(int result, const char* call, int rank, int size) {
  if (result == MPI_SUCCESS) return absl::OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(result, text, &length) != MPI_SUCCESS) length = 0;
  return absl::InternalError(
      absl::StrCat("rank ", rank, " of ", size, ": ", call, ": ", std::string(text, length)));
}

}  // namespace coppice::comm
