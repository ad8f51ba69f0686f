#pragma once

#include "client-lib/src/operation.h"

namespace tokura {

// Tell the nodes of a match's leases to keep them, or to end them. Nobody waits for the answer, and
// nothing is sent to a node that is not connected. Core's executor.
void RenewLease(CoreContext& core, const Match& held);
void ReleaseLease(CoreContext& core, const Match& held);
void ReleaseLease(CoreContext& core, const Match::Holder& holder);

}  // namespace tokura
