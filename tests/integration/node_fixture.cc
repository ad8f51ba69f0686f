#include "tests/integration/node_fixture.h"

#include "common/check.h"

namespace tokura::integration {
namespace {

std::vector<std::string> NodeCommand(const std::vector<std::string>& flags, NodeLogs logs,
                                     const std::vector<std::string>& launcher) {
  std::vector<std::string> command = launcher;
  command.insert(command.end(), {TOKURA_NODE_PROGRAM, "--host-bytes", "32MiB", "--part-bytes-max",
                                 "4MiB", "--log-level"});
  // Tests that provoke warnings on purpose see errors only.
  command.push_back(logs == NodeLogs::kWarnings ? "warn" : "error");
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

}  // namespace

NodeUnderTest::NodeUnderTest(const std::vector<std::string>& flags, NodeLogs logs,
                             const std::string& log_path, const std::vector<std::string>& launcher)
    : ServerUnderTest(NodeCommand(flags, logs, launcher), log_path) {}

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
  const absl::Status ready = (*client)->WaitReady(Scaled(std::chrono::seconds(20)));
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
  LookupOptions options;
  options.deadline = Scaled(std::chrono::seconds(10));
  auto match = client.Lookup(*space, MakeChain(**space, seed, blocks), options);
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
