#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

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
  UcxResolver();
  // Waits for a lookup under way; others are forgotten, their callbacks destroyed uncalled.
  ~UcxResolver();
  UcxResolver(const UcxResolver&) = delete;
  UcxResolver& operator=(const UcxResolver&) = delete;

  // Calls `callback` on the resolver's thread.
  void Resolve(const Address& address, Callback callback);

 private:
  struct Job {
    Address address;
    Callback callback;
  };
  void Run();

  std::mutex mutex_;  // std::mutex for the condition variable's sake; guards all below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tokura::net
