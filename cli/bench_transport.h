#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"

namespace tokura::cli {

// Rows transport/{get,put}/SIZE/batchN: a client core and a cache node in two processes over TCP
// loopback, next to raw UCX active messages between two processes with the same settings and one
// CRC-32C pass at the receiver; batch1 is the median of single operations. Below each of them,
// …/cpu_client and …/cpu_node: processor time per byte of both sides. Rows transport/rpc/{sleep,
// spin}: a lookup of one unknown key next to a raw echo with threads that wait in the same way.
// Bytes are verified first. Statuses: see Bench.
absl::StatusOr<std::vector<BenchRow>> BenchTransport(const BenchOptions& options);

// The internal command `tokura bench-transport-peer {raw,node} {sleep,spin} BYTES`: the other
// process of those rows. Says its address on standard output, then serves until it is killed.
int RunBenchTransportPeer(const std::vector<std::string>& args);

}  // namespace tokura::cli
