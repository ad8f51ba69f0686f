#pragma once

// Helpers for tests of the UCX transport over loopback: handlers that record what they hear, and
// loops that drive several transports in one thread until something is true.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/net/transport.h"
#include "common/net/ucx_transport.h"
#include "common/net/ucx_transport_impl.h"
#include "gtest/gtest.h"

namespace tokura::net {

// How long a test waits for what must happen. Generous, because machines are loaded; nothing waits
// that long unless the test fails.
inline constexpr Duration kPatience = std::chrono::seconds(30);

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Bytes that depend on `seed` and on their place.
inline void Fill(std::span<std::byte> bytes, uint64_t seed) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& byte : bytes) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    byte = static_cast<std::byte>(x);
  }
}

// Registered memory of its own.
class Buffer {
 public:
  Buffer(Transport& transport, size_t size) : bytes_(size) {
    region_ = std::move(transport.Register(bytes_)).value();
  }
  RegisteredSpan span() { return {region_.get(), bytes_.data(), bytes_.size()}; }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<MemoryRegion> region_;
};

// Records everything in order; `on_payload` may answer offers at once, others are kept.
struct Recorder final : ConnectionHandler {
  std::unique_ptr<Connection> connection;
  std::vector<std::string> log;  // "connected", "message H|B", "payload H|size", "closed"
  std::deque<IncomingPayload> kept;
  std::optional<absl::Status> closed;
  bool connected = false;
  int messages = 0;
  int payloads = 0;
  std::function<void(std::span<const std::byte>, IncomingPayload)> on_payload;
  std::function<void(Connection&, std::string, std::string)> on_message;

  void OnConnected(Connection&) override {
    connected = true;
    log.push_back("connected");
  }
  void OnMessage(Connection& from, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    ++messages;
    if (on_message) {
      on_message(from, AsText(header), AsText(body));
    } else {
      log.push_back("message " + AsText(header) + "|" + AsText(body));
    }
  }
  void OnPayload(Connection&, std::span<const std::byte> header, IncomingPayload payload) override {
    ++payloads;
    log.push_back("payload " + AsText(header) + "|" + std::to_string(payload.size()));
    if (on_payload) {
      on_payload(header, std::move(payload));
    } else {
      kept.push_back(std::move(payload));
    }
  }
  void OnClosed(Connection&, absl::Status why) override {
    EXPECT_FALSE(closed.has_value());
    closed = why;
    log.push_back("closed");
  }
};

// Drive `transports` until `done`; false after kPatience.
inline bool Drive(const std::vector<UcxTransport*>& transports, const std::function<bool()>& done) {
  const TimePoint give_up = SystemClock().Now() + kPatience;
  while (!done()) {
    if (SystemClock().Now() > give_up) {
      return false;
    }
    for (UcxTransport* transport : transports) {
      transport->Poll(Duration::zero());
    }
  }
  return true;
}

inline UcxContext& SharedContext() {
  static UcxContext* context = std::move(UcxContext::Create({})).value().release();
  return *context;
}

inline std::unique_ptr<UcxTransport> NewTransport(UcxTransport::Options options = {}) {
  return std::move(UcxTransport::Create(SharedContext(), options)).value();
}

inline UcxTransportImpl& Impl(UcxTransport& transport) {
  return static_cast<UcxTransportImpl&>(transport);
}

// A client and a server transport with one connection between them, in one thread.
class UcxPair {
 public:
  explicit UcxPair(UcxTransport::Options options = {})
      : client(NewTransport(options)), server(NewTransport(options)) {
    listener = std::move(server->Listen({"127.0.0.1", 0}, {},
                                        [this](Transport&, std::unique_ptr<Connection> connection) {
                                          at_server.connection = std::move(connection);
                                          return &at_server;
                                        }))
                   .value();
    at_client.connection = client->Connect(listener->address(), at_client);
    EXPECT_TRUE(Until(
        [this] { return (at_client.connected && at_server.connection) || at_client.closed; }));
    EXPECT_FALSE(at_client.closed.has_value()) << at_client.closed.value_or(absl::OkStatus());
  }
  ~UcxPair() {
    // Payloads that were kept are part of their connection.
    at_client.kept.clear();
    at_server.kept.clear();
    if (!at_client.closed) {
      at_client.connection->Close(CloseMode::kAbort);
    }
    if (at_server.connection && !at_server.closed) {
      at_server.connection->Close(CloseMode::kAbort);
    }
    EXPECT_TRUE(
        Until([this] { return at_client.closed && (at_server.closed || !at_server.connection); }));
    listener.reset();
  }
  bool Until(const std::function<bool()>& done) {
    return Drive({client.get(), server.get()}, done);
  }

  // Destroyed last to first: listener and handlers, then what they came from.
  std::unique_ptr<UcxTransport> client;
  std::unique_ptr<UcxTransport> server;
  Recorder at_client;
  Recorder at_server;
  std::unique_ptr<Listener> listener;
};

}  // namespace tokura::net
