#pragma once

// UCX as the rest of common/net/ucx_* sees it: its headers, its statuses as ours, and the identity
// that a client shows to a listener. Everything that depends on UCX's version is in ucx_api.cc.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "common/net/ucx_version.h"

namespace tokura::net {

// What a UCX status means to users of a Transport: OK; CANCELLED; UNAVAILABLE for everything that
// means that the peer is gone or cannot be reached; RESOURCE_EXHAUSTED for lack of memory or of
// buffers; INVALID_ARGUMENT; INTERNAL for the rest. `what` begins the message. Thread-safe.
absl::Status UcxStatus(ucs_status_t status, std::string_view what);

// Whether `status` says that the endpoint is beyond use, and not only this one operation.
bool EndpointLost(ucs_status_t status);

// What a client shows before an endpoint exists: magic, Tokura's protocol version, and UCX's major
// and minor version, 16 bits each from the top. UCX of another minor version does not understand
// this one's addresses, so a listener refuses it before trying.
struct UcxClientId {
  uint64_t value = 0;

  static UcxClientId Local();
  bool Matches(UcxClientId other) const { return value == other.value; }
  // "protocol 1 over UCX 1.22", or that it is no Tokura client at all.
  std::string ToString() const;
};

// The transports and devices that `handle` uses, "tcp/lo" once per lane. Empty where UCX is too old
// to tell (before 1.14). On the thread of its worker.
std::vector<std::string> UcxLanes(ucp_ep_h handle);

// Process-wide settings of UCX that are not in a ucp_config_t. Each takes effect unless the
// operator's environment names it. To be called before the first ucp_init. Thread-compatible.
void TurnOffMemoryHooks();
void TurnOffErrorSignals();
void TurnOffUnusedVariableWarnings();
void TurnOffMemoryTypeCache();
// Send what UCX logs to this process's log, because UCX's own goes to standard output.
void RedirectUcxLog();

// Whether the operator's environment sets UCX_<name>. Thread-safe as long as nobody calls setenv.
bool OperatorSets(const char* name);

}  // namespace tokura::net
