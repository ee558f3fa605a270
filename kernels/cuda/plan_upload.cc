#include "kernels/cuda/plan_upload.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the plan of a step";
constexpr size_t kLeastBytes = size_t{64} << 10;
constexpr size_t kAlignment = 16;

// Places arrays one after the other in a block: first without memory, to learn the size, then with
// it.
class Layout {
 public:
  Layout() = default;
  Layout(uint8_t* host, const void* device)
      : host_(host), device_(static_cast<const uint8_t*>(device)) {}

  template <class T>
  const T* Add(const std::vector<T>& values) {
    const size_t offset = bytes_, size = values.size() * sizeof(T);
    bytes_ = (offset + size + kAlignment - 1) / kAlignment * kAlignment;
    if (host_ == nullptr) return nullptr;
    if (size > 0) std::memcpy(host_ + offset, values.data(), size);
    return reinterpret_cast<const T*>(device_ + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* host_ = nullptr;
  const uint8_t* device_ = nullptr;
  size_t bytes_ = 0;
};

// What follows from the plan row by row.
struct RowFacts {
  explicit RowFacts(const StepPlan& plan) : segment(plan.rows()), prefix_len(plan.rows()) {
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& of = plan.segments[s];
      for (int row = of.first_row; row < of.first_row + of.rows; ++row) {
        segment[row] = static_cast<int32_t>(s);
        prefix_len[row] = plan.prefix_length(row);
      }
    }
    for (const RowNeed& need : plan.needs) need_row.push_back(need.row);
  }

  std::vector<int32_t> segment, prefix_len;  // [rows]
  std::vector<int32_t> need_row;             // [needs]
};

DeviceStep Place(const StepPlan& plan, const RowFacts& facts, Layout* layout) {
  DeviceStep step;
  step.token = layout->Add(plan.token);
  step.position = layout->Add(plan.position);
  step.slot = layout->Add(plan.slot);
  step.segment = layout->Add(facts.segment);
  step.prefix_len = layout->Add(facts.prefix_len);
  step.chain_begin = layout->Add(plan.chain_begin);
  step.chain = layout->Add(plan.chain);
  step.table_begin = layout->Add(plan.table_begin);
  step.table = layout->Add(plan.table);
  step.need_row = layout->Add(facts.need_row);
  step.commits = layout->Add(plan.commits);
  step.rows = plan.rows();
  step.needs = static_cast<int32_t>(plan.needs.size());
  step.commit_count = static_cast<int32_t>(plan.commits.size());
  return step;
}

}  // namespace

absl::Status PlanUpload::Upload(const StepPlan& plan, DeviceStream* stream) {
  const RowFacts facts(plan);
  Layout sizes;
  Place(plan, facts, &sizes);
  Block& block = blocks_[next_];
  COPPICE_RETURN_IF_ERROR(Grow(sizes.bytes(), &block));
  Layout layout(block.host.data(), block.device.data());
  const DeviceStep step = Place(plan, facts, &layout);
  COPPICE_RETURN_IF_ERROR(
      stream->CopyToDevice(block.device.data(), block.host.data(), layout.bytes(), kWhat));
  next_ = 1 - next_;
  step_ = step;
  return absl::OkStatus();
}

absl::Status PlanUpload::Grow(size_t bytes, Block* block) {
  if (block->device.size() >= bytes && block->host.size() >= bytes) return absl::OkStatus();
  const size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  COPPICE_ASSIGN_OR_RETURN(block->host, PinnedBuffer::Allocate(size, kWhat));
  COPPICE_ASSIGN_OR_RETURN(block->device, DeviceBuffer::Allocate(size, kWhat));
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
