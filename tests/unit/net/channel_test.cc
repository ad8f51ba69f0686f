// Client and server channels over the simulated network: versions, deadlines, heartbeats, refusals.

#include "common/net/channel.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"

namespace tokura::net {
namespace {

using sim::SimHost;
using sim::SimNetwork;
using sim::SimScheduler;
using sim::SimTransport;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFormat[] = "0.7";
constexpr uint64_t kIncarnation = 1000;
constexpr size_t kPayloadBytes = 5000;

// Records what a request got.
class RecordingCall final : public Call {
 public:
  explicit RecordingCall(std::vector<std::string>* order, std::string name)
      : order_(order), name_(std::move(name)) {}
  void OnPayload(const FrameHeader& frame, IncomingPayload payload) override {
    EXPECT_EQ(replies, 0) << "a payload after the reply";
    indices.push_back(frame.index);
    payloads.push_back(std::move(payload));
  }
  void OnReply(absl::Status got, std::span<const std::byte> bytes) override {
    EXPECT_FALSE(*sending) << "inline";
    ++replies;
    status = std::move(got);
    body.assign(bytes.begin(), bytes.end());
    order_->push_back(name_);
    if (on_reply) {
      on_reply();
    }
  }

  int replies = 0;
  absl::Status status;
  std::vector<std::byte> body;
  std::vector<uint32_t> indices;
  std::vector<IncomingPayload> payloads;
  std::function<void()> on_reply;
  const bool* sending = nullptr;

 private:
  std::vector<std::string>* order_;
  std::string name_;
};

class Client final : public ClientChannelOwner {
 public:
  absl::Status OnWelcome(ClientChannel& channel, const proto::Welcome& welcome) override {
    ++welcomes;
    EXPECT_EQ(&channel, this->channel.get());
    EXPECT_EQ(welcome.incarnation(), channel.welcome().incarnation());
    return welcome_verdict;
  }
  void OnGoodbye(ClientChannel&) override { ++goodbyes; }
  void OnDown(ClientChannel&, absl::Status why) override {
    ++downs;
    down = std::move(why);
    order.push_back("down");
  }

  std::shared_ptr<RecordingCall> Send(Op op, Duration timeout, uint64_t* id = nullptr,
                                      std::string name = "call") {
    auto call = std::make_shared<RecordingCall>(&order, std::move(name));
    call->sending = &sending;
    loop->Enter([&] {
      sending = true;
      const TimePoint deadline = timeout == Duration::max() ? kNever : loop->Now() + timeout;
      const uint64_t got = channel->Send(op, proto::StatRequest(), deadline, call);
      EXPECT_NE(got, 0u);
      if (id != nullptr) {
        *id = got;
      }
      sending = false;
    });
    return call;
  }

  sim::SimLoop* loop = nullptr;
  std::unique_ptr<ClientChannel> channel;
  absl::Status welcome_verdict;
  int welcomes = 0, goodbyes = 0, downs = 0;
  absl::Status down;
  bool sending = false;
  std::vector<std::string> order;  // of replies and the end
};

class Server final : public ServerChannelOwner {
 public:
  absl::Status OnHello(ServerChannel&, const proto::Hello&, proto::Welcome* welcome) override {
    welcome->set_admin("10.0.0.1:9");
    return hello_verdict;
  }
  void OnRequest(ServerChannel& channel, const FrameHeader& frame,
                 std::span<const std::byte> body) override {
    requests.push_back(frame);
    if (frame.op == Op::kCancel) {
      proto::CancelRequest cancel;
      EXPECT_TRUE(cancel.ParseFromArray(body.data(), static_cast<int>(body.size())));
      cancelled.push_back(cancel.request_id());
    } else if (answer) {
      channel.Reply(frame, answer_status, &answer_body);
    }
  }
  void OnPayload(ServerChannel&, const FrameHeader& frame, IncomingPayload payload) override {
    EXPECT_EQ(frame.payload_bytes, payload.size());
    payload_frames.push_back(frame);
    payloads.push_back(std::move(payload));
  }
  void OnClosed(ServerChannel&, absl::Status why) override {
    ++closes;
    closed = std::move(why);
  }

  std::vector<std::unique_ptr<ServerChannel>> channels;
  absl::Status hello_verdict;
  bool answer = true;
  absl::Status answer_status;
  proto::StatReply answer_body;
  std::vector<FrameHeader> requests;
  std::vector<uint64_t> cancelled;
  std::vector<FrameHeader> payload_frames;
  std::vector<IncomingPayload> payloads;
  int closes = 0;
  absl::Status closed;
};

// A peer that speaks bytes, for frames that no channel would send.
class RawPeer final : public ConnectionHandler {
 public:
  void OnConnected(Connection&) override { connected = true; }
  void OnMessage(Connection&, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    const auto frame = ParseFrame(header, body);
    ASSERT_TRUE(frame.ok()) << frame.status();
    frames.push_back(*frame);
    bodies.emplace_back(reinterpret_cast<const char*>(body.data()), body.size());
  }
  void OnPayload(Connection&, std::span<const std::byte>, IncomingPayload) override {}
  void OnClosed(Connection&, absl::Status) override { closed = true; }

  void Send(FrameHeader frame, const std::string& body) {
    std::byte header[kFrameBytes];
    const auto bytes = std::as_bytes(std::span<const char>(body));
    SerializeFrame(frame, bytes, header);
    EXPECT_TRUE(connection->SendMessage(header, bytes).ok());
  }

  std::unique_ptr<Connection> connection;
  bool connected = false;
  bool closed = false;
  std::vector<FrameHeader> frames;
  std::vector<std::string> bodies;
};

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    SetLogLevel(LogLevel::kError);  // Refusals warn; those tests count them.
    SetFormatVersion(kFormat);
    server_options_.node = "node-a";
    server_options_.incarnation = kIncarnation;
    server_options_.format_version = kFormat;
    client_.loop = &client_host_.loop();
    memory_.resize(4 * kPayloadBytes);
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<std::byte>(i * 7);
    }
    region_ = std::move(client_transport_.Register(memory_)).value();
  }

  ~ChannelTest() override {
    // Whatever the test left open ends here, and with exactly one last word each.
    Client([&](ClientChannel& channel) { channel.Close(CloseMode::kAbort); });
    OnClient([&] {
      if (raw_.connection && !raw_.closed) {
        raw_.connection->Close(CloseMode::kAbort);
      }
    });
    OnServer([&] {
      for (const auto& channel : server_.channels) {
        channel->Close(CloseMode::kAbort);
      }
      if (raw_server_.connection && !raw_server_.closed) {
        raw_server_.connection->Close(CloseMode::kAbort);
      }
    });
    scheduler_.RunFor(seconds(20));
    EXPECT_EQ(client_.downs, client_.channel ? 1 : 0);
    EXPECT_EQ(static_cast<size_t>(server_.closes), server_.channels.size());
    server_.payloads.clear();
    server_.channels.clear();
    client_.channel.reset();
  }

  void OnClient(const std::function<void()>& task) { client_host_.loop().Enter(task); }
  void OnServer(const std::function<void()>& task) { server_host_.loop().Enter(task); }
  void Client(const std::function<void(ClientChannel&)>& task) {
    if (client_.channel) {
      OnClient([&] { task(*client_.channel); });
    }
  }

  void Listen() {
    OnServer([&] {
      auto listener = server_transport_.Listen(
          {"10.0.0.1", 7000}, {}, [this](Transport& owner, std::unique_ptr<Connection> connection) {
            server_.channels.push_back(
                ServerChannel::Accept(owner, std::move(connection), server_options_, server_));
            return &server_.channels.back()->handler();
          });
      listener_ = std::move(listener).value();
    });
  }

  // A listener whose peer is the test itself.
  void ListenRaw() {
    OnServer([&] {
      auto listener = server_transport_.Listen(
          {"10.0.0.1", 7000}, {}, [this](Transport&, std::unique_ptr<Connection> connection) {
            raw_server_.connection = std::move(connection);
            return &raw_server_;
          });
      listener_ = std::move(listener).value();
    });
  }

  // The raw server welcomes the client as incarnation 5 of a node with blocks of `format`.
  void WelcomeRaw(const std::string& format) {
    proto::Welcome welcome;
    welcome.set_node("node-a");
    welcome.set_incarnation(5);
    welcome.set_protocol_version(kProtocolVersion);
    welcome.set_transport_version("1.22.0");
    welcome.set_format_version(format);
    FrameHeader frame = Frame(Op::kWelcome, 0);
    frame.incarnation = 5;
    OnServer([&] { raw_server_.Send(frame, welcome.SerializeAsString()); });
    scheduler_.RunFor(milliseconds(50));
  }

  proto::Hello Hello() {
    const std::byte instance[16] = {};
    return MakeHello(client_transport_, "client", "tester", instance);
  }

  void Start() { Start(Hello()); }
  void Start(proto::Hello hello) {
    OnClient([&] {
      client_.channel = ClientChannel::Start(client_transport_, {"10.0.0.1", 7000},
                                             {std::move(hello), timeouts_}, client_);
    });
    scheduler_.RunFor(milliseconds(50));
  }

  void ConnectRaw() {
    OnClient([&] { raw_.connection = client_transport_.Connect({"10.0.0.1", 7000}, raw_); });
    scheduler_.RunFor(milliseconds(10));
    ASSERT_TRUE(raw_.connected);
  }

  void Connect() {
    Listen();
    Start();
    ASSERT_TRUE(client_.channel->ready());
  }

  // Shake hands by hand, then send one frame; returns why the server closed.
  void RawHandshake() {
    Listen();
    ConnectRaw();
    OnClient([&] { raw_.Send(Frame(Op::kHello, 0), Hello().SerializeAsString()); });
    scheduler_.RunFor(milliseconds(10));
    ASSERT_EQ(raw_.frames.size(), 1u);
    ASSERT_EQ(raw_.frames[0].op, Op::kWelcome);
  }

  static FrameHeader Frame(Op op, uint64_t request_id, uint16_t flags = 0) {
    FrameHeader frame;
    frame.op = op;
    frame.request_id = request_id;
    frame.flags = flags;
    return frame;
  }

  // Send `frame` to the server, raw, and expect it to end the connection with a reason that says
  // `reason`.
  void ExpectServerCloses(FrameHeader frame, const std::string& body, const std::string& reason) {
    const uint64_t warnings = LogCounts().warnings;
    OnClient([&] { raw_.Send(frame, body); });
    scheduler_.RunFor(milliseconds(100));
    EXPECT_EQ(server_.closes, 1);
    EXPECT_TRUE(raw_.closed);
    EXPECT_THAT(std::string(server_.closed.message()), HasSubstr(reason));
    EXPECT_EQ(LogCounts().warnings, warnings + 1) << "one line says why";
  }

  RegisteredSpan Span(size_t index) {
    return {region_.get(), memory_.data() + index * kPayloadBytes, kPayloadBytes};
  }

  SimScheduler scheduler_{1};
  SimNetwork network_{scheduler_, {}};
  SimHost server_host_{scheduler_, {.name = "server", .ip = "10.0.0.1"}};
  SimHost client_host_{scheduler_, {.name = "client", .ip = "10.0.0.2"}};
  SimTransport server_transport_{network_, server_host_.loop()};
  SimTransport client_transport_{network_, client_host_.loop()};
  std::vector<std::byte> memory_;
  std::unique_ptr<MemoryRegion> region_;
  ServerChannel::Options server_options_;
  ChannelTimeouts timeouts_;
  Server server_;
  net::Client client_;
  RawPeer raw_;
  RawPeer raw_server_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ChannelTest, WelcomeCarriesTheNodesIdentity) {
  server_options_.id = 77;
  Connect();
  const proto::Welcome& welcome = client_.channel->welcome();
  EXPECT_EQ(welcome.node(), "node-a");
  EXPECT_EQ(welcome.incarnation(), kIncarnation);
  EXPECT_EQ(welcome.format_version(), kFormat);
  EXPECT_EQ(welcome.transport_version(), "1.22.0");
  EXPECT_EQ(welcome.admin(), "10.0.0.1:9");
  EXPECT_EQ(welcome.connection(), 77u);
  EXPECT_EQ(server_.channels[0]->id(), 77u);
  EXPECT_EQ(server_.channels[0]->hello().name(), "tester");
}

TEST_F(ChannelTest, ARequestGetsItsReply) {
  server_.answer_body.set_blocks(42);
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(1));
  EXPECT_EQ(call->replies, 0);
  scheduler_.RunFor(milliseconds(10));
  ASSERT_EQ(call->replies, 1);
  EXPECT_TRUE(call->status.ok());
  proto::StatReply reply;
  ASSERT_TRUE(reply.ParseFromArray(call->body.data(), static_cast<int>(call->body.size())));
  EXPECT_EQ(reply.blocks(), 42u);
  // The frame told the node how long the client would wait.
  EXPECT_GT(server_.requests[0].deadline_us, 900'000u);
  EXPECT_LE(server_.requests[0].deadline_us, 1'000'000u);
}

TEST_F(ChannelTest, AFailedReplyCarriesCodeAndMessage) {
  server_.answer_status = absl::NotFoundError("no such block, süß");
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(1));
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(call->status, server_.answer_status);
  EXPECT_TRUE(call->body.empty());
}

TEST_F(ChannelTest, ALongReasonIsCutBetweenCharacters) {
  std::string reason(4095, 'a');
  reason += "üüü";
  server_.answer_status = absl::NotFoundError(reason);
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(1));
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(call->status.message(), std::string(4095, 'a'));
}

TEST_F(ChannelTest, TheDeadlineAnswersWhenNobodyDoes) {
  server_.answer = false;
  Connect();
  const auto call = client_.Send(Op::kStat, milliseconds(100));
  scheduler_.RunFor(milliseconds(99));
  EXPECT_EQ(call->replies, 0);
  scheduler_.RunFor(milliseconds(2));
  EXPECT_EQ(call->replies, 1);
  EXPECT_EQ(call->status.code(), absl::StatusCode::kDeadlineExceeded);
  // The node's answer comes too late and changes nothing.
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::OkStatus()); });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(call->replies, 1);
  EXPECT_TRUE(client_.channel->ready());
}

TEST_F(ChannelTest, ARequestThatCannotBeSentIsAnsweredNotInline) {
  Listen();
  OnClient([&] {
    client_.channel =
        ClientChannel::Start(client_transport_, {"10.0.0.1", 7000}, {Hello(), timeouts_}, client_);
  });
  const auto early = client_.Send(Op::kStat, seconds(1));
  EXPECT_EQ(early->replies, 0);
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(early->status.code(), absl::StatusCode::kUnavailable);
  const auto expired = client_.Send(Op::kStat, milliseconds(0));
  scheduler_.RunFor(milliseconds(5));
  EXPECT_EQ(expired->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(server_.requests.empty());
}

TEST_F(ChannelTest, LossOfTheConnectionAnswersEverythingOldestFirstThenReportsDown) {
  server_.answer = false;
  Connect();
  const auto one = client_.Send(Op::kStat, seconds(9), nullptr, "1");
  const auto two = client_.Send(Op::kStat, Duration::max(), nullptr, "2");
  // A caller that tries again from its answer gets one more answer before the end.
  std::shared_ptr<RecordingCall> again;
  one->on_reply = [&] {
    again = std::make_shared<RecordingCall>(&client_.order, "again");
    again->sending = &client_.sending;
    client_.channel->Send(Op::kStat, proto::StatRequest(), kNever, again);
  };
  scheduler_.RunFor(milliseconds(5));
  network_.Reset("10.0.0.2", "10.0.0.1");
  scheduler_.RunFor(milliseconds(100));
  EXPECT_THAT(client_.order, ElementsAre("1", "2", "again", "down"));
  EXPECT_EQ(two->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client_.down.code(), absl::StatusCode::kUnavailable);
  one->on_reply = nullptr;
}

TEST_F(ChannelTest, CancelStopsTheReplyAndTellsTheNode) {
  server_.answer = false;
  Connect();
  uint64_t id = 0;
  const auto call = client_.Send(Op::kGet, milliseconds(100), &id);
  scheduler_.RunFor(milliseconds(5));
  Client([&](ClientChannel& channel) {
    channel.Cancel(id);
    channel.Cancel(id);
    channel.Cancel(9999);
  });
  scheduler_.RunFor(milliseconds(5));
  EXPECT_THAT(server_.cancelled, ElementsAre(id));
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::OkStatus()); });
  scheduler_.RunFor(milliseconds(500));
  EXPECT_EQ(call->replies, 0);
  EXPECT_EQ(call.use_count(), 1) << "the channel lets go of it";
}

TEST_F(ChannelTest, PayloadsReachTheirRequestAndLateOnesAreRejected) {
  server_.answer = false;
  Connect();
  const auto call = client_.Send(Op::kGet, milliseconds(100));
  scheduler_.RunFor(milliseconds(5));
  std::vector<absl::StatusCode> dones;
  const auto done = [&](absl::Status status) { dones.push_back(status.code()); };
  const RegisteredSpan piece = Span(0);
  OnServer([&] {
    server_.channels[0]->SendPayload(server_.requests[0], 3, {.group = 1, .shard = 2}, {&piece, 1},
                                     done);
  });
  scheduler_.RunFor(milliseconds(5));
  ASSERT_THAT(call->indices, ElementsAre(3u));
  OnClient([&] {
    call->payloads[0].Receive(Span(1),
                              [](absl::Status status) { EXPECT_TRUE(status.ok()) << status; });
  });
  scheduler_.RunFor(milliseconds(20));
  EXPECT_THAT(dones, ElementsAre(absl::StatusCode::kOk));
  EXPECT_TRUE(std::equal(memory_.begin(), memory_.begin() + kPayloadBytes,
                         memory_.begin() + kPayloadBytes));
  scheduler_.RunFor(milliseconds(100));
  ASSERT_EQ(call->replies, 1);
  OnServer([&] {
    server_.channels[0]->SendPayload(server_.requests[0], 4, {}, {&piece, 1}, done);
  });
  scheduler_.RunFor(milliseconds(20));
  EXPECT_THAT(dones, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(call->indices.size(), 1u);
}

TEST_F(ChannelTest, ADroppedPayloadGivesTheSenderItsBufferBack) {
  server_.answer = false;
  Connect();
  const auto call = client_.Send(Op::kGet, seconds(5));
  scheduler_.RunFor(milliseconds(5));
  absl::Status got;
  const RegisteredSpan piece = Span(0);
  OnServer([&] {
    server_.channels[0]->SendPayload(server_.requests[0], 0, {}, {&piece, 1},
                                     [&](absl::Status status) { got = status; });
  });
  scheduler_.RunFor(milliseconds(5));
  ASSERT_EQ(call->payloads.size(), 1u);
  OnClient([&] { call->payloads.clear(); });
  scheduler_.RunFor(milliseconds(5));
  EXPECT_EQ(got.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ChannelTest, PutPayloadsReachTheOwnerUntilTheRequestIsAnswered) {
  server_.answer = false;
  Connect();
  uint64_t id = 0;
  const auto call = client_.Send(Op::kPut, seconds(1), &id);
  std::vector<absl::StatusCode> dones;
  const auto send = [&] {
    const RegisteredSpan pieces[] = {Span(0), Span(1)};
    Client([&](ClientChannel& channel) {
      channel.SendPayload(id, Op::kPut, 5, {.group = 2, .shard = 1}, pieces,
                          [&](absl::Status status) { dones.push_back(status.code()); });
    });
    scheduler_.RunFor(milliseconds(20));
  };
  send();
  ASSERT_EQ(server_.payload_frames.size(), 1u);
  const FrameHeader frame = server_.payload_frames[0];
  EXPECT_EQ(frame.request_id, id);
  EXPECT_EQ(frame.index, 5u);
  EXPECT_EQ(frame.group, 2u);
  EXPECT_EQ(frame.shard, 1u);
  EXPECT_EQ(frame.payload_bytes, 2 * kPayloadBytes);
  // Answered on the node's side, but the client does not know yet.
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::OkStatus()); });
  send();
  EXPECT_EQ(server_.payload_frames.size(), 1u) << "late payloads go no further";
  EXPECT_EQ(call->replies, 1);
  send();  // Of a request that the client knows to have ended: never sent.
  OnServer([&] { server_.payloads.clear(); });
  scheduler_.RunFor(milliseconds(20));
  EXPECT_THAT(dones, ::testing::UnorderedElementsAre(absl::StatusCode::kResourceExhausted,
                                                     absl::StatusCode::kResourceExhausted,
                                                     absl::StatusCode::kCancelled));
}

TEST_F(ChannelTest, TooManyRequestsAreRefusedOneByOne) {
  server_.answer = false;
  server_options_.requests_max = 2;
  Connect();
  const auto one = client_.Send(Op::kStat, seconds(5));
  const auto two = client_.Send(Op::kStat, seconds(5));
  const auto three = client_.Send(Op::kStat, seconds(5));
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(one->replies + two->replies, 0);
  EXPECT_EQ(three->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(server_.requests.size(), 2u);
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::OkStatus()); });
  const auto four = client_.Send(Op::kStat, seconds(5));
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(four->replies, 0) << "an answer made room";
  EXPECT_EQ(server_.requests.size(), 3u);
}

TEST_F(ChannelTest, ASecondAnswerIsIgnored) {
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(5));
  scheduler_.RunFor(milliseconds(10));
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::InternalError("again")); });
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(call->replies, 1);
  EXPECT_TRUE(call->status.ok());
}

TEST_F(ChannelTest, AnAnswerTooLargeForAMessageBecomesAnError) {
  server_.answer_body.set_node(std::string(kMessageBytesMax, 'x'));
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(5));
  scheduler_.RunFor(milliseconds(10));
  EXPECT_EQ(call->status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(client_.channel->ready());
}

TEST_F(ChannelTest, GoodbyeStopsNewUseAndLetsAnswersFinish) {
  server_.answer = false;
  Connect();
  const auto call = client_.Send(Op::kStat, seconds(5));
  scheduler_.RunFor(milliseconds(5));
  OnServer([&] {
    server_.channels[0]->SendGoodbye("upgrade");
    server_.channels[0]->SendGoodbye("upgrade");
  });
  scheduler_.RunFor(milliseconds(5));
  EXPECT_EQ(client_.goodbyes, 1);
  EXPECT_FALSE(client_.channel->ready());
  OnServer([&] { server_.channels[0]->Reply(server_.requests[0], absl::OkStatus()); });
  OnServer([&] { server_.channels[0]->Close(CloseMode::kFlush); });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_TRUE(call->status.ok());
  EXPECT_THAT(client_.order, ElementsAre("call", "down"));
}

// ---- silence ----

TEST_F(ChannelTest, HeartbeatsKeepAnIdleChannelAlive) {
  Connect();
  scheduler_.RunFor(seconds(30));
  EXPECT_TRUE(client_.channel->ready());
  EXPECT_GT(client_.channel->last_heard(), client_host_.Now() - milliseconds(400));
}

TEST_F(ChannelTest, ASilentPeerIsDeadAfterAWhileOnBothSides) {
  server_.answer = false;
  Connect();
  const auto call = client_.Send(Op::kStat, Duration::max());
  network_.Cut("10.0.0.1", "10.0.0.2");
  network_.Cut("10.0.0.2", "10.0.0.1");
  scheduler_.RunFor(milliseconds(800));
  EXPECT_EQ(client_.downs + server_.closes, 0);
  scheduler_.RunFor(milliseconds(500));
  EXPECT_EQ(client_.downs, 1);
  EXPECT_EQ(server_.closes, 1);
  EXPECT_EQ(call->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client_.down.message()), HasSubstr("nothing heard"));
}

TEST_F(ChannelTest, AOneWayCutIsFoundByTheSideThatHearsNothing) {
  Connect();
  network_.Cut("10.0.0.1", "10.0.0.2");
  scheduler_.RunFor(milliseconds(1300));
  EXPECT_EQ(client_.downs, 1);
  scheduler_.RunFor(milliseconds(1300));
  EXPECT_EQ(server_.closes, 1) << "the client's close reached it";
}

TEST_F(ChannelTest, LostPingsAreRepeatedBeforeThePeerCountsAsDead) {
  Connect();
  network_.link("10.0.0.1", "10.0.0.2").drop_permille = 300;
  network_.link("10.0.0.2", "10.0.0.1").drop_permille = 300;
  scheduler_.RunFor(seconds(3));
  EXPECT_TRUE(client_.channel->ready());
}

TEST_F(ChannelTest, AStoppedNodeIsNoticedAndAStoppedClientToo) {
  Connect();
  server_host_.Pause();
  scheduler_.RunFor(milliseconds(1300));
  EXPECT_EQ(client_.downs, 1);
  server_host_.Continue();
  scheduler_.RunFor(milliseconds(100));
  EXPECT_EQ(server_.closes, 1);
}

TEST_F(ChannelTest, NoHelloInTimeClosesOnTheServer) {
  server_options_.timeouts.hello = milliseconds(200);
  Listen();
  ConnectRaw();
  scheduler_.RunFor(milliseconds(150));
  EXPECT_EQ(server_.closes, 0);
  scheduler_.RunFor(milliseconds(100));
  EXPECT_EQ(server_.closes, 1);
  EXPECT_THAT(std::string(server_.closed.message()), HasSubstr("no hello"));
}

TEST_F(ChannelTest, NoWelcomeInTimeClosesOnTheClient) {
  ListenRaw();
  timeouts_.hello = milliseconds(200);
  Start();
  scheduler_.RunFor(milliseconds(400));
  EXPECT_EQ(client_.downs, 1);
  EXPECT_EQ(client_.down.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ChannelTest, NobodyListeningIsUnavailable) {
  Start();
  scheduler_.RunFor(seconds(2));
  EXPECT_EQ(client_.downs, 1);
  EXPECT_EQ(client_.down.code(), absl::StatusCode::kUnavailable);
}

// ---- versions and identity ----

struct Skew {
  const char* name;
  std::function<void(proto::Hello*)> change;
  std::vector<std::string> words;  // that the client's reason contains
};

TEST_F(ChannelTest, OtherVersionsAreRefusedWithBothSidesNamed) {
  Listen();
  const Skew skews[] = {
      {"protocol",
       [](proto::Hello* h) { h->set_protocol_version(9); },
       {"protocol 9", "protocol 3"}},
      {"transport",
       [](proto::Hello* h) { h->set_transport_version("1.13.1"); },
       {"1.13.1", "1.22.0"}},
      {"format", [](proto::Hello* h) { h->set_format_version("0.9"); }, {"0.9", kFormat}},
      {"kind", [](proto::Hello* h) { h->set_transport("pigeon"); }, {"pigeon", "sim"}},
      {"fenced", [](proto::Hello* h) { h->set_fenced_below(kIncarnation + 1); }, {"1000", "1001"}},
      {"name", [](proto::Hello* h) { h->set_expected_node("node-b"); }, {"node-a", "node-b"}},
  };
  int refused = 0;
  for (const Skew& skew : skews) {
    SCOPED_TRACE(skew.name);
    const uint64_t warnings = LogCounts().warnings;
    proto::Hello hello = Hello();
    skew.change(&hello);
    client_.downs = 0;
    Start(hello);
    ASSERT_EQ(client_.downs, 1);
    ASSERT_EQ(server_.closes, ++refused);
    EXPECT_EQ(client_.down.code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string& word : skew.words) {
      EXPECT_THAT(std::string(client_.down.message()), HasSubstr(word));
    }
    EXPECT_THAT(std::string(client_.down.message()),
                AllOf(HasSubstr("node-a"), HasSubstr("10.0.0.1:7000"), HasSubstr("/version")));
    EXPECT_EQ(client_.welcomes, 0);
    EXPECT_EQ(LogCounts().warnings, warnings + 1) << "the node logs it";
  }
}

TEST_F(ChannelTest, AnotherPatchLevelOfTheTransportIsWelcome) {
  Listen();
  proto::Hello hello = Hello();
  hello.set_transport_version("1.22.5");
  Start(hello);
  EXPECT_TRUE(client_.channel->ready());
}

TEST_F(ChannelTest, TheClientChecksTheVersionsOfAWelcomeToo) {
  ListenRaw();
  Start();
  WelcomeRaw("0.8");
  ASSERT_EQ(client_.downs, 1);
  EXPECT_EQ(client_.welcomes, 0);
  EXPECT_EQ(client_.down.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(client_.down.message()), AllOf(HasSubstr("0.8"), HasSubstr(kFormat)));
}

TEST_F(ChannelTest, AFrameOfAnotherProtocolVersionIsRefusedReadably) {
  Listen();
  ConnectRaw();
  FrameHeader frame = Frame(Op::kHello, 0);
  frame.version = 4;
  OnClient([&] { raw_.Send(frame, "whatever version 4 says"); });
  scheduler_.RunFor(milliseconds(50));
  ASSERT_EQ(raw_.frames.size(), 1u);
  EXPECT_EQ(raw_.frames[0].op, Op::kRefused);
  proto::Refused refused;
  ASSERT_TRUE(refused.ParseFromString(raw_.bodies[0]));
  EXPECT_THAT(refused.reason(), AllOf(HasSubstr("version 4"), HasSubstr("3")));
  EXPECT_EQ(server_.closes, 1);
}

TEST_F(ChannelTest, ARefusalByTheOwnerKeepsItsCode) {
  server_.hello_verdict = absl::UnauthenticatedError("who are you");
  Listen();
  Start();
  EXPECT_EQ(client_.down.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(client_.down.message()), HasSubstr("who are you"));
}

TEST_F(ChannelTest, TheOwnerMayTurnAWelcomeDown) {
  client_.welcome_verdict = absl::FailedPreconditionError("fenced here");
  Listen();
  Start();
  EXPECT_EQ(client_.downs, 1);
  EXPECT_EQ(client_.down, client_.welcome_verdict);
  EXPECT_EQ(server_.closes, 1);
}

TEST_F(ChannelTest, FramesOfAnotherIncarnationAreDropped) {
  ListenRaw();
  Start();
  WelcomeRaw(kFormat);
  ASSERT_TRUE(client_.channel->ready());
  uint64_t id = 0;
  const auto call = client_.Send(Op::kStat, milliseconds(200), &id);
  FrameHeader reply = Frame(Op::kStat, id, kFrameReply);
  reply.incarnation = 4;
  OnServer([&] { raw_server_.Send(reply, ""); });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(call->replies, 0);
  reply.incarnation = 5;
  OnServer([&] { raw_server_.Send(reply, ""); });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(call->replies, 1);
}

// ---- frames that break the protocol ----

TEST_F(ChannelTest, FramesBeforeHelloEndTheConnection) {
  Listen();
  ConnectRaw();
  ExpectServerCloses(Frame(Op::kStat, 1), "", "before HELLO");
}

TEST_F(ChannelTest, AHelloThatDoesNotParseEndsTheConnection) {
  Listen();
  ConnectRaw();
  ExpectServerCloses(Frame(Op::kHello, 0), "\xff\xff\xff", "does not parse");
}

TEST_F(ChannelTest, ASecondHelloEndsTheConnection) {
  RawHandshake();
  ExpectServerCloses(Frame(Op::kHello, 0), Hello().SerializeAsString(), "second HELLO");
}

TEST_F(ChannelTest, UnknownOpsEndTheConnection) {
  RawHandshake();
  ExpectServerCloses(Frame(static_cast<Op>(999), 1), "", "999");
}

TEST_F(ChannelTest, OpsOfTheOtherDirectionEndTheConnection) {
  RawHandshake();
  ExpectServerCloses(Frame(Op::kWelcome, 1), "", "welcome");
}

TEST_F(ChannelTest, RepliesToAServerEndTheConnection) {
  RawHandshake();
  ExpectServerCloses(Frame(Op::kStat, 1, kFrameReply), "", "flags 1");
}

TEST_F(ChannelTest, ARequestWithoutIdEndsTheConnection) {
  RawHandshake();
  ExpectServerCloses(Frame(Op::kStat, 0), "", "request 0");
}

TEST_F(ChannelTest, DuplicateRequestIdsEndTheConnection) {
  server_.answer = false;
  RawHandshake();
  OnClient([&] { raw_.Send(Frame(Op::kStat, 7), ""); });
  ExpectServerCloses(Frame(Op::kStat, 7), "", "id 7 used twice");
  EXPECT_EQ(server_.requests.size(), 1u);
}

TEST_F(ChannelTest, IdsOfAnsweredRequestsAreNotUsedAgain) {
  RawHandshake();
  OnClient([&] { raw_.Send(Frame(Op::kStat, 7), ""); });
  scheduler_.RunFor(milliseconds(10));
  ExpectServerCloses(Frame(Op::kStat, 7), "", "id 7 used twice");
}

TEST_F(ChannelTest, GarbageEndsTheConnectionAndNothingElse) {
  RawHandshake();
  OnClient([&] {
    const std::byte junk[kFrameBytes] = {std::byte{1}, std::byte{2}};
    EXPECT_TRUE(raw_.connection->SendMessage(junk, {}).ok());
  });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(server_.closes, 1);
  EXPECT_THAT(std::string(server_.closed.message()), HasSubstr("not a Tokura frame"));
  Start();
  EXPECT_TRUE(client_.channel->ready()) << "others are served";
}

TEST_F(ChannelTest, PayloadsThatLieAboutTheirSizeEndTheConnection) {
  RawHandshake();
  OnClient([&] {
    FrameHeader frame = Frame(Op::kPut, 1, kFramePayload);
    frame.payload_bytes = kPayloadBytes + 1;
    std::byte header[kFrameBytes];
    SerializeFrame(frame, {}, header);
    const RegisteredSpan piece = Span(0);
    raw_.connection->SendPayload(header, {&piece, 1}, [](absl::Status) {});
  });
  scheduler_.RunFor(milliseconds(100));
  EXPECT_EQ(server_.closes, 1);
  EXPECT_THAT(std::string(server_.closed.message()), HasSubstr("declares 5001"));
  EXPECT_TRUE(server_.payloads.empty());
}

TEST_F(ChannelTest, ANodeThatBreaksTheProtocolLosesTheClient) {
  ListenRaw();
  Start();
  OnServer([&] { raw_server_.Send(Frame(Op::kStat, 1, kFrameReply), ""); });
  scheduler_.RunFor(milliseconds(50));
  EXPECT_EQ(client_.downs, 1);
  EXPECT_THAT(std::string(client_.down.message()), HasSubstr("unexpected frame"));
}

TEST_F(ChannelTest, ANodeThatBreaksTheProtocolAgainAndAgainDoesNotFillTheLog) {
  constexpr int kRounds = 60;
  ListenRaw();
  SetLogLevel(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < kRounds; ++round) {
    client_.downs = 0;
    Start();
    OnServer([&] { raw_server_.Send(Frame(Op::kStat, 1, kFrameReply), ""); });
    scheduler_.RunFor(milliseconds(50));
    ASSERT_EQ(client_.downs, 1);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kError);
  int lines = 0;
  for (size_t at = 0; (at = log.find("node_broke_protocol", at)) != std::string::npos; ++at) {
    ++lines;
  }
  EXPECT_GT(lines, 0);
  EXPECT_LT(lines, kRounds / 2) << "ten at once, then one a second";
}

TEST_F(ChannelTest, AClientThatDoesNotTakeItsAnswersIsClosed) {
  server_.answer = false;
  server_.answer_body.set_node(std::string(900'000, 'x'));
  RawHandshake();
  for (uint64_t id = 1; id <= 8; ++id) {
    OnClient([&] { raw_.Send(Frame(Op::kStat, id), ""); });
  }
  scheduler_.RunFor(milliseconds(5));
  client_host_.Pause();
  OnServer([&] {
    for (const FrameHeader& request : server_.requests) {
      server_.channels[0]->Reply(request, absl::OkStatus(), &server_.answer_body);
    }
  });
  scheduler_.RunFor(milliseconds(100));
  EXPECT_EQ(server_.closes, 1);
  EXPECT_THAT(std::string(server_.closed.message()), HasSubstr("does not take its answers"));
  client_host_.Continue();
}

// Every single-bit corruption and truncation of a real conversation: the channel refuses or ends,
// and requests are answered by their deadline.
TEST_F(ChannelTest, FlippedBitsNeverHangOrCrash) {
  server_.answer_body.set_blocks(42);
  Listen();
  network_.link("10.0.0.1", "10.0.0.2").flip_permille = 100;
  network_.link("10.0.0.2", "10.0.0.1").flip_permille = 100;
  int ended = 0;
  for (int round = 0; round < 200; ++round) {
    client_.downs = 0;
    Start();
    std::vector<std::shared_ptr<RecordingCall>> calls;
    for (int i = 0; i < 5; ++i) {
      calls.push_back(client_.Send(Op::kStat, milliseconds(300)));
    }
    scheduler_.RunFor(milliseconds(400));
    for (const auto& call : calls) {
      ASSERT_EQ(call->replies, 1);
      proto::StatReply reply;
      if (call->status.ok()) {
        ASSERT_TRUE(reply.ParseFromArray(call->body.data(), static_cast<int>(call->body.size())));
        ASSERT_EQ(reply.blocks(), 42u);
      }
    }
    ended += client_.downs;
    Client([&](ClientChannel& channel) { channel.Close(CloseMode::kAbort); });
    scheduler_.RunFor(seconds(3));
    ASSERT_EQ(client_.downs, 1);
  }
  EXPECT_GT(ended, 20);
}

}  // namespace
}  // namespace tokura::net
