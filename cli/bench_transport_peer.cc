#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "cli/bench_transport.h"
#include "cli/output.h"
#include "common/log.h"
#include "common/loop_pool.h"
#include "common/net/ucx_raw_peer.h"
#include "common/net/ucx_transport.h"
#include "common/status_macros.h"
#include "prometheus/registry.h"

namespace tokura::cli {
namespace {

using Wake = net::UcxTransport::Options::Wake;

void SayAddress(const net::Address& address) {
  std::puts(address.ToString().c_str());
  std::fflush(stdout);
}

absl::Status ServeRaw(net::UcxContext& context, Wake wake, uint64_t bytes) {
  net::UcxRawPeer::Options options;
  options.wake = wake;
  options.memory_bytes = bytes;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<net::UcxRawPeer> peer,
                          net::UcxRawPeer::Listen(context, options));
  SayAddress(peer->address());
  peer->Serve();
  return absl::OkStatus();
}

absl::Status ServeNode(net::UcxContext& context, Wake wake, uint64_t bytes) {
  net::UcxTransport::Options options;
  options.wake = wake;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<net::UcxTransport> transport,
                          net::UcxTransport::Create(context, options));
  const std::unique_ptr<WorkerPool> pool =
      MakeLoopPool({&transport->executor()}, MakeThreadPool(1, "verify"), ProcessorsFor(1));
  node::NodeOptions node_options;
  node_options.host_bytes = bytes;
  node_options.prefault = true;
  // The client is silent while raw UCX is measured.
  node_options.dead_after = std::chrono::seconds(30);
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<node::Node> node,
                          node::Node::Create({.transports = {transport.get()},
                                              .clock = SystemClock(),
                                              .random = SystemRandom(),
                                              .pool = *pool,
                                              .metrics = std::make_shared<prometheus::Registry>()},
                                             node_options));
  TOKURA_RETURN_IF_ERROR(node->Start());
  SayAddress(node->address());
  transport->Run();
  return absl::OkStatus();
}

absl::Status Serve(const std::vector<std::string>& args) {
  uint64_t bytes = 0;
  if (args.size() != 3 || !absl::SimpleAtoi(args[2], &bytes)) {
    return absl::InvalidArgumentError("usage: bench-transport-peer {raw,node} {sleep,spin} BYTES");
  }
  const Wake wake = args[1] == "spin" ? Wake::kSpin : Wake::kSleep;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<net::UcxContext> context,
                          net::UcxContext::Create({}));
  return args[0] == "raw" ? ServeRaw(*context, wake, bytes) : ServeNode(*context, wake, bytes);
}

}  // namespace

int RunBenchTransportPeer(const std::vector<std::string>& args) {
  SetLogLevel(LogLevel::kWarn);
  const absl::Status status = Serve(args);
  return status.ok() ? kExitOk : Fail("bench-transport-peer", status);
}

}  // namespace tokura::cli
