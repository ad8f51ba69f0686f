// The UCX transport against a peer in another process that dies, stops or floods. The peer is this
// program again, started anew because UCX does not survive a fork.

#include <cstdlib>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ucx_test_util.h"

extern char** environ;

namespace tokura::net {
namespace {

constexpr char kChildVariable[] = "TOKURA_TEST_UCX_CHILD_FD";
constexpr size_t kPayloadBytes = 8 << 20;

// Receives every payload into one buffer, slowly enough for tests to come in between: it answers
// each message with "ok" and offers a payload for each message "offer".
struct ChildHandler final : ConnectionHandler {
  explicit ChildHandler(Transport& transport) : buffer(transport, kPayloadBytes) {}
  void OnConnected(Connection&) override {}
  void OnMessage(Connection& from, std::span<const std::byte> header,
                 std::span<const std::byte>) override {
    if (AsText(header) == "offer") {
      const RegisteredSpan piece = buffer.span();
      from.SendPayload({}, {&piece, 1}, [](absl::Status) {});
    }
    (void)from.SendMessage(AsBytes("ok"), {});
  }
  void OnPayload(Connection&, std::span<const std::byte>, IncomingPayload payload) override {
    payload.Receive(buffer.span(), [](absl::Status) {});
  }
  void OnClosed(Connection&, absl::Status) override {}
  Buffer buffer;
  // All there ever were: a new one may come before the end of the last one has been noticed.
  std::vector<std::unique_ptr<Connection>> connections;
};

// Not a test: what the child runs, until it is killed or its parent has gone.
TEST(UcxChild, DISABLED_Serve) {
  const char* fd_text = std::getenv(kChildVariable);
  ASSERT_NE(fd_text, nullptr);
  const int fd = std::atoi(fd_text);
  auto transport = NewTransport();
  ChildHandler handler(*transport);
  auto listener =
      transport->Listen({"127.0.0.1", 0}, {}, [&](Transport&, std::unique_ptr<Connection> c) {
        handler.connections.push_back(std::move(c));
        return &handler;
      });
  ASSERT_TRUE(listener.ok());
  const uint16_t port = (*listener)->address().port;
  ASSERT_EQ(write(fd, &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  const pid_t parent = getppid();
  while (getppid() == parent) {
    transport->Poll(std::chrono::milliseconds(100));
  }
  std::_Exit(0);
}

class Child {
 public:
  Child() {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    const std::string variable = absl::StrCat(kChildVariable, "=", fds[1]);
    std::vector<char*> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      environment.push_back(*entry);
    }
    environment.push_back(const_cast<char*>(variable.c_str()));
    environment.push_back(nullptr);
    const char* arguments[] = {"child", "--gtest_filter=UcxChild.DISABLED_Serve",
                               "--gtest_also_run_disabled_tests", nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, const_cast<char**>(arguments),
                          environment.data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    uint16_t port = 0;
    EXPECT_EQ(read(fds[0], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
    close(fds[0]);
    address_ = {"127.0.0.1", port};
  }
  ~Child() {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) { kill(pid_, signal); }
  // Returns when it has stopped.
  void Stop() {
    Signal(SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  const Address& address() const { return address_; }

 private:
  pid_t pid_ = 0;
  Address address_;
};

// A client with payloads in both directions under way.
class UcxProcess : public testing::Test {
 protected:
  static constexpr int kInFlight = 12;

  void StartTraffic() {
    recorder.on_payload = [this](std::span<const std::byte>, IncomingPayload payload) {
      ++receives;
      payload.Receive(in.span(), [this](absl::Status status) { Count(std::move(status)); });
    };
    recorder.on_message = [](Connection&, std::string, std::string) {};
    recorder.connection = transport->Connect(child.address(), recorder);
    ASSERT_TRUE(Drive({transport.get()}, [this] { return recorder.connected; }));
    for (int i = 0; i < kInFlight; ++i) {
      ASSERT_TRUE(recorder.connection->SendMessage(AsBytes("offer"), {}).ok());
      Send();
    }
    ASSERT_TRUE(Drive({transport.get()}, [this] { return receives > 0; }));
  }
  void Send() {
    const RegisteredSpan piece = out.span();
    ++sends;
    recorder.connection->SendPayload({}, {&piece, 1},
                                     [this](absl::Status status) { Count(std::move(status)); });
  }
  void Count(absl::Status status) {
    EXPECT_FALSE(recorder.closed) << "a Done after OnClosed";
    failed += status.ok() ? 0 : 1;
    ++dones;
  }
  bool Closed() {
    return Drive({transport.get()}, [this] { return recorder.closed.has_value(); });
  }

  Child child;
  std::unique_ptr<UcxTransport> transport = NewTransport();
  Buffer out{*transport, kPayloadBytes};
  Buffer in{*transport, kPayloadBytes};
  Recorder recorder;
  int sends = 0;
  int receives = 0;
  int dones = 0;
  int failed = 0;
};

TEST_F(UcxProcess, KilledPeerEndsEverythingWithUnavailable) {
  StartTraffic();
  child.Signal(SIGKILL);
  ASSERT_TRUE(Closed());
  EXPECT_TRUE(absl::IsUnavailable(*recorder.closed)) << *recorder.closed;
  EXPECT_EQ(dones, sends + receives);
}

TEST_F(UcxProcess, KilledIdlePeerIsNoticed) {
  recorder.connection = transport->Connect(child.address(), recorder);
  ASSERT_TRUE(Drive({transport.get()}, [this] { return recorder.connected; }));
  child.Signal(SIGKILL);
  ASSERT_TRUE(Closed());
  EXPECT_TRUE(absl::IsUnavailable(*recorder.closed)) << *recorder.closed;
}

TEST_F(UcxProcess, AbortEndsEverythingThoughThePeerHasStopped) {
  StartTraffic();
  child.Stop();
  Send();  // one at least that cannot be over
  recorder.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(Closed());
  EXPECT_TRUE(absl::IsCancelled(*recorder.closed)) << *recorder.closed;
  EXPECT_EQ(dones, sends + receives);
  EXPECT_GT(failed, 0);
  // Nothing reaches the buffer afterwards, even when the peer goes on.
  Fill(in.bytes(), 99);
  const std::vector<std::byte> before = in.bytes();
  child.Signal(SIGCONT);
  Recorder second;
  second.connection = transport->Connect(child.address(), second);
  ASSERT_TRUE(Drive({transport.get()}, [&] { return second.connected || second.closed; }));
  ASSERT_FALSE(second.closed) << *second.closed;
  second.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(Drive({transport.get()}, [&] { return second.closed.has_value(); }));
  EXPECT_TRUE(before == in.bytes());
}

TEST_F(UcxProcess, FlushToAStoppedPeerEndsAtTheTimeout) {
  StartTraffic();
  child.Stop();
  Send();
  recorder.connection->Close(CloseMode::kFlush);
  ASSERT_TRUE(Closed());
  EXPECT_TRUE(absl::IsCancelled(*recorder.closed)) << *recorder.closed;
  EXPECT_EQ(dones, sends + receives);
}

TEST_F(UcxProcess, ConnectingToAStoppedPeerCanBeAborted) {
  child.Stop();
  recorder.connection = transport->Connect(child.address(), recorder);
  // Some progress, so that the connection is under way in the kernel.
  for (int i = 0; i < 100; ++i) {
    transport->Poll(Duration::zero());
  }
  EXPECT_FALSE(recorder.connected || recorder.closed);
  recorder.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(Closed());
  EXPECT_TRUE(absl::IsCancelled(*recorder.closed)) << *recorder.closed;
}

}  // namespace
}  // namespace tokura::net
