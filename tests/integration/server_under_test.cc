#include "tests/integration/server_under_test.h"

#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net/transport.h"

namespace tokura::integration {

std::string FreshPath(const std::string& suffix) {
  static std::atomic<int> next{0};
  return absl::StrCat(::testing::TempDir(), "tokura-test-", getpid(), "-", next.fetch_add(1),
                      suffix);
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

ServerUnderTest::ServerUnderTest(std::vector<std::string> command, const std::string& log_path)
    : port_file_(FreshPath(".ports")) {
  command.insert(command.end(), {"--port-file", port_file_});
  process_ = std::make_unique<ChildProcess>(command, ChildProcess::Output{"", log_path});
  EXPECT_TRUE(WaitFor([&] { return !ReadPorts(port_file_).empty(); }))
      << "the server did not start";
  std::map<std::string, std::string> ports = ReadPorts(port_file_);
  data_ = ports["data"];
  admin_ = ports["admin"];
}

ServerUnderTest::~ServerUnderTest() {
  unlink(port_file_.c_str());
}

std::string ServerUnderTest::Http(const std::string& path, int* status) const {
  const auto address = net::Address::Parse(admin_);
  TOKURA_CHECK(address.ok());
  httplib::Client client(address->host, address->port);
  client.set_connection_timeout(5);
  client.set_read_timeout(5);
  const auto result = client.Get(path.c_str());
  *status = result ? result->status : 0;
  return result ? result->body : "";
}

double ServerUnderTest::Metric(const std::string& series) const {
  int status = 0;
  std::istringstream lines(Http("/metrics", &status));
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > series.size() && line.compare(0, series.size(), series) == 0 &&
        line[series.size()] == ' ') {
      return std::stod(line.substr(series.size() + 1));
    }
  }
  return -1;
}

void ServerUnderTest::Kill() {
  process_->Signal(SIGKILL);
  EXPECT_TRUE(process_->WaitForEnd().has_value());
}

int ServerUnderTest::Terminate() {
  process_->Signal(SIGTERM);
  const auto ended = process_->WaitForEnd();
  return ended && WIFEXITED(*ended) ? WEXITSTATUS(*ended) : -1;
}

}  // namespace tokura::integration
