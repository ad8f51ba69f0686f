// Coordinator processes: endpoints answer, one follows the other, signals end them as they should.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net/transport.h"
#include "tests/integration/process.h"

namespace tokura::integration {
namespace {

// A tokura-coordinator process.
class CoordinatorUnderTest {
 public:
  // Started and listening, or the test has failed.
  explicit CoordinatorUnderTest(const std::vector<std::string>& flags) {
    static int started = 0;
    const std::string port_file =
        absl::StrCat(testing::TempDir(), "coordinator_", getpid(), "_", ++started, ".ports");
    std::vector<std::string> arguments = {TOKURA_COORDINATOR_PROGRAM,
                                          "--port-file",
                                          port_file,
                                          "--forming",
                                          "100ms",
                                          "--log-level",
                                          "error"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    process_ = std::make_unique<ChildProcess>(arguments);
    EXPECT_TRUE(WaitFor([&] { return ReadPorts(port_file).size() == 2; }));
    auto ports = ReadPorts(port_file);
    data_ = ports["data"];
    admin_ = ports["admin"];
  }

  ChildProcess& process() { return *process_; }
  const std::string& data() const { return data_; }
  const std::string& admin() const { return admin_; }
  std::string Http(const std::string& path, int* status) const {
    const auto address = net::Address::Parse(admin_);
    TOKURA_CHECK(address.ok());
    httplib::Client client(address->host, address->port);
    const auto result = client.Get(path.c_str());
    *status = result ? result->status : 0;
    return result ? result->body : "";
  }
  bool Ready() const {
    int status = 0;
    Http("/readyz", &status);
    return status == 200;
  }
  bool Shows(const std::string& line) const {
    int status = 0;
    return Http("/metrics", &status).find("\n" + line + "\n") != std::string::npos;
  }
  // SIGTERM, and wait for the end. The exit status; -1: it was killed, or does not end.
  int Terminate() {
    process_->Signal(SIGTERM);
    const auto ended = process_->WaitForEnd();
    return ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1;
  }

 private:
  std::unique_ptr<ChildProcess> process_;
  std::string data_;
  std::string admin_;
};

TEST(CoordinatorProcessTest, AdminEndpointsAnswerAndSigtermDrains) {
  CoordinatorUnderTest coordinator({"--name", "coordinator-x"});
  ASSERT_TRUE(WaitFor([&] { return coordinator.Ready(); }));
  int status = 0;
  coordinator.Http("/healthz", &status);
  EXPECT_EQ(status, 200);
  const std::string version = coordinator.Http("/version", &status);
  for (const char* key :
       {"tokura", "protocol", "format", "transport_version", "incarnation", "coordinator-x"}) {
    EXPECT_NE(version.find(key), std::string::npos) << key;
  }
  EXPECT_TRUE(WaitFor([&] { return coordinator.Shows("tokura_placement_epoch 1"); }));
  EXPECT_EQ(coordinator.Terminate(), 0);
}

TEST(CoordinatorProcessTest, AFollowerIsReadyAndStaysSoWithoutItsHolder) {
  CoordinatorUnderTest holder({});
  CoordinatorUnderTest follower(
      {"--name", "coordinator-1", "--metadata", "coordinator://" + holder.data()});
  ASSERT_TRUE(WaitFor([&] { return follower.Ready(); }));
  EXPECT_TRUE(WaitFor([&] {
    return holder.Shows("tokura_transport_endpoints{state=\"open\"} 1") &&
           follower.Shows("tokura_placement_epoch 1");
  }));
  EXPECT_EQ(holder.Terminate(), 0);
  EXPECT_TRUE(follower.Ready());
  EXPECT_EQ(follower.Terminate(), 0);
}

TEST(CoordinatorProcessTest, UsageErrorsExitWithTwoAndFailuresWithOne) {
  CoordinatorUnderTest coordinator({});
  const auto exit_code = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TOKURA_COORDINATOR_PROGRAM);
    ChildProcess process(arguments);
    const auto ended = process.WaitForEnd();
    return ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1;
  };
  EXPECT_EQ(exit_code({"--metadata", "redis://127.0.0.1:6379"}), 2);
  EXPECT_EQ(exit_code({"--listen", "0.0.0.0:0"}), 2);
  EXPECT_EQ(exit_code({"--segment-blocks", "0"}), 2);
  EXPECT_EQ(exit_code({"--policy", "/nonexistent.yaml"}), 2);
  EXPECT_EQ(exit_code({"--policy", "/nonexistent.yaml", "--check-config"}), 1);
  EXPECT_EQ(exit_code({"--no-such-flag"}), 2);
  EXPECT_EQ(exit_code({"--check-config"}), 0);
  EXPECT_EQ(exit_code({"--print-config"}), 0);
  EXPECT_EQ(exit_code({"--admin", coordinator.admin()}), 1) << "the port is taken";
  EXPECT_EQ(exit_code({"--listen", coordinator.data()}), 1) << "the port is taken";
  EXPECT_EQ(exit_code({"--port-file", "/nonexistent/ports"}), 1);
}

}  // namespace
}  // namespace tokura::integration
