// One node process in good weather: data comes back, endpoints answer, signals end it as they
// should.

#include <string>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

using std::chrono::seconds;

TEST_F(NodeTest, GetReturnsWhatWasPutAndMetricsMove) {
  NodeUnderTest node;
  auto writer = Connect({node.data()});
  auto reader = Connect({node.data()});
  KvMemory source(8), target(8);
  source.Fill(1);
  target.Clear();
  EXPECT_EQ(Get(*reader, 1, target, 8), 0u);
  ASSERT_EQ(Put(*writer, 1, source, 8), 8u);
  ASSERT_EQ(Get(*reader, 1, target, 8), 8u);
  EXPECT_TRUE(target.SameData(source, 0, 8));
  EXPECT_TRUE(target.CanariesIntact());
  EXPECT_EQ(node.Metric("tokura_node_requests_total{op=\"put\",result=\"ok\"}"), 1);
  EXPECT_EQ(node.Metric("tokura_node_requests_total{op=\"get\",result=\"ok\"}"), 1);
  EXPECT_EQ(node.Metric("tokura_node_put_parts_total{result=\"stored\"}"), 8);
  EXPECT_GT(node.Metric("tokura_node_received_bytes_total"), 8.0 * source.block_bytes());
  EXPECT_EQ(node.Metric("tokura_transport_endpoints{state=\"open\"}"), 2);
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_node_sent_bytes_total") ==
               node.Metric("tokura_node_received_bytes_total") &&
           node.Metric("tokura_tier_blocks{tier=\"host\"}") == 8;
  }));
}

TEST_F(NodeTest, AdminEndpointsAnswer) {
  NodeUnderTest node({"--name", "node-x"});
  int status = 0;
  node.Http("/healthz", &status);
  EXPECT_EQ(status, 200);
  node.Http("/readyz", &status);
  EXPECT_EQ(status, 200);
  const std::string version = node.Http("/version", &status);
  EXPECT_EQ(status, 200);
  for (const char* key : {"tokura", "protocol", "format", "transport_version", "incarnation"}) {
    EXPECT_NE(version.find(key), std::string::npos) << key;
  }
  EXPECT_NE(version.find("node-x"), std::string::npos);
}

TEST_F(NodeTest, SigtermDrainsAndExitsWithZero) {
  NodeUnderTest node;
  auto client = Connect({node.data()});
  KvMemory source(4);
  source.Fill(1);
  ASSERT_EQ(Put(*client, 1, source, 4), 4u);
  node.process().Signal(SIGTERM);
  const auto ended = node.process().WaitForEnd();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << *ended;
  EXPECT_EQ(Get(*client, 1, source, 4, std::chrono::milliseconds(500)), 0u)
      << "a dead node is a miss";
}

TEST_F(NodeTest, SecondSigtermEndsAtOnce) {
  NodeUnderTest node({"--drain-timeout", "60s", "--dead-after", "60s", "--lease-age", "60s"});
  ChildProcess writer({TOKURA_CLIENT_CHILD, node.data(), "puts"});
  ASSERT_TRUE(WaitFor([&] { return node.Metric("tokura_node_received_bytes_total") > 0; }));
  writer.Stop();  // It takes no answer and no GOODBYE, so the drain waits for it.
  node.process().Signal(SIGTERM);
  int status = 200;
  ASSERT_TRUE(WaitFor([&] {
    node.Http("/readyz", &status);
    return status != 200;
  }));
  node.process().Signal(SIGTERM);
  const auto ended = node.process().WaitForEnd(seconds(5));
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(WIFSIGNALED(*ended) && WTERMSIG(*ended) == SIGTERM)
      << "the drain was over: " << *ended;
}

TEST_F(NodeTest, UsageErrorsExitWithTwoAndFailuresWithOne) {
  NodeUnderTest node;
  const auto exit_code = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TOKURA_NODE_PROGRAM);
    ChildProcess process(arguments);
    const auto ended = process.WaitForEnd();
    return ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1;
  };
  EXPECT_EQ(exit_code({"--coordinator", "nowhere"}), 2);
  EXPECT_EQ(exit_code({"--gpu-bytes", "1GiB"}), 2);
  EXPECT_EQ(exit_code({"--disk-path", "/tmp"}), 2);
  EXPECT_EQ(exit_code({"--listen", "0.0.0.0:0"}), 2);
  EXPECT_EQ(exit_code({"--lease-age", "0s"}), 2);
  EXPECT_EQ(exit_code({"--no-such-flag"}), 2);
  EXPECT_EQ(exit_code({"--help"}), 0);
  EXPECT_EQ(exit_code({"--admin", node.admin()}), 1) << "the port is taken";
  EXPECT_EQ(exit_code({"--host-bytes", "32MiB", "--part-bytes-max", "1MiB", "--port-file",
                       "/nonexistent/ports"}),
            1);
}

}  // namespace
}  // namespace tokura::integration
