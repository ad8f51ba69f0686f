#pragma once

#include "absl/status/statusor.h"
#include "tokura.h"
#include "tokura/types.h"

namespace tokura::c_abi {

// The memory that a caller describes, for a get (kWritten) or a put (kRead). INVALID_ARGUMENT names
// the field: NULL, a wrong struct_size, a value that no enumerator has, read-only memory for a get.
enum class MemoryUse { kRead, kWritten };
absl::StatusOr<SequenceView> ReadSequenceView(const Namespace& ns,
                                              const tokura_sequence_view* theirs, MemoryUse use);

}  // namespace tokura::c_abi
