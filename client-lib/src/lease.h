#pragma once

#include "client-lib/src/operation.h"

namespace tokura {

// Tell the node of a lease to keep it, or to end it. Nobody waits for the answer, and nothing is
// sent when the connection that owns the lease is gone: the lease went with it. Core's executor.
void RenewLease(CoreContext& core, const Match& held);
void ReleaseLease(CoreContext& core, const Match& held);

}  // namespace tokura
