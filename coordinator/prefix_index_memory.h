#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"

namespace tokura::coordinator {

// A range of addresses, reserved at once and backed by zeroed memory from its start as it grows, so
// that what lies in it never moves. Move-only; thread-compatible.
class GrowingMemory {
 public:
  GrowingMemory() = default;
  GrowingMemory(GrowingMemory&& other) noexcept { *this = std::move(other); }
  GrowingMemory& operator=(GrowingMemory&& other) noexcept;
  ~GrowingMemory();

  // RESOURCE_EXHAUSTED: no such range of addresses.
  static absl::StatusOr<GrowingMemory> Reserve(uint64_t bytes_max);

  // Make the first `bytes` usable. False: beyond what was reserved, or the machine has no memory;
  // what was usable stays so. Takes it in steps of at most 2 MiB more than is asked for.
  bool Grow(uint64_t bytes);
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }  // usable, and so taken from the machine at most

 private:
  std::byte* data_ = nullptr;
  uint64_t reserved_ = 0;
  uint64_t bytes_ = 0;
};

// Items of a trivial type in a GrowingMemory; all-zero is their initial value.
template <typename T>
class GrowingArray {
 public:
  GrowingArray() = default;
  explicit GrowingArray(GrowingMemory memory)
      : memory_(std::move(memory)), items_(reinterpret_cast<T*>(memory_.data())) {}

  static absl::StatusOr<GrowingArray> Create(uint64_t items_max) {
    absl::StatusOr<GrowingMemory> memory = GrowingMemory::Reserve(items_max * sizeof(T));
    if (!memory.ok()) {
      return memory.status();
    }
    return GrowingArray(*std::move(memory));
  }

  // Make the items [0, count) usable; false as GrowingMemory::Grow.
  bool Reach(uint64_t count) {
    return count * sizeof(T) <= memory_.bytes() || memory_.Grow(count * sizeof(T));
  }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  uint64_t memory_bytes() const { return memory_.bytes(); }

 private:
  GrowingMemory memory_;
  T* items_ = nullptr;
};

}  // namespace tokura::coordinator
