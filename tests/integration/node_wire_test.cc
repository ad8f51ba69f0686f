// What arrives at a node's data port without being a request: bytes of other protocols, and frames
// that lie.

#include <cstring>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/check.h"
#include "common/net/frame.h"
#include "common/net/transport.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/raw_channel.h"

namespace tokura::integration {
namespace {

// Connect by plain TCP and send `bytes`; false when the node does not take the connection.
bool SendRaw(const std::string& target, const std::string& bytes) {
  const auto address = net::Address::Parse(target);
  TOKURA_CHECK(address.ok());
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  TOKURA_CHECK(fd >= 0);
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(address->port);
  inet_pton(AF_INET, address->host.c_str(), &peer.sin_addr);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0;
  if (connected) {
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  close(fd);
  return connected;
}

// A client at the level of the transport, which sends what it likes.
class RawClient final : public net::ConnectionHandler {
 public:
  RawClient(PolledTransport& transport, const std::string& target) : transport_(transport) {
    connection_ = transport->Connect(*net::Address::Parse(target), *this);
    EXPECT_TRUE(transport.PollUntil([this] { return connected_ || closed_; }));
  }
  ~RawClient() override {
    connection_->Close(net::CloseMode::kAbort);
    EXPECT_TRUE(transport_.PollUntil([this] { return closed_; }));
  }
  void OnConnected(net::Connection&) override { connected_ = true; }
  void OnMessage(net::Connection&, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    const auto frame = net::ParseFrame(header, body);
    ASSERT_TRUE(frame.ok()) << frame.status();
    last_op_ = frame->op;
  }
  void OnPayload(net::Connection&, std::span<const std::byte>, net::IncomingPayload) override {}
  void OnClosed(net::Connection&, absl::Status) override { closed_ = true; }

  void Send(std::span<const std::byte> header, std::span<const std::byte> body) {
    connection_->SendMessage(header, body).IgnoreError();
  }
  bool closed() const { return closed_; }
  net::Op last_op() const { return last_op_; }

 private:
  PolledTransport& transport_;
  std::unique_ptr<net::Connection> connection_;
  bool connected_ = false;
  bool closed_ = false;
  net::Op last_op_ = net::Op::kPing;
};

void ExpectServes(NodeUnderTest& node, Client& client) {
  int status = 0;
  node.Http("/healthz", &status);
  EXPECT_EQ(status, 200);
  EXPECT_TRUE(client.Stat().front().ok());
}

TEST_F(NodeTest, BytesOfOtherProtocolsDoNotHurt) {
  NodeUnderTest node({}, NodeLogs::kErrors);
  auto client = Connect({node.data()});
  EXPECT_TRUE(SendRaw(node.data(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(SendRaw(node.data(), std::string(100'000, '\xff')));
  EXPECT_TRUE(SendRaw(node.data(), std::string(100'000, '\0')));
  EXPECT_TRUE(SendRaw(node.data(), ""));
  ExpectServes(node, *client);
}

TEST_F(NodeTest, FramesThatLieEndTheirConnectionOnly) {
  NodeUnderTest node({}, NodeLogs::kErrors);
  auto client = Connect({node.data()});
  PolledTransport transport;
  const auto expect_ended = [&](std::vector<std::byte> header, std::vector<std::byte> body) {
    RawClient raw(transport, node.data());
    raw.Send(header, body);
    EXPECT_TRUE(transport.PollUntil([&] { return raw.closed(); }))
        << "the node keeps the connection";
  };
  const auto frame = [](net::FrameHeader header, const std::vector<std::byte>& body) {
    std::vector<std::byte> bytes(net::kFrameBytes);
    header.body_bytes = static_cast<uint32_t>(body.size());
    net::SerializeFrame(header, body, std::span<std::byte, net::kFrameBytes>(bytes));
    return bytes;
  };
  const std::vector<std::byte> junk(200, std::byte{0x5a});
  expect_ended(std::vector<std::byte>(10), {});                      // truncated
  expect_ended(std::vector<std::byte>(net::kFrameBytes), {});        // no magic
  expect_ended(std::vector<std::byte>(net::kHeaderBytesMax), junk);  // longer than a frame
  net::FrameHeader hello;
  hello.op = net::Op::kHello;
  expect_ended(frame(hello, junk), junk);  // a HELLO that does not parse
  std::vector<std::byte> flipped = frame(hello, {});
  flipped[20] ^= std::byte{1};
  expect_ended(flipped, {});  // the CRC does not match
  net::FrameHeader get;
  get.op = net::Op::kGet;
  get.request_id = 1;
  expect_ended(frame(get, junk), junk);  // before HELLO
  hello.version = 99;
  expect_ended(frame(hello, {}), {});  // another protocol
  ExpectServes(node, *client);
}

}  // namespace
}  // namespace tokura::integration
