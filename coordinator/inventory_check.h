#pragma once

#include "absl/status/status.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

// Whether a batch is well formed: whatever a peer sends, what passes can be read column by column.
// INVALID_ARGUMENT names the column and the rule that it breaks.
absl::Status CheckInventoryBatch(const proto::InventoryBatch& batch);

}  // namespace tokura::coordinator
