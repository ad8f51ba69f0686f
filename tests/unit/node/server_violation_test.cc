// Clients that follow no client library: frames by hand.

#include <string>
#include <vector>

#include "common/log.h"
#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A client that chooses its request ids itself and holds every payload.
class RawClient final : public net::ConnectionHandler {
 public:
  void OnConnected(net::Connection&) override { connected = true; }
  void OnMessage(net::Connection&, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    const auto frame = net::ParseFrame(header, body);
    ASSERT_TRUE(frame.ok()) << frame.status();
    replies += frame->flags == net::kFrameReply ? 1 : 0;
    welcomed = welcomed || frame->op == net::Op::kWelcome;
  }
  void OnPayload(net::Connection&, std::span<const std::byte>,
                 net::IncomingPayload payload) override {
    held.push_back(std::move(payload));
  }
  void OnClosed(net::Connection&, absl::Status) override { closed = true; }

  std::unique_ptr<net::Connection> connection;
  std::vector<net::IncomingPayload> held;
  bool connected = false;
  bool welcomed = false;
  bool closed = false;
  size_t replies = 0;
};

class ServerViolationTest : public ServerRequestTest {
 protected:
  ServerViolationTest() {
    StartNode(SmallOptions());
    good_ = &Connect();
  }
  ~ServerViolationTest() override {
    if (raw_.connection != nullptr && !raw_.closed) {
      host_->loop().Enter([&] { raw_.connection->Close(net::CloseMode::kAbort); });
      EXPECT_TRUE(RunUntil([&] { return raw_.closed; }));
    }
    // The node may not know it yet, and would write to a machine that is no more.
    EXPECT_TRUE(RunUntil([&] { return node_->accounting().connections <= 1; }));
    raw_.held.clear();
    raw_.connection.reset();
  }
  void ConnectRaw() {
    sim::SimHost::Options options;
    options.name = "raw";
    options.ip = "10.0.0.9";
    host_ = std::make_unique<sim::SimHost>(scheduler_, options);
    transport_ = std::make_unique<sim::SimTransport>(network_, host_->loop());
    host_->loop().Enter([&] { raw_.connection = transport_->Connect(address_, raw_); });
    ASSERT_TRUE(RunUntil([&] { return raw_.connected; }));
    const std::vector<std::byte> instance(16, std::byte{2});
    Send(net::Op::kHello, 0, net::MakeHello(*transport_, "client", "raw", instance));
    ASSERT_TRUE(RunUntil([&] { return raw_.welcomed; }));
  }
  void Send(net::Op op, uint64_t id, const google::protobuf::MessageLite& message) {
    const std::string body = message.SerializeAsString();
    const auto bytes = std::as_bytes(std::span<const char>(body));
    net::FrameHeader frame;
    frame.op = op;
    frame.request_id = id;
    frame.body_bytes = static_cast<uint32_t>(bytes.size());
    std::byte header[net::kFrameBytes];
    net::SerializeFrame(frame, bytes, header);
    host_->loop().Enter([&] { raw_.connection->SendMessage(header, bytes).IgnoreError(); });
  }
  // Ask, and wait for the answer.
  void Stat(uint64_t id) {
    const size_t before = raw_.replies;
    Send(net::Op::kStat, id, proto::StatRequest());
    ASSERT_TRUE(RunUntil([&] { return raw_.replies > before || raw_.closed; }));
  }
  // Run `act`, which makes the node warn; returns the lines.
  template <typename Act>
  std::string Warnings(const Act& act) {
    ::testing::internal::CaptureStderr();
    act();
    return ::testing::internal::GetCapturedStderr();
  }

  TestClient* good_ = nullptr;
  std::unique_ptr<sim::SimHost> host_;
  std::unique_ptr<sim::SimTransport> transport_;
  RawClient raw_;
};

TEST_F(ServerViolationTest, IdOfAnAnsweredGetWithTransfersUnderWayIsNotUsedAgain) {
  const Chain chain;
  ASSERT_THAT(Put(*good_, chain), ElementsAre(kOk));
  ConnectRaw();
  Send(net::Op::kGet, 1, GetMessage(chain));
  ASSERT_TRUE(RunUntil([&] { return raw_.replies == 1 && raw_.held.size() == 1; }));
  for (uint64_t id = 2; id < 1100; ++id) {  // The channel forgets the first answers.
    Stat(id);
  }
  const std::string lines = Warnings([&] {
    Send(net::Op::kGet, 1, GetMessage(chain));
    EXPECT_TRUE(RunUntil([&] { return raw_.closed; }));
  });
  EXPECT_THAT(lines, HasSubstr("used twice"));
  EXPECT_EQ(Metric("tokura_node_connections_ended_total", {{"reason", "violation"}}), 1);
  ExpectIdle();
  EXPECT_EQ(Lookup(*good_, chain), 1u) << "the node serves on";
}

TEST_F(ServerViolationTest, PayloadsWithoutARequestAreFewAndDoNotStay) {
  constexpr size_t kOffers = 100;
  constexpr size_t kKept = 64;
  ConnectRaw();
  std::vector<std::byte> bytes(64);
  const auto region = transport_->Register(bytes);
  ASSERT_TRUE(region.ok());
  size_t refused = 0;
  for (uint32_t i = 0; i < kOffers; ++i) {
    net::FrameHeader frame;
    frame.op = net::Op::kPut;
    frame.flags = net::kFramePayload;
    frame.request_id = 1000;
    frame.index = i;
    frame.payload_bytes = bytes.size();
    std::byte header[net::kFrameBytes];
    net::SerializeFrame(frame, {}, header);
    const net::RegisteredSpan piece{region->get(), bytes.data(), bytes.size()};
    host_->loop().Enter([&] {
      raw_.connection->SendPayload(header, std::span(&piece, 1), [&refused](absl::Status status) {
        refused += absl::IsResourceExhausted(status) ? 1 : 0;
      });
    });
  }
  RunFor(milliseconds(500));
  EXPECT_EQ(refused, kOffers - kKept);
  Stat(1);
  RunFor(milliseconds(700));
  Stat(2);
  EXPECT_EQ(refused, kOffers) << "a second is enough for the request that they belong to";
  EXPECT_FALSE(raw_.closed);
}

TEST_F(ServerViolationTest, TheLatestAnswersAreRememberedWhateverTheirIds) {
  ConnectRaw();
  for (uint64_t id = 10'000; id < 11'024; ++id) {
    Stat(id);
  }
  Stat(1);
  const std::string lines = Warnings([&] { Stat(1); });
  EXPECT_TRUE(raw_.closed);
  EXPECT_THAT(lines, HasSubstr("request id 1 used twice"));
}

TEST_F(ServerViolationTest, RefusalsAreLoggedWithinBounds) {
  TestClient::Options options;
  options.tenant = std::string(257, 'x');
  const std::string lines = Warnings([&] {
    for (int i = 0; i < 40; ++i) {
      const TestClient& client = Connect(options);
      EXPECT_TRUE(client.down().has_value() || RunUntil([&] { return client.down().has_value(); }));
    }
  });
  size_t count = 0;
  for (size_t at = lines.find("client_refused"); at != std::string::npos;
       at = lines.find("client_refused", at + 1)) {
    ++count;
  }
  EXPECT_GE(count, 10u);
  EXPECT_LE(count, 20u);
}

TEST_F(ServerViolationTest, EndlessNamesAreRefused) {
  TestClient::Options options;
  options.name = std::string(257, 'x');
  Warnings([&] {
    TestClient& client = Connect(options);
    ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
    EXPECT_EQ(client.down()->code(), absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace tokura::node
