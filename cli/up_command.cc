#include "cli/up_command.h"

#include <csignal>
#include <memory>
#include <utility>

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "cli/output.h"
#include "cli/port_file.h"
#include "common/config.h"
#include "common/net/transport.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

struct UpFlags {
  std::string listen = "127.0.0.1:0";
  std::string admin = "127.0.0.1:0";
  std::string port_file;
  node::NodeOptions node;
};

// SIGTERM and SIGINT of this process, waited for instead of handled. Made before any other thread,
// which inherit the mask.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void WaitForOne() const {
    int number = 0;
    while (sigwait(&set_, &number) != 0) {
    }
  }
  // From now on each of them ends the process at once.
  void LetThrough() const { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

 private:
  sigset_t set_;
};

std::string ReadyText(const PortFile& ports) {
  return absl::StrCat("ready: a cache node listens on ", ports.node, "\n  metrics   http://",
                      ports.admin, "/metrics\n  health    http://", ports.admin,
                      "/healthz\n  try it    tokura put --node ", ports.node,
                      " --kv tests/data/kv/prefix.kvcap\nStop it with Ctrl-C or SIGTERM.\n");
}

absl::Status Serve(UpFlags flags) {
  TOKURA_ASSIGN_OR_RETURN(flags.node.listen, net::Address::Parse(flags.listen));
  TOKURA_ASSIGN_OR_RETURN(flags.node.admin, net::Address::Parse(flags.admin));
  const StopSignals signals;
  TOKURA_ASSIGN_OR_RETURN(const std::unique_ptr<node::NodeProcess> process,
                          node::NodeProcess::Start(flags.node));
  const node::NodeProcess::Addresses addresses = process->addresses();
  PortFile ports;
  ports.node = addresses.data.ToString();
  ports.data = ports.node;
  ports.admin = addresses.admin.ToString();
  if (!flags.port_file.empty()) {
    TOKURA_RETURN_IF_ERROR(WritePortFile(flags.port_file, ports));
  }
  const Output output("");
  output.Print(ReadyText(ports));
  signals.WaitForOne();
  output.Print("stopping: finishing what is under way (a second signal ends at once)\n");
  signals.LetThrough();
  process->Shutdown();
  return absl::OkStatus();
}

}  // namespace

int RunUp(const std::vector<std::string>& args) {
  UpFlags flags;
  OptionTable options("tokura up", "Run a cache node in this process, until SIGTERM or Ctrl-C.");
  options.AddBytes("host-bytes", &flags.node.host_bytes, "host memory for blocks");
  options.AddString("listen", &flags.listen, "host:port for clients; port 0: a free one");
  options.AddString("admin", &flags.admin, "host:port for HTTP: metrics, health, version");
  options.AddString("port-file", &flags.port_file,
                    "write the addresses to this file when ready, NAME=HOST:PORT a line");
  options.AddString("name", &flags.node.name, "of the node; at most one is up under a name");
  options.AddInt("io-threads", &flags.node.io_threads, "threads for clients' connections");
  options.AddExample("tokura up --host-bytes 4GiB --listen 127.0.0.1:7421",
                     "a node with 4 GiB for blocks");
  options.AddCheck([&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(net::Address::Parse(flags.listen).status());
    return net::Address::Parse(flags.admin).status();
  });
  if (const auto outcome = options.Parse(args); !outcome.run) {
    return outcome.exit_code;
  }
  const absl::Status status = Serve(std::move(flags));
  return status.ok() ? kExitOk : Fail("up", status);
}

}  // namespace tokura::cli
