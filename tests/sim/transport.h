#pragma once

// The deterministic implementation of net::Transport: messages and payloads between simulated
// processes over links with delay, bandwidth, partitions, and, on request, loss, reordering and
// flipped bits.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/net/transport.h"
#include "tests/sim/host.h"

namespace tokura::sim {

// One direction between two machines.
struct LinkConditions {
  Duration latency = std::chrono::microseconds(50);
  Duration jitter = std::chrono::microseconds(50);
  uint64_t bytes_per_second = uint64_t{1} << 30;
  size_t pieces_max = 5;  // of one payload's transfer
  // A cut link carries nothing: what was sent stalls, in order, until it is mended.
  bool cut = false;
  // Adversarial: a lossless ordered stream never does this, but a channel must survive it by its
  // deadlines.
  uint64_t drop_permille = 0;          // of whole messages and offers
  uint64_t reorder_permille = 0;       // of whole messages and offers, with the one before
  uint64_t flip_permille = 0;          // of messages: one bit
  uint64_t flip_payload_permille = 0;  // of payload pieces: one bit
};

// What a process and its connections are doing; what a fault hits.
struct NetworkActivity {
  size_t connections = 0;
  size_t queued_messages = 0;  // sent and not delivered
  size_t offers = 0;           // payloads offered and not answered
  size_t transfers = 0;        // payloads under way
};

// Sees every message, in the order of the events.
class NetworkWitness {
 public:
  struct Message {
    const SimHost& from;
    const SimHost& to;
    uint64_t connection = 0;  // the same number at both ends
    std::span<const std::byte> header;
    std::span<const std::byte> body;
  };
  virtual ~NetworkWitness() = default;
  // Its sender has handed it to the transport.
  virtual void OnSent(const Message& message) = 0;
  // Its receiver is about to get it; bits may have been flipped on the way.
  virtual void OnDelivered(const Message& message) = 0;
};

class SimTransport;
class SimConnection;
class SimListener;
struct Transfer;
struct Packet;

// All machines, links and connections. Thread-compatible, driven by the scheduler.
class SimNetwork {
 public:
  struct Options {
    Duration close_timeout = std::chrono::milliseconds(500);       // of Close(kFlush)
    Duration connect_timeout = std::chrono::milliseconds(3000);    // when nobody answers
    Duration completion_delay_max = std::chrono::milliseconds(2);  // of operations after a close
    uint64_t unsent_bytes_max = uint64_t{4} << 20;                 // per direction
    LinkConditions link;                                           // to begin with
  };
  SimNetwork(SimScheduler& scheduler, Options options);
  ~SimNetwork();

  SimScheduler& scheduler() { return scheduler_; }
  const Options& options() const { return options_; }

  // The link from machine `from` to machine `to`, for changes of everything but `cut`.
  LinkConditions& link(const std::string& from, const std::string& to);
  void Cut(const std::string& from, const std::string& to);
  void Mend(const std::string& from, const std::string& to);
  // Break every connection between two machines; both sides learn it soon, each at its own time.
  void Reset(const std::string& one, const std::string& other);

  // What peers see when a process dies: its connections closed by its system, or, when the whole
  // machine is gone, silence.
  enum class Death { kProcess, kMachine };
  // The process `host` is dead for the rest of the world: its listeners and connections are gone,
  // nothing it still does gets out. Its own objects see lost connections, so that the simulation
  // can take them down in their own way.
  void Kill(SimHost& host, Death death);

  // Borrowed, outlives the network; null: none.
  void set_witness(NetworkWitness* witness) { witness_ = witness; }
  NetworkActivity activity(const SimHost& host) const;
  // Whether `host` has a connection to a process of `peer` that it has not seen close.
  bool Connected(const SimHost& host, const SimHost& peer) const;
  uint64_t flipped_bits() const { return flipped_bits_; }
  uint64_t lost_messages() const { return lost_messages_; }

 private:
  friend class SimTransport;
  friend class SimConnection;
  friend class SimListener;

  void StartConnect(const std::shared_ptr<SimConnection>& end, const net::Address& peer);
  void ArriveConnect(const std::shared_ptr<SimConnection>& end, const net::Address& peer,
                     SimTransport& owner);
  std::shared_ptr<SimConnection> MakeEnd(SimTransport& transport);
  // Those that still exist, oldest first.
  std::vector<std::shared_ptr<SimConnection>> Connections();
  void MendConnections();

  SimScheduler& scheduler_;
  const Options options_;
  std::map<std::pair<std::string, std::string>, LinkConditions> links_;
  std::map<net::Address, SimListener*> listeners_;
  std::map<uint64_t, std::weak_ptr<SimConnection>> connections_;  // by id; closed ones leave
  std::set<const SimHost*> dead_;
  NetworkWitness* witness_ = nullptr;
  uint64_t last_connection_ = 0;
  uint64_t flipped_bits_ = 0;
  uint64_t lost_messages_ = 0;
};

// One transport of a simulated process, on one of its loops.
class SimTransport final : public net::Transport {
 public:
  SimTransport(SimNetwork& network, SimLoop& loop, std::string version = "1.22.0");

  Executor& executor() override { return loop_; }
  const char* name() const override { return "sim"; }
  std::string version() const override { return version_; }
  absl::StatusOr<std::unique_ptr<net::MemoryRegion>> Register(std::span<std::byte> bytes) override;
  std::unique_ptr<net::Connection> Connect(const net::Address& peer,
                                           net::ConnectionHandler& handler) override;
  absl::StatusOr<std::unique_ptr<net::Listener>> Listen(const net::Address& address,
                                                        std::vector<net::Transport*> owners,
                                                        AcceptHandler accept) override;

  SimLoop& loop() { return loop_; }
  SimNetwork& network() { return network_; }
  // Everything that was ever registered here, oldest first: memory that tests look into, for as
  // long as its owner keeps it.
  const std::vector<std::span<std::byte>>& registered() const { return registered_; }

 private:
  SimNetwork& network_;
  SimLoop& loop_;
  const std::string version_;
  std::vector<std::span<std::byte>> registered_;
};

}  // namespace tokura::sim
