#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <sys/socket.h>

#include "absl/status/statusor.h"
#include "common/net/transport.h"

namespace tokura::net {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // INVALID_ARGUMENT when `address` is no IP literal.
  static absl::StatusOr<SocketAddress> FromLiteral(const Address& address);
  // Looks names up as well, and may block for as long as the system's resolver takes. UNAVAILABLE
  // when there is no such name.
  static absl::StatusOr<SocketAddress> Resolve(const Address& address);
  // The inverse, for logs and for Listener::address.
  Address ToAddress() const;
};

// Looks names up on a thread of its own, so that nobody else waits. Thread-safe.
class UcxResolver {
 public:
  using Callback = std::function<void(absl::StatusOr<SocketAddress>)>;
  // May block for any time. Called on the resolver's thread, also after the resolver is gone.
  using Lookup = std::function<absl::StatusOr<SocketAddress>(const Address&)>;
  explicit UcxResolver(Lookup lookup = SocketAddress::Resolve);
  // No callback runs from here on. Waits for one that runs, but not for a lookup: the system's can
  // take a minute and cannot be stopped, so the thread ends on its own after it.
  ~UcxResolver();
  UcxResolver(const UcxResolver&) = delete;
  UcxResolver& operator=(const UcxResolver&) = delete;

  // Calls `callback` on the resolver's thread. At most one job under each `id`.
  void Resolve(uint64_t id, const Address& address, Callback callback);
  // Drop the job of that id if it has not started; the callback of one that has is still called.
  void Forget(uint64_t id);

 private:
  struct Job {
    Address address;
    Callback callback;
  };
  // What the thread works with, which may outlive the resolver. Owners: resolver and thread.
  struct Shared {
    Lookup lookup;
    std::mutex mutex;  // std::mutex for the condition variable's sake; guards all below
    std::condition_variable changed;
    std::map<uint64_t, Job> jobs;  // ids grow, so this is their order
    bool calling = false;          // a callback runs
    bool stop = false;
  };
  static void Run(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace tokura::net
