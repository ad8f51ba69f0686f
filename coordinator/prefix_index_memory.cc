#include "coordinator/prefix_index_memory.h"

#include <algorithm>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"

namespace tokura::coordinator {
namespace {
// Small steps while there is little, so that they stay a small part of it. Huge pages are not asked
// for: the kernel may compact memory for a long time to make one, and a lookup would wait.
constexpr uint64_t kSmallStep = uint64_t{64} << 10;
constexpr uint64_t kLargeStep = uint64_t{2} << 20;
constexpr uint64_t kLargeFrom = uint64_t{64} << 20;

uint64_t RoundUp(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}
}  // namespace

absl::StatusOr<GrowingMemory> GrowingMemory::Reserve(uint64_t bytes_max) {
  const uint64_t reserved = RoundUp(std::max<uint64_t>(bytes_max, 1), kLargeStep);
  // Without access nothing is charged to the process, whatever the machine's rules for
  // overcommitting are.
  void* data =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", reserved, " bytes of addresses for the prefix index"));
  }
  GrowingMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.reserved_ = reserved;
  return memory;
}

GrowingMemory& GrowingMemory::operator=(GrowingMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(reserved_, other.reserved_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

GrowingMemory::~GrowingMemory() {
  if (data_ != nullptr) {
    munmap(data_, reserved_);
  }
}

bool GrowingMemory::Grow(uint64_t bytes) {
  if (bytes <= bytes_) {
    return true;
  }
  const uint64_t grown =
      std::min(RoundUp(bytes, bytes < kLargeFrom ? kSmallStep : kLargeStep), reserved_);
  if (grown < bytes || mprotect(data_ + bytes_, grown - bytes_, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  bytes_ = grown;
  return true;
}

}  // namespace tokura::coordinator
