#pragma once

namespace tokura::net {

// Send libprotobuf's own lines, which a peer's bytes can cause, through Log at DEBUG. For the whole
// process; again is harmless. Any thread.
void RouteProtobufLog();

}  // namespace tokura::net
