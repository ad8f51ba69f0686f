#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/build_info.h"
#include "common/net/transport.h"

namespace prometheus {
class Registry;
}

namespace tokura {

// The admin endpoints of a process, on a thread of their own: GET /metrics (Prometheus text format
// of `registry`), /healthz (200 while `healthy` says so, else 503 with the reason), /readyz
// (likewise), /version (JSON); anything else is 404 with a list of these. A request may have 16 KiB
// and take 5 s; sixteen are served at a time, and each connection serves one. A connection that
// sends no request gives way to others after 250 ms. Thread-safe. Stops and joins on destruction.
class AdminServer {
 public:
  struct Options {
    net::Address listen;  // port 0: a free one
    std::shared_ptr<prometheus::Registry> registry;
    // Called on HTTP threads; must be thread-safe and quick. OK or the reason why not. Empty: OK.
    std::function<absl::Status()> healthy;
    std::function<absl::Status()> ready;
    // {"tokura","commit","protocol","format","transport","transport_version","incarnation",…}
    std::string version_json;
  };
  // UNAVAILABLE: the address is in use or not local.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(Options options);
  virtual ~AdminServer() = default;
  virtual net::Address address() const = 0;
};

}  // namespace tokura
