// Clients of other versions: a node turns them away, and both sides say why.

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/net/frame.h"
#include "kernels/part.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/raw_channel.h"

namespace tokura::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kOtherProtocol = 77;
constexpr char kOtherTransport[] = "0.99.0";
constexpr char kOtherFormat[] = "9.77";

class RefusalTest : public NodeTest {
 protected:
  ~RefusalTest() override { unlink(log_path_.c_str()); }

  std::string Versions(uint32_t protocol, const std::string& transport, const std::string& format) {
    return absl::StrCat("protocol ", protocol, ", transport ", transport, ", block format ",
                        format);
  }
  // The node's line about the client that it turned away.
  std::string RefusalLine() {
    std::string line;
    EXPECT_TRUE(WaitFor([&] {
      const std::string log = ReadText(log_path_);
      const size_t event = log.find("client_refused");
      const size_t end = event == std::string::npos ? event : log.find('\n', event);
      line = end == std::string::npos ? "" : log.substr(event, end - event);
      return !line.empty();
    })) << "the node does not log it";
    return line;
  }
  // Connect with `hello`, whose one lie is `theirs` where the node has `ours`.
  void ExpectRefused(const proto::Hello& hello, const std::string& theirs,
                     const std::string& ours) {
    auto options = SoundHello(transport_);
    options.hello = hello;
    const RawChannel raw(transport_, node_.data(), std::move(options));
    ASSERT_TRUE(raw.down());
    const std::string client_versions =
        Versions(hello.protocol_version(), hello.transport_version(), hello.format_version());
    const auto names_both = AllOf(HasSubstr(absl::StrCat(ours, " here, ", theirs, " there")),
                                  HasSubstr(client_versions), HasSubstr(node_versions_));
    EXPECT_EQ(raw.why().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(raw.why().message()), AllOf(names_both, HasSubstr("/version")));
    EXPECT_THAT(RefusalLine(), names_both);
    ExpectServesOthers();
  }
  void ExpectServesOthers() {
    EXPECT_TRUE(Connect({node_.data()})->Stat().front().ok());
    int status = 0;
    EXPECT_THAT(node_.Http("/version", &status), HasSubstr(transport_->version()));
    EXPECT_EQ(status, 200);
  }

  const std::string log_path_ = FreshPath(".log");
  NodeUnderTest node_{{}, NodeLogs::kWarnings, log_path_};
  PolledTransport transport_;
  const proto::Hello sound_ = SoundHello(transport_).hello;
  const std::string node_versions_ =
      Versions(net::kProtocolVersion, transport_->version(), kernels::FormatVersionString());
};

TEST_F(RefusalTest, AnotherProtocol) {
  proto::Hello hello = sound_;
  hello.set_protocol_version(kOtherProtocol);
  ExpectRefused(hello, std::to_string(kOtherProtocol), std::to_string(net::kProtocolVersion));
}

TEST_F(RefusalTest, AnotherTransport) {
  proto::Hello hello = sound_;
  hello.set_transport_version(kOtherTransport);
  ExpectRefused(hello, kOtherTransport, transport_->version());
}

TEST_F(RefusalTest, AnotherFormat) {
  proto::Hello hello = sound_;
  hello.set_format_version(kOtherFormat);
  ExpectRefused(hello, kOtherFormat, kernels::FormatVersionString());
}

// Another protocol may have another HELLO: then only the frame tells, and the answer is one of
// ours.
class OtherProtocolPeer final : public net::ConnectionHandler {
 public:
  void OnConnected(net::Connection& connection) override {
    std::vector<std::byte> header(net::kFrameBytes);
    net::FrameHeader frame;
    frame.version = kOtherProtocol;
    frame.op = net::Op::kHello;
    net::SerializeFrame(frame, {}, std::span<std::byte, net::kFrameBytes>(header));
    EXPECT_TRUE(connection.SendMessage(header, {}).ok());
  }
  void OnMessage(net::Connection&, std::span<const std::byte> header,
                 std::span<const std::byte> body) override {
    const auto frame = net::ParseFrame(header, body);
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_EQ(frame->op, net::Op::kRefused);
    ASSERT_TRUE(refused_.ParseFromArray(body.data(), static_cast<int>(body.size())));
  }
  void OnPayload(net::Connection&, std::span<const std::byte>, net::IncomingPayload) override {}
  void OnClosed(net::Connection&, absl::Status) override { closed_ = true; }

  bool closed() const { return closed_; }
  const proto::Refused& refused() const { return refused_; }

 private:
  bool closed_ = false;
  proto::Refused refused_;
};

TEST_F(RefusalTest, FramesOfAnotherProtocol) {
  OtherProtocolPeer peer;
  const auto connection = transport_->Connect(*net::Address::Parse(node_.data()), peer);
  ASSERT_TRUE(transport_.PollUntil([&] { return peer.closed(); }));
  const auto names_both = AllOf(HasSubstr(absl::StrCat("protocol version ", kOtherProtocol)),
                                HasSubstr(absl::StrCat("this side ", net::kProtocolVersion)));
  EXPECT_THAT(peer.refused().reason(), names_both);
  EXPECT_EQ(peer.refused().protocol_version(), net::kProtocolVersion);
  EXPECT_EQ(peer.refused().format_version(), kernels::FormatVersionString());
  EXPECT_EQ(peer.refused().transport_version(), transport_->version());
  EXPECT_THAT(RefusalLine(), AllOf(names_both, HasSubstr(node_versions_)));
  ExpectServesOthers();
}

}  // namespace
}  // namespace tokura::integration
