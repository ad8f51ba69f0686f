#include "common/net/ucx_listener.h"

#include <atomic>
#include <thread>

#include "common/log.h"
#include "gtest/gtest.h"
#include "ucx_test_util.h"

namespace tokura::net {
namespace {

Transport::AcceptHandler Refuse() {
  return [](Transport&, std::unique_ptr<Connection>) -> ConnectionHandler* { return nullptr; };
}

TEST(UcxListener, PortZeroGivesAPort) {
  auto transport = NewTransport();
  auto listener = transport->Listen({"127.0.0.1", 0}, {}, Refuse());
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_NE((*listener)->address().port, 0);
  EXPECT_EQ((*listener)->address().host, "127.0.0.1");
}

TEST(UcxListener, PortInUseIsUnavailable) {
  auto transport = NewTransport();
  auto first = transport->Listen({"127.0.0.1", 0}, {}, Refuse());
  ASSERT_TRUE(first.ok());
  const Address address = (*first)->address();
  auto other = NewTransport();
  auto second = other->Listen(address, {}, Refuse());
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_NE(second.status().message().find(address.ToString()), std::string::npos);
}

TEST(UcxListener, ForeignAddressIsUnavailable) {
  auto transport = NewTransport();
  EXPECT_TRUE(absl::IsUnavailable(transport->Listen({"192.0.2.1", 0}, {}, Refuse()).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(transport->Listen({"no.such.invalid", 0}, {}, Refuse()).status()));
}

TEST(UcxListener, PortIsFreeAgainAtOnceAfterConnections) {
  Address address;
  {
    UcxPair pair;
    address = pair.listener->address();
    // The listening side closes first, so that its sockets are the ones that linger.
    pair.at_server.connection->Close(CloseMode::kAbort);
    ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed && pair.at_server.closed; }));
  }
  auto transport = NewTransport();
  auto listener = transport->Listen(address, {}, Refuse());
  EXPECT_TRUE(listener.ok()) << listener.status();
}

TEST(UcxListener, ClosedPortIsUnavailable) {
  Address address;
  {
    auto transport = NewTransport();
    address = transport->Listen({"127.0.0.1", 0}, {}, Refuse()).value()->address();
  }
  auto client = NewTransport();
  Recorder recorder;
  recorder.connection = client->Connect(address, recorder);
  EXPECT_FALSE(recorder.closed) << "failed inline";
  ASSERT_TRUE(Drive({client.get()}, [&] { return recorder.closed.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*recorder.closed)) << *recorder.closed;
  EXPECT_FALSE(recorder.connected);
}

TEST(UcxListener, NamesAreResolved) {
  UcxPair pair;
  Recorder by_name;
  Recorder at_server;
  auto listener = pair.server->Listen({"127.0.0.1", 0}, {},
                                      [&](Transport&, std::unique_ptr<Connection> connection) {
                                        at_server.connection = std::move(connection);
                                        return &at_server;
                                      });
  ASSERT_TRUE(listener.ok());
  by_name.connection = pair.client->Connect({"localhost", (*listener)->address().port}, by_name);
  ASSERT_TRUE(pair.Until([&] { return by_name.connected; }));
  by_name.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(pair.Until([&] { return by_name.closed && at_server.closed; }));
  Recorder nobody;
  nobody.connection = pair.client->Connect({"no.such.invalid", 1}, nobody);
  ASSERT_TRUE(pair.Until([&] { return nobody.closed.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*nobody.closed)) << *nobody.closed;
}

TEST(UcxListener, AnotherVersionIsRefusedWithBothNamed) {
  auto server = NewTransport();
  int accepted = 0;
  auto listener = server->Listen(
      {"127.0.0.1", 0}, {}, [&](Transport&, std::unique_ptr<Connection>) -> ConnectionHandler* {
        ++accepted;
        return nullptr;
      });
  ASSERT_TRUE(listener.ok());
  UcxClientId old = UcxClientId::Local();
  old.value -= 1;  // the minor version before
  auto client = UcxTransportImpl::Create(static_cast<UcxContextImpl&>(SharedContext()), {}, old);
  ASSERT_TRUE(client.ok());
  SetLogLevel(LogLevel::kWarn);  // other tests of this program may have silenced it
  const LogCount before = LogCounts();
  Recorder recorder;
  testing::internal::CaptureStderr();
  recorder.connection = (*client)->Connect((*listener)->address(), recorder);
  EXPECT_TRUE(Drive({server.get(), client->get()}, [&] { return recorder.closed.has_value(); }));
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(recorder.closed.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*recorder.closed)) << *recorder.closed;
  EXPECT_NE(recorder.closed->message().find(UcxClientId::Local().ToString()), std::string::npos);
  EXPECT_NE(recorder.closed->message().find("/version"), std::string::npos);
  EXPECT_EQ(LogCounts().warnings, before.warnings + 1);
  EXPECT_NE(log.find(UcxClientId::Local().ToString()), std::string::npos) << log;
  EXPECT_NE(log.find(old.ToString()), std::string::npos) << log;
  EXPECT_EQ(accepted, 0);
}

TEST(UcxListener, ClientIdNamesVersions) {
  EXPECT_EQ((UcxClientId{0x544b'0001'0001'0016}).ToString(), "protocol 1 over UCX 1.22");
  EXPECT_EQ((UcxClientId{0}).ToString(), "not a Tokura client");
  EXPECT_TRUE(UcxClientId::Local().Matches(UcxClientId::Local()));
}

TEST(UcxListener, RefusingAcceptorClosesTheConnection) {
  auto server = NewTransport();
  auto client = NewTransport();
  auto listener = server->Listen({"127.0.0.1", 0}, {}, Refuse());
  ASSERT_TRUE(listener.ok());
  Recorder recorder;
  recorder.connection = client->Connect((*listener)->address(), recorder);
  ASSERT_TRUE(Drive({server.get(), client.get()}, [&] { return recorder.closed.has_value(); }));
  EXPECT_FALSE(recorder.connected);
  EXPECT_TRUE(absl::IsUnavailable(*recorder.closed)) << *recorder.closed;
}

// A transport that runs on its own thread until destroyed.
class Runner {
 public:
  Runner() : transport_(NewTransport()), thread_([this] { transport_->Run(); }) {}
  ~Runner() {
    transport_->Stop();
    thread_.join();
  }
  UcxTransport& transport() { return *transport_; }

 private:
  std::unique_ptr<UcxTransport> transport_;
  std::thread thread_;
};

// Echoes; counts what it served. Each instance belongs to one transport.
struct Echo final : ConnectionHandler {
  std::unique_ptr<Connection> connection;
  Transport* owner = nullptr;
  std::atomic<bool> closed{false};
  std::atomic<bool> on_owner{true};
  void OnConnected(Connection&) override {}
  void OnMessage(Connection& from, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    on_owner = on_owner && owner->executor().IsCurrent();
    EXPECT_TRUE(from.SendMessage(header, body).ok());
  }
  void OnPayload(Connection&, std::span<const std::byte>, IncomingPayload) override {}
  void OnClosed(Connection&, absl::Status) override { closed = true; }
};

TEST(UcxListener, SpreadsConnectionsOverOwnersOnTheirThreads) {
  constexpr int kClients = 12;
  auto acceptor = NewTransport();
  std::deque<Echo> echoes;
  Mutex mutex;  // guards echoes: owners accept concurrently
  std::vector<Transport*> served;
  {
    Runner first;
    Runner second;
    Runner third;
    auto listener = acceptor->Listen(
        {"127.0.0.1", 0}, {&first.transport(), &second.transport(), &third.transport()},
        [&](Transport& owner, std::unique_ptr<Connection> connection) -> ConnectionHandler* {
          MutexLock lock(mutex);
          Echo& echo = echoes.emplace_back();
          echo.owner = &owner;
          echo.connection = std::move(connection);
          echo.on_owner = owner.executor().IsCurrent();
          served.push_back(&owner);
          return &echo;
        });
    ASSERT_TRUE(listener.ok());
    auto client = NewTransport();
    std::deque<Recorder> recorders(kClients);
    for (Recorder& recorder : recorders) {
      recorder.connection = client->Connect((*listener)->address(), recorder);
    }
    const auto all = [&](const std::function<bool(Recorder&)>& test) {
      return Drive({acceptor.get(), client.get()},
                   [&] { return std::all_of(recorders.begin(), recorders.end(), test); });
    };
    ASSERT_TRUE(all([](Recorder& r) { return r.connected; }));
    for (Recorder& recorder : recorders) {
      ASSERT_TRUE(recorder.connection->SendMessage(AsBytes("ping"), AsBytes("body")).ok());
    }
    ASSERT_TRUE(all([](Recorder& r) { return r.messages == 1; }));
    for (Recorder& recorder : recorders) {
      recorder.connection->Close(CloseMode::kFlush);
    }
    ASSERT_TRUE(all([](Recorder& r) { return r.closed.has_value(); }));
    ASSERT_TRUE(Drive({acceptor.get()}, [&] {
      MutexLock lock(mutex);
      return std::all_of(echoes.begin(), echoes.end(), [](Echo& e) { return e.closed.load(); });
    }));
    for (Transport* owner : {&first.transport(), &second.transport(), &third.transport()}) {
      EXPECT_EQ(std::count(served.begin(), served.end(), owner), kClients / 3);
    }
    listener->reset();
  }
  for (Echo& echo : echoes) {
    EXPECT_TRUE(echo.on_owner);
    echo.connection.reset();
  }
}

TEST(UcxListener, DestroyedListenerRejectsWhatWaits) {
  auto acceptor = NewTransport();
  auto owner = NewTransport();  // never progresses, so requests wait
  auto client = NewTransport();
  auto listener = acceptor->Listen({"127.0.0.1", 0}, {owner.get()}, Refuse());
  ASSERT_TRUE(listener.ok());
  std::deque<Recorder> recorders(3);
  for (Recorder& recorder : recorders) {
    recorder.connection = client->Connect((*listener)->address(), recorder);
  }
  // Until the requests have arrived: then the acceptor has nothing more to do.
  size_t waiting = 0;
  ASSERT_TRUE(Drive({acceptor.get(), client.get()}, [&] {
    waiting = static_cast<UcxListener&>(**listener).waiting();
    return waiting == recorders.size();
  }));
  listener->reset();
  ASSERT_TRUE(Drive({acceptor.get(), client.get()}, [&] {
    return std::all_of(recorders.begin(), recorders.end(),
                       [](Recorder& r) { return r.closed.has_value(); });
  }));
  // The tasks of the rejected requests find nothing to do.
  while (owner->Poll(Duration::zero())) {
  }
}

}  // namespace
}  // namespace tokura::net
