#include "kernels/cpu/page_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace coppice::kernels::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

absl::Status OutOfMemory(std::string_view what, size_t bytes, std::string_view why) {
  return absl::ResourceExhaustedError(
      absl::StrCat(absl::string_view(what.data(), what.size()), " needs ", bytes >> 20, " MiB (",
                   bytes, " bytes): ", absl::string_view(why.data(), why.size())));
}

}  // namespace

size_t MemoryLimitBytes() {
  size_t limit = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    size_t bytes = 0;
    if (file >> bytes && bytes > 0)
      limit = std::min(limit, bytes);  // "max" does not parse: no limit
  }
  return limit;
}

absl::StatusOr<PageBuffer> PageBuffer::Allocate(size_t bytes, bool huge_pages,
                                                std::string_view what) {
  const size_t limit = MemoryLimitBytes();
  if (bytes > limit) {
    return OutOfMemory(what, bytes, absl::StrCat("this machine has ", limit >> 20, " MiB"));
  }
  const size_t page = sysconf(_SC_PAGESIZE);
  const size_t size = std::max<size_t>((bytes + page - 1) / page * page, page);
  const size_t slack = huge_pages && size >= kHugePage ? kHugePage : 0;
  void* mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return OutOfMemory(what, bytes, std::strerror(errno));

  PageBuffer buffer;
  buffer.data_ = static_cast<uint8_t*>(mapped);
  buffer.size_ = size;
  if (slack > 0) {  // keep a range that begins on a huge page
    const size_t skip = -reinterpret_cast<uintptr_t>(mapped) & (kHugePage - 1);
    if (skip > 0) munmap(mapped, skip);
    if (slack > skip) munmap(buffer.data_ + skip + size, slack - skip);
    buffer.data_ += skip;
    madvise(buffer.data_, size, MADV_HUGEPAGE);  // a hint: without huge pages only speed is lost
  }
  return buffer;
}

PageBuffer::PageBuffer(PageBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace coppice::kernels::cpu
