#pragma once

// What every function of the C ABI does at its boundary: let nothing be thrown across it, turn a
// status into code and text, and read and write structs whose size the caller says.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tokura.h"

namespace tokura::c_abi {

// Write code and text into *maybe_error unless `status` is OK; return the code.
tokura_code Report(const absl::Status& status, tokura_error* maybe_error) noexcept;
// What the exception that is being handled says, as a status. RESOURCE_EXHAUSTED: no memory;
// INTERNAL: anything else.
absl::Status CaughtStatus() noexcept;

// Run `body`, which returns a Status.
template <typename Body>
tokura_code Guarded(tokura_error* maybe_error, Body&& body) noexcept {
  try {
    return Report(body(), maybe_error);
  } catch (...) {
    return Report(CaughtStatus(), maybe_error);
  }
}

// Run `body`, which returns StatusOr<std::unique_ptr<T>>; null where it failed.
template <typename T, typename Body>
T* GuardedMake(tokura_error* maybe_error, Body&& body) noexcept {
  T* made = nullptr;
  Guarded(maybe_error, [&]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<T>> result = body();
    if (result.ok()) {
      made = result->release();
    }
    return result.status();
  });
  return made;
}

// Run `body`, which reports to nobody.
template <typename Body>
void GuardedQuietly(Body&& body) noexcept {
  Guarded(nullptr, [&] {
    body();
    return absl::OkStatus();
  });
}

// INVALID_ARGUMENT: `pointer` is NULL.
absl::Status CheckNotNull(const void* pointer, const char* name);

// Size of the first version of a struct: less than that, `struct_size` was not set. A struct that
// grows gets a specialisation with what it was.
template <typename T>
inline constexpr size_t kFirstBytes = sizeof(T);
template <>
inline constexpr size_t kFirstBytes<tokura_client_options> = offsetof(tokura_client_options,
                                                                      profiles);

// Whether `bytes` can be the size of a caller's T. INVALID_ARGUMENT says how to set it up.
absl::Status CheckStructSize(size_t bytes, size_t first_bytes, const char* name);
// Whether all bytes of a newer caller's struct that this library does not know are 0.
absl::Status CheckUnknownZero(const void* theirs, size_t known_bytes, size_t their_bytes,
                              const char* name);

// Read a caller's struct over the defaults in `*ours`. INVALID_ARGUMENT: NULL, a wrong size, or
// values beyond what this library knows.
template <typename T>
absl::Status ReadStruct(const T* theirs, const char* name, T* ours) {
  absl::Status status = CheckNotNull(theirs, name);
  if (status.ok()) {
    status = CheckStructSize(theirs->struct_size, kFirstBytes<T>, name);
  }
  if (status.ok()) {
    status = CheckUnknownZero(theirs, sizeof(T), theirs->struct_size, name);
  }
  if (status.ok()) {
    std::memcpy(ours, theirs, std::min(sizeof(T), theirs->struct_size));
    ours->struct_size = sizeof(T);
  }
  return status;
}

// Write a struct into the caller's, of which the first `bytes` are his. What this library does not
// know becomes 0.
template <typename T>
absl::Status WriteStruct(const T& ours, const char* name, T* theirs, size_t bytes) {
  absl::Status status = CheckNotNull(theirs, name);
  if (status.ok()) {
    status = CheckStructSize(bytes, kFirstBytes<T>, name);
  }
  if (status.ok()) {
    std::memset(static_cast<void*>(theirs), 0, bytes);
    std::memcpy(theirs, &ours, std::min(sizeof(T), bytes));
    theirs->struct_size = bytes;
  }
  return status;
}

}  // namespace tokura::c_abi
