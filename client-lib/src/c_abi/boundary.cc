#include "client-lib/src/c_abi/boundary.h"

#include <algorithm>

namespace tokura::c_abi {

tokura_code Report(const absl::Status& status, tokura_error* maybe_error) noexcept {
  const auto code = static_cast<tokura_code>(status.code());
  if (!status.ok() && maybe_error != nullptr) {
    const absl::string_view text = status.message();
    const size_t bytes = std::min(text.size(), sizeof(maybe_error->message) - 1);
    maybe_error->code = code;
    std::memcpy(maybe_error->message, text.data(), bytes);
    maybe_error->message[bytes] = 0;
  }
  return code;
}

absl::Status CaughtStatus() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    // Short enough not to need memory of its own.
    return absl::ResourceExhaustedError("no memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an unknown exception");
  }
}

absl::Status CheckNotNull(const void* pointer, const char* name) {
  return pointer != nullptr ? absl::OkStatus()
                            : absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

absl::Status CheckStructSize(size_t bytes, size_t first_bytes, const char* name) {
  // Far beyond what a struct may grow to: memory that nobody set up.
  constexpr size_t kStructBytesMax = 4096;
  if (bytes < first_bytes || bytes > kStructBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has struct_size ", bytes, "; set it to sizeof, or with the struct's _init"));
  }
  return absl::OkStatus();
}

absl::Status CheckUnknownZero(const void* theirs, size_t known_bytes, size_t their_bytes,
                              const char* name) {
  const auto* bytes = static_cast<const unsigned char*>(theirs);
  for (size_t i = known_bytes; i < their_bytes; ++i) {
    if (bytes[i] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(name, " uses fields that this library (ABI ",
                                                     TOKURA_ABI_VERSION,
                                                     ") does not know; update the library"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tokura::c_abi
