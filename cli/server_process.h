#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/child_process.h"
#include "common/port_file.h"

namespace tokura::cli {

// One of the servers whose programs are installed beside this one, on loopback, as a
// child process: killed with this object. Its log goes to a temporary file, which is removed then.
// Thread-compatible.
class ServerProcess {
 public:
  struct Options {
    std::string program;             // "tokura-coordinator"
    std::string name;                // of the server
    std::vector<std::string> flags;  // besides --name, --listen, --admin and --port-file
    std::string listen = "127.0.0.1:0";
  };
  // Start it and wait until it serves. UNAVAILABLE: it did not; the message has its log.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const Options& options);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return process_->pid(); }
  // Where it listens.
  const PortFile& ports() const { return ports_; }
  // What it has logged so far.
  std::string Log() const;

 private:
  explicit ServerProcess(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Launch(const Options& options);

  const std::string directory_;
  std::unique_ptr<ChildProcess> process_;
  PortFile ports_;
};

}  // namespace tokura::cli
