// The CPU backend and the CUDA backend behind one face for tests: tensors are made of values and read
// as values, wherever they lie.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "plan/step_plan.h"

namespace coppice::kernels {

class TestBackend {
 public:
  // always_list, graphs, tuning_cache: BackendOptions.
  static std::unique_ptr<TestBackend> Make(const std::string& kind, bool always_list = false,
                                           bool graphs = true,
                                           const std::string& tuning_cache = "");
  // The CUDA backend of a rank, which exchanges through the host. *communicator must outlive it.
  static std::unique_ptr<TestBackend> MakeRank(comm::Communicator* communicator,
                                               bool always_list = false);
  // The CUDA backend with BackendOptions::wide_attention.
  static std::unique_ptr<TestBackend> MakeWide();
  virtual ~TestBackend() = default;

  Backend* get() const { return backend_.get(); }
  Backend* operator->() const { return backend_.get(); }
  // values [rows, columns] as activations of this type. The CPU backend keeps them as f32, with the
  // values that the type can hold.
  Tensor Put(const std::vector<float>& values, int64_t columns, DType dtype);
  // Of a tensor that Put made.
  virtual void Overwrite(const Tensor& tensor, const std::vector<float>& values) = 0;
  // rows * columns values that are NaN.
  Tensor Poisoned(int64_t rows, int64_t columns, DType dtype);
  virtual std::vector<float> Read(const Tensor& tensor) = 0;
  // In which weights and pools stand for this type: f32 where the backend does not store it.
  DType StoredAs(DType dtype) const { return backend_->stores(dtype) ? dtype : DType::kF32; }

 protected:
  virtual Tensor New(int64_t rows, int64_t columns, DType dtype) = 0;

  ThreadTeam threads_{2};
  std::unique_ptr<comm::Communicator> communicator_ = comm::MakeSingleCommunicator();
  std::unique_ptr<Backend> backend_;
};

// values as the type holds them.
std::vector<float> Rounded(std::vector<float> values, DType dtype);

// ||got - want|| / ||want||; infinite where got is not a number.
double RelativeDistance(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace coppice::kernels
