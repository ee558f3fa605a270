#include "kernels/cpu/weight_arena.h"

#include <utility>

#include "base/status.h"

namespace coppice::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;

absl::StatusOr<std::shared_ptr<const PageBuffer>> MakeRegion(size_t bytes, std::string_view what) {
  COPPICE_ASSIGN_OR_RETURN(PageBuffer buffer,
                           PageBuffer::Allocate(bytes, /*huge_pages=*/true, what));
  return std::make_shared<const PageBuffer>(std::move(buffer));
}

}  // namespace

absl::StatusOr<WeightMemory> WeightArena::Allocate(size_t bytes, std::string_view what) {
  if (bytes >= kRegionBytes / 2) {
    COPPICE_ASSIGN_OR_RETURN(auto own, MakeRegion(bytes, what));
    return WeightMemory{own->data(), own};
  }
  if (region_ == nullptr || bytes > region_->size() - used_) {
    COPPICE_ASSIGN_OR_RETURN(region_, MakeRegion(kRegionBytes, what));
    used_ = 0;
  }
  WeightMemory memory{region_->data() + used_, region_};
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ >= region_->size()) region_ = nullptr;
  return memory;
}

}  // namespace coppice::kernels::cpu
