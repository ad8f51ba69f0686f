#include "tests/integration/node_fixture.h"

#include <atomic>
#include <fstream>
#include <sstream>

#include <httplib.h>
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

NodeUnderTest::NodeUnderTest(const std::vector<std::string>& flags, NodeLogs logs,
                             const std::string& log_path, const std::vector<std::string>& launcher)
    : port_file_(FreshPath(".ports")) {
  std::vector<std::string> arguments = launcher;
  arguments.insert(arguments.end(),
                   {TOKURA_NODE_PROGRAM, "--host-bytes", "32MiB", "--part-bytes-max", "4MiB",
                    "--port-file", port_file_, "--log-level"});
  // Tests that provoke warnings on purpose see errors only.
  arguments.push_back(logs == NodeLogs::kWarnings ? "warn" : "error");
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  process_ = std::make_unique<ChildProcess>(arguments, ChildProcess::Output{"", log_path});
  EXPECT_TRUE(WaitFor([&] { return !ReadPorts(port_file_).empty(); })) << "the node did not start";
  std::map<std::string, std::string> ports = ReadPorts(port_file_);
  data_ = ports["data"];
  admin_ = ports["admin"];
}

NodeUnderTest::~NodeUnderTest() {
  unlink(port_file_.c_str());
}

std::string NodeUnderTest::Http(const std::string& path, int* status) const {
  const auto address = net::Address::Parse(admin_);
  TOKURA_CHECK(address.ok());
  httplib::Client client(address->host, address->port);
  client.set_connection_timeout(5);
  client.set_read_timeout(5);
  const auto result = client.Get(path.c_str());
  *status = result ? result->status : 0;
  return result ? result->body : "";
}

double NodeUnderTest::Metric(const std::string& series) const {
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

ClientOptions NodeTest::Options(const std::vector<std::string>& nodes) {
  ClientOptions options;
  options.nodes = nodes;
  options.ingest_codec = "raw";
  options.ring_bytes = uint64_t{16} << 20;
  options.part_bytes_max = uint64_t{4} << 20;
  return options;
}

std::unique_ptr<Client> NodeTest::Connect(const std::vector<std::string>& nodes) {
  auto client = Client::Create(Options(nodes));
  TOKURA_CHECK(client.ok());
  const absl::Status ready = (*client)->WaitReady(std::chrono::seconds(20));
  EXPECT_TRUE(ready.ok()) << ready;
  return std::move(*client);
}

size_t NodeTest::Put(Client& client, uint64_t seed, KvMemory& memory, uint32_t blocks,
                     Duration deadline) {
  const auto space = client.OpenNamespace(TestSpace());
  TOKURA_CHECK(space.ok());
  PutOptions options;
  options.deadline = deadline;
  return client.Put(*space, MakeChain(**space, seed, blocks), memory.View(), options).stored();
}

Match NodeTest::Held(Client& client, uint64_t seed, uint32_t blocks) {
  const auto space = client.OpenNamespace(TestSpace());
  TOKURA_CHECK(space.ok());
  auto match = client.Lookup(*space, MakeChain(**space, seed, blocks));
  TOKURA_CHECK(match.ok());
  EXPECT_EQ(match->blocks(), blocks);
  return *std::move(match);
}

size_t NodeTest::Get(Client& client, uint64_t seed, KvMemory& memory, uint32_t blocks,
                     Duration deadline) {
  const auto space = client.OpenNamespace(TestSpace());
  TOKURA_CHECK(space.ok());
  LookupOptions lookup;
  lookup.deadline = deadline;
  const auto match = client.Lookup(*space, MakeChain(**space, seed, blocks), lookup);
  TOKURA_CHECK(match.ok());
  if (match->blocks() == 0) {
    return 0;
  }
  GetOptions get;
  get.deadline = deadline;
  return client.Get(*space, *match, memory.View(), get).prefix_ok();
}

}  // namespace tokura::integration
