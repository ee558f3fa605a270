#include "kernels/cuda/runtime/expert_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/ops/row_bucket.h"

namespace coppice::kernels::cuda {
namespace {

// Places arrays one behind the other, each aligned to 256 bytes. Without a base it only measures.
class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<uint8_t*>(base)) {}

  template <class T>
  void Add(int64_t count, T** array) {
    *array = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + size_);
    size_ += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
  }
  void AddElements(int64_t count, int64_t element, void** array) {
    uint8_t* bytes = nullptr;
    Add(count * element, &bytes);
    *array = bytes;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* const base_;
  size_t size_ = 0;
};

// rows: the most of a step. Returns the bytes.
size_t Place(void* base, int64_t rows, ExpertsArgs* args) {
  Layout layout(base);
  const int64_t pairs = rows * args->chosen;
  const auto element = static_cast<int64_t>(DTypeSize(args->dtype));
  ExpertLists& lists = args->lists;
  layout.Add(rows * args->experts, &lists.scores);
  layout.Add(pairs, &lists.chosen);
  layout.Add(pairs, &lists.shares);
  layout.Add(args->experts + 1, &lists.begin);
  layout.Add(args->experts + 1, &lists.used);
  layout.Add(pairs, &lists.source);
  layout.Add(pairs, &lists.place);
  layout.AddElements(pairs * 2 * args->inner, element, &args->gate_up_out);
  layout.AddElements(pairs * args->inner, element, &args->activated);
  layout.Add(pairs * args->columns, &args->outputs);
  return layout.size();
}

}  // namespace

absl::StatusOr<const void* const*> ExpertMemory::Table(
    absl::Span<const std::unique_ptr<Weight>> matrices) {
  std::vector<const void*> addresses;
  for (const auto& matrix : matrices)
    addresses.push_back(static_cast<const CudaWeight&>(*matrix).values.data());
  auto found = tables_.find(addresses);
  if (found == tables_.end()) {
    COPPICE_ASSIGN_OR_RETURN(DeviceBuffer table, loader_->UploadAddresses(addresses));
    found = tables_.emplace(std::move(addresses), std::move(table)).first;
  }
  return static_cast<const void* const*>(found->second.data());
}

absl::StatusOr<ExpertsArgs> ExpertMemory::ArgsOf(const Experts& experts, const Tensor& x,
                                                 const Tensor& out) {
  const auto& router = static_cast<const CudaWeight&>(*experts.router);
  ExpertsArgs args;
  args.router = router.values.data();
  args.activation = experts.activation;
  args.experts = static_cast<int32_t>(router.rows);
  args.chosen = experts.chosen;
  args.normalised = experts.normalised;
  args.x = x.data;
  args.out = static_cast<float*>(out.data);
  args.dtype = x.dtype;
  args.columns = router.columns;
  args.inner = experts.down[0]->columns;
  COPPICE_CHECK(router.dtype == args.dtype && out.dtype == DType::kF32);
  COPPICE_CHECK(x.columns == args.columns && out.columns == args.columns);
  COPPICE_CHECK(args.chosen > 0 && args.chosen <= args.experts);
  COPPICE_CHECK(static_cast<int64_t>(experts.gate_up.size()) == args.experts &&
                static_cast<int64_t>(experts.down.size()) == args.experts);
  for (int32_t e = 0; e < args.experts; ++e) {
    const Weight &gate_up = *experts.gate_up[e], &down = *experts.down[e];
    COPPICE_CHECK(gate_up.dtype == args.dtype && down.dtype == args.dtype);
    COPPICE_CHECK(gate_up.rows == 2 * args.inner && gate_up.columns == args.columns &&
                  down.rows == args.columns && down.columns == args.inner);
  }
  COPPICE_ASSIGN_OR_RETURN(args.gate_up, Table(experts.gate_up));
  COPPICE_ASSIGN_OR_RETURN(args.down, Table(experts.down));
  const int64_t rows = PaddedRows(x.rows);
  DeviceBuffer& memory = shared_[{rows, args.experts, args.chosen, args.columns, args.inner,
                                  static_cast<int64_t>(DTypeSize(args.dtype))}];
  if (memory.data() == nullptr) {
    COPPICE_ASSIGN_OR_RETURN(
        memory,
        DeviceBuffer::Allocate(Place(nullptr, rows, &args),
                               absl::StrCat("the activations of ", args.experts, " experts")));
  }
  Place(memory.data(), rows, &args);
  return args;
}

}  // namespace coppice::kernels::cuda
