// The contract of common/net/transport.h, held against the simulated transport under every fault it
// can produce, and the reproducibility of a run from its seed.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::sim {
namespace {

using net::Address;
using net::CloseMode;
using net::Connection;
using net::IncomingPayload;
using net::MemoryRegion;
using net::RegisteredSpan;
using std::chrono::milliseconds;

constexpr size_t kPayloadBytes = 3000;

struct Buffer {
  std::vector<std::byte> bytes = std::vector<std::byte>(kPayloadBytes);
  std::unique_ptr<MemoryRegion> region;
  bool busy = false;  // the transport's
  uint32_t crc = 0;   // when it came back
  RegisteredSpan all() { return {region.get(), bytes.data(), bytes.size()}; }
};

struct Counts {
  size_t messages = 0, payloads_ok = 0, payloads_failed = 0, rejected = 0, closed = 0,
         connected = 0;
};

enum class Lossy { kNo, kYes };

// One process that sends, offers, receives, rejects and closes at random, and checks everything
// that it is promised.
class Peer {
 public:
  class Link final : public net::ConnectionHandler {
   public:
    explicit Link(Peer& peer) : peer_(peer) {}
    void OnConnected(Connection& connection) override {
      EXPECT_FALSE(peer_.calling_) << "inline";
      EXPECT_EQ(&connection, connection_.get());
      EXPECT_FALSE(open_);
      open_ = true;
      ++peer_.counts_.connected;
    }
    void OnMessage(Connection&, std::span<const std::byte> header,
                   std::span<const std::byte> body) override {
      CheckOrder(header);
      EXPECT_EQ(body.size(), 10u);
      ++peer_.counts_.messages;
    }
    void OnPayload(Connection&, std::span<const std::byte> header,
                   IncomingPayload payload) override {
      CheckOrder(header);
      uint32_t crc;
      std::memcpy(&crc, header.data() + sizeof(uint64_t), sizeof(crc));
      EXPECT_EQ(payload.size(), kPayloadBytes);
      kept_.emplace_back(std::move(payload), crc);
      peer_.Answer(*this);
    }
    void OnClosed(Connection&, absl::Status) override {
      EXPECT_FALSE(peer_.calling_) << "inline";
      EXPECT_FALSE(closed_) << "twice";
      EXPECT_EQ(pending_, 0) << "a Done is missing";
      closed_ = true;
      open_ = false;
      ++peer_.counts_.closed;
    }

   private:
    friend class Peer;
    void CheckOrder(std::span<const std::byte> header) {
      EXPECT_FALSE(peer_.calling_) << "inline";
      EXPECT_FALSE(closed_);
      uint64_t number;
      std::memcpy(&number, header.data(), sizeof(number));
      if (peer_.lossy_ == Lossy::kNo) {
        EXPECT_EQ(number, received_ + 1) << "out of order";
      }
      received_ = number;
    }

    Peer& peer_;
    std::unique_ptr<Connection> connection_;
    bool open_ = false;
    bool closed_ = false;
    int pending_ = 0;
    uint64_t sent_ = 0;
    uint64_t received_ = 0;
    std::vector<std::pair<IncomingPayload, uint32_t>> kept_;
  };

  Peer(SimScheduler& scheduler, SimNetwork& network, SimHost& host, Lossy lossy)
      : random_(scheduler.random().Draw()),
        host_(host),
        transport_(network, host.loop()),
        lossy_(lossy) {
    for (Buffer& buffer : buffers_) {
      buffer.region = std::move(transport_.Register(buffer.bytes)).value();
    }
    host_.loop().Enter([&] {
      listener_ =
          std::move(transport_.Listen({host.ip(), 0}, {}, [this](net::Transport&, auto connection) {
            Link& link = NewLink();
            link.connection_ = std::move(connection);
            link.open_ = true;
            return &link;
          })).value();
    });
  }

  Address address() const { return listener_->address(); }
  SimHost& host() { return host_; }
  const Counts& counts() const { return counts_; }

  // One random action, on this process's thread.
  void Act(const Address& other) {
    if (host_.paused()) {
      return;
    }
    host_.loop().Enter([&] {
      calling_ = true;
      const uint64_t choice = random_.Below(100);
      Link* const link = links_.empty() ? nullptr : links_[random_.Below(links_.size())].get();
      if (choice < 10 || link == nullptr) {
        Link& fresh = NewLink();
        fresh.connection_ = transport_.Connect(other, fresh);
      } else if (choice < 40) {
        SendMessage(*link);
      } else if (choice < 75) {
        SendPayload(*link);
      } else if (choice < 95) {
        Answer(*link);
      } else if (!link->closed_) {
        link->connection_->Close(random_.Permille(500) ? CloseMode::kFlush : CloseMode::kAbort);
      }
      calling_ = false;
    });
    CheckReturnedBuffers();
  }

  void AbortAll() {
    host_.loop().Enter([&] {
      for (const auto& link : links_) {
        if (!link->closed_) {
          link->connection_->Close(CloseMode::kAbort);
        }
      }
    });
  }

  void CheckEnded() {
    for (const auto& link : links_) {
      EXPECT_TRUE(link->closed_);
      link->kept_.clear();
    }
    EXPECT_EQ(done_calls_, started_);
    CheckReturnedBuffers();
  }

 private:
  Link& NewLink() {
    links_.push_back(std::make_unique<Link>(*this));
    return *links_.back();
  }

  Buffer* FreeBuffer() {
    for (Buffer& buffer : buffers_) {
      if (!buffer.busy) {
        return &buffer;
      }
    }
    return nullptr;
  }

  void SendMessage(Link& link) {
    if (link.closed_) {
      return;
    }
    std::byte header[8];
    const uint64_t number = link.sent_ + 1;
    std::memcpy(header, &number, sizeof(number));
    const std::byte body[10] = {};
    if (link.connection_->SendMessage(header, body).ok()) {
      link.sent_ = number;
    }
  }

  void SendPayload(Link& link) {
    Buffer* const buffer = FreeBuffer();
    if (buffer == nullptr || !link.open_) {
      return;
    }
    random_.Fill(buffer->bytes);
    const uint32_t crc = Crc32c(buffer->bytes);
    buffer->busy = true;
    const uint64_t number = ++link.sent_;
    std::byte header[12];
    std::memcpy(header, &number, sizeof(number));
    std::memcpy(header + sizeof(number), &crc, sizeof(crc));
    const size_t cut = random_.Between(1, kPayloadBytes - 1);
    const RegisteredSpan pieces[] = {buffer->all().Sub(0, cut),
                                     buffer->all().Sub(cut, kPayloadBytes - cut)};
    Start(link);
    link.connection_->SendPayload(header, pieces, [this, &link, buffer](absl::Status) {
      Finish(link);
      // The buffer is its owner's again: a transport that still read it would send garbage.
      random_.Fill(buffer->bytes);
      buffer->crc = Crc32c(buffer->bytes);
      buffer->busy = false;
    });
  }

  // Receive, reject, drop or keep the oldest payload that waits.
  void Answer(Link& link) {
    const uint64_t choice = random_.Below(10);
    if (link.kept_.empty() || choice < 2) {
      return;
    }
    auto [payload, crc] = std::move(link.kept_.front());
    link.kept_.erase(link.kept_.begin());
    Buffer* const buffer = FreeBuffer();
    if (choice < 4 || buffer == nullptr) {
      ++counts_.rejected;
      return;
    }
    buffer->busy = true;
    Start(link);
    const bool late = link.closed_;
    payload.Receive(buffer->all(), [this, &link, buffer, late, crc = crc](absl::Status status) {
      Finish(link);
      if (late) {
        --late_;
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      }
      if (status.ok()) {
        EXPECT_EQ(Crc32c(buffer->bytes), crc) << "wrong bytes";
        ++counts_.payloads_ok;
      } else {
        ++counts_.payloads_failed;
      }
      buffer->crc = Crc32c(buffer->bytes);
      buffer->busy = false;
    });
    late_ += late ? 1 : 0;
  }

  void Start(Link& link) {
    ++started_;
    ++link.pending_;
  }

  void Finish(Link& link) {
    EXPECT_FALSE(calling_) << "inline";
    EXPECT_TRUE(!link.closed_ || late_ > 0) << "a Done after OnClosed";
    ++done_calls_;
    --link.pending_;
    EXPECT_GE(link.pending_, 0);
  }

  void CheckReturnedBuffers() {
    for (Buffer& buffer : buffers_) {
      if (!buffer.busy && buffer.crc != 0) {
        EXPECT_EQ(Crc32c(buffer.bytes), buffer.crc) << "written after its Done";
      }
    }
  }

  SimRandom random_;
  SimHost& host_;
  SimTransport transport_;
  const Lossy lossy_;
  Buffer buffers_[6];
  std::unique_ptr<net::Listener> listener_;
  std::vector<std::unique_ptr<Link>> links_;
  Counts counts_;
  bool calling_ = false;
  size_t started_ = 0;
  size_t done_calls_ = 0;
  int late_ = 0;
};

struct RunResult {
  uint64_t hash = 0;
  Counts counts;
};

void Disturb(SimScheduler& scheduler, SimNetwork& network, SimHost& one, SimHost& other) {
  SimRandom& random = scheduler.random();
  const Duration length = random.Between(milliseconds(1), milliseconds(50));
  switch (random.Below(5)) {
    case 0:
      network.Cut(one.ip(), other.ip());
      scheduler.After(length, [&network, &one, &other] { network.Mend(one.ip(), other.ip()); });
      break;
    case 1:
      network.Cut(one.ip(), other.ip());
      network.Cut(other.ip(), one.ip());
      scheduler.After(length, [&network, &one, &other] {
        network.Mend(one.ip(), other.ip());
        network.Mend(other.ip(), one.ip());
      });
      break;
    case 2:
      network.Reset(one.ip(), other.ip());
      break;
    default:
      if (!one.paused()) {
        one.Pause();
        scheduler.After(length, [&one] { one.Continue(); });
      }
  }
}

RunResult RunSeed(uint64_t seed, Lossy lossy) {
  SimScheduler scheduler(seed);
  SimNetwork::Options options;
  if (lossy == Lossy::kYes) {
    options.link.drop_permille = 30;
    options.link.reorder_permille = 100;
  }
  SimNetwork network(scheduler, options);
  std::vector<std::unique_ptr<SimHost>> hosts;
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 3; ++i) {
    SimHost::Options host;
    host.name = absl::StrCat("host-", i);
    host.ip = absl::StrCat("10.0.0.", i + 1);
    host.clock_drift_ppm = i * 300 - 300;
    host.clock_offset = milliseconds(i * 777);
    hosts.push_back(std::make_unique<SimHost>(scheduler, host));
    peers.push_back(std::make_unique<Peer>(scheduler, network, *hosts.back(), lossy));
  }
  SimRandom& random = scheduler.random();
  for (int step = 0; step < 400; ++step) {
    const size_t actor = random.Below(3);
    peers[actor]->Act(peers[random.Below(3)]->address());
    if (random.Permille(30)) {
      Disturb(scheduler, network, *hosts[actor], *hosts[random.Below(3)]);
    }
    scheduler.RunFor(random.Between(Duration{0}, milliseconds(1)));
  }
  if (random.Permille(500)) {
    network.Kill(*hosts[0],
                 random.Permille(500) ? SimNetwork::Death::kProcess : SimNetwork::Death::kMachine);
  }
  scheduler.RunFor(milliseconds(200));
  for (const auto& peer : peers) {
    peer->AbortAll();
  }
  scheduler.RunFor(std::chrono::seconds(10));
  RunResult result{scheduler.hash(), {}};
  for (const auto& peer : peers) {
    peer->CheckEnded();
    const Counts& counts = peer->counts();
    result.counts.messages += counts.messages;
    result.counts.payloads_ok += counts.payloads_ok;
    result.counts.payloads_failed += counts.payloads_failed;
    result.counts.rejected += counts.rejected;
    result.counts.closed += counts.closed;
    result.counts.connected += counts.connected;
  }
  return result;
}

TEST(SimTransportTest, HoldsTheContractUnderFaults) {
  Counts total;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RunResult result = RunSeed(seed, seed % 4 == 0 ? Lossy::kYes : Lossy::kNo);
    total.messages += result.counts.messages;
    total.payloads_ok += result.counts.payloads_ok;
    total.payloads_failed += result.counts.payloads_failed;
    total.rejected += result.counts.rejected;
    total.closed += result.counts.closed;
    total.connected += result.counts.connected;
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(total.messages, 1000u);
  EXPECT_GT(total.payloads_ok, 1000u);
  EXPECT_GT(total.payloads_failed, 100u);
  EXPECT_GT(total.rejected, 100u);
  EXPECT_GT(total.closed, 1000u);
  EXPECT_GT(total.connected, 1000u);
}

TEST(SimTransportTest, SameSeedGivesTheSameEventLog) {
  std::map<uint64_t, uint64_t> seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const uint64_t hash = RunSeed(seed, Lossy::kYes).hash;
    EXPECT_EQ(RunSeed(seed, Lossy::kYes).hash, hash) << "seed " << seed;
    EXPECT_TRUE(seen.emplace(hash, seed).second) << "seeds " << seed << " and " << seen[hash];
  }
}

// Offers or takes one payload and says when it had it.
class PayloadEnd final : public net::ConnectionHandler {
 public:
  PayloadEnd(SimNetwork& network, SimHost& host) : scheduler_(network.scheduler()) {
    transport = std::make_unique<SimTransport>(network, host.loop());
    buffer.region = transport->Register(buffer.bytes).value();
  }
  void OnConnected(Connection& to) override {
    const RegisteredSpan piece = buffer.all();
    to.SendPayload({}, {&piece, 1}, [](absl::Status) {});
  }
  void OnMessage(Connection&, std::span<const std::byte>, std::span<const std::byte>) override {}
  void OnPayload(Connection&, std::span<const std::byte>, IncomingPayload payload) override {
    const TimePoint offered = scheduler_.Now();
    payload.Receive(buffer.all(), [this, offered](absl::Status status) {
      EXPECT_TRUE(status.ok());
      took = scheduler_.Now() - offered;
    });
  }
  void OnClosed(Connection&, absl::Status) override { closed = true; }

  std::unique_ptr<SimTransport> transport;
  Buffer buffer;
  std::unique_ptr<Connection> connection;
  Duration took{0};
  bool closed = false;

 private:
  SimScheduler& scheduler_;
};

// However many pieces a payload is cut into, it takes the time that its bytes need on the wire.
TEST(SimTransportTest, PayloadsTakeTheTimeOfTheirBytes) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimScheduler scheduler(seed);
    SimNetwork::Options options;
    options.link.latency = options.link.jitter = Duration{0};
    options.link.bytes_per_second = 1'000'000;
    options.link.pieces_max = 5;
    SimNetwork network(scheduler, options);
    SimHost one(scheduler, {.name = "one", .ip = "10.0.0.1"});
    SimHost two(scheduler, {.name = "two", .ip = "10.0.0.2"});
    PayloadEnd sender(network, one);
    PayloadEnd receiver(network, two);
    const auto listener = receiver.transport->Listen(
        {"10.0.0.2", 1}, {}, [&](net::Transport&, std::unique_ptr<Connection> accepted) {
          receiver.connection = std::move(accepted);
          return &receiver;
        });
    one.loop().Enter([&] {
      sender.connection = sender.transport->Connect({"10.0.0.2", 1}, sender);
    });
    scheduler.RunFor(milliseconds(100));
    EXPECT_GE(receiver.took, milliseconds(3) - std::chrono::microseconds(10));
    EXPECT_LE(receiver.took, milliseconds(4));
    one.loop().Enter([&] { sender.connection->Close(CloseMode::kAbort); });
    scheduler.RunFor(milliseconds(100));
    EXPECT_TRUE(sender.closed && receiver.closed);
  }
}

TEST(SimHostTest, PausedHostRunsNothingAndCatchesUpInOrder) {
  SimScheduler scheduler(1);
  SimHost host(scheduler, {.name = "host", .ip = "10.0.0.1"});
  std::string order;
  host.loop().Enter([&] {
    host.loop().RunAfter(milliseconds(2), [&] { order += 'b'; });
    host.loop().RunAfter(milliseconds(1), [&] { order += 'a'; });
    host.loop().RunAfter(milliseconds(50), [&] { order += 'c'; });
  });
  host.Pause();
  scheduler.RunFor(milliseconds(10));
  EXPECT_EQ(order, "");
  host.Continue();
  scheduler.RunFor(milliseconds(10));
  EXPECT_EQ(order, "ab");
  scheduler.RunFor(milliseconds(100));
  EXPECT_EQ(order, "abc");
}

TEST(SimHostTest, TimersHonourTheHostsOwnClock) {
  for (const int64_t drift : {-5000, 0, 5000}) {
    SimScheduler scheduler(3);
    SimHost host(scheduler, {.name = "host", .ip = "10.0.0.1", .clock_drift_ppm = drift});
    const TimePoint due = host.Now() + std::chrono::seconds(100);
    TimePoint ran;
    host.loop().Enter([&] { host.loop().RunAt(due, [&] { ran = host.Now(); }); });
    scheduler.RunFor(std::chrono::seconds(102));
    EXPECT_GE(ran, due);
    EXPECT_LE(ran, due + std::chrono::seconds(1));
  }
}

TEST(SimHostTest, CancelledTimersDoNotRun) {
  SimScheduler scheduler(1);
  SimHost host(scheduler, {.name = "host", .ip = "10.0.0.1"});
  int ran = 0;
  host.loop().Enter([&] {
    const TimerId first = host.loop().RunAfter(milliseconds(1), [&] { ++ran; });
    host.loop().RunAfter(milliseconds(2), [&] { ++ran; });
    host.loop().CancelTimer(first);
    host.loop().CancelTimer(first);
    host.loop().CancelTimer(12345);
  });
  scheduler.RunFor(milliseconds(10));
  EXPECT_EQ(ran, 1);
}

class CountingJob final : public Job {
 public:
  CountingJob(std::string* log, char name, int steps) : log_(log), name_(name), left_(steps) {}
  ~CountingJob() override { *log_ += static_cast<char>(name_ - 'a' + 'A'); }
  Progress Step() override {
    *log_ += name_;
    return --left_ > 0 ? Progress::kMore : Progress::kDone;
  }

 private:
  std::string* log_;
  char name_;
  int left_;
};

TEST(SimWorkerPoolTest, PauseHoldsAJobBetweenItsSteps) {
  SimScheduler scheduler(1);
  SimHost host(scheduler, {.name = "host", .ip = "10.0.0.1", .pool_threads = 1});
  std::string log;
  host.pool().Add(std::make_unique<CountingJob>(&log, 'x', 3));
  host.pool().Add(std::make_unique<CountingJob>(&log, 'y', 1));
  while (log != "x") {
    ASSERT_TRUE(scheduler.Step());
  }
  host.pool().Pause();
  scheduler.RunFor(milliseconds(100));
  EXPECT_EQ(log, "x");
  host.pool().Continue();
  scheduler.RunFor(milliseconds(100));
  EXPECT_EQ(log, "xxxXyY");
}

}  // namespace
}  // namespace tokura::sim
