#include "tests/integration/cluster_fixture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace tokura::integration {
namespace {

std::vector<std::string> CoordinatorCommand(const std::vector<std::string>& flags) {
  std::vector<std::string> command = {TOKURA_COORDINATOR_PROGRAM,
                                      "--segment-blocks",
                                      absl::StrCat(kSegmentBlocks),
                                      "--join-ramp",
                                      "0s",
                                      "--log-level",
                                      "error"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

}  // namespace

CoordinatorUnderTest::CoordinatorUnderTest(const std::vector<std::string>& flags)
    : ServerUnderTest(CoordinatorCommand(flags), "") {}

ClusterUnderTest::ClusterUnderTest(Size size)
    : coordinators_(size.coordinators), addresses_(size.coordinators), nodes_(size.nodes) {
  for (size_t i = 0; i < size.coordinators; ++i) {
    StartCoordinator(i, "127.0.0.1:0");
    addresses_[i] = coordinators_[i]->data();
  }
  for (size_t i = 0; i < size.nodes; ++i) {
    StartNode(i);
  }
  EXPECT_TRUE(WaitUntilUp(size.nodes)) << "the coordinators do not know all nodes";
}

std::string ClusterUnderTest::NodeName(size_t index) {
  return absl::StrCat("node-", index);
}

size_t ClusterUnderTest::IndexOf(const std::string& name) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (NodeName(i) == name) {
      return i;
    }
  }
  TOKURA_CHECK(!"no node has this name");
  return 0;
}

void ClusterUnderTest::StartCoordinator(size_t index, const std::string& listen) {
  std::vector<std::string> flags = {"--name", absl::StrCat("coordinator-", index), "--listen",
                                    listen};
  if (index > 0) {
    flags.insert(flags.end(), {"--metadata", "coordinator://" + addresses_[0]});
  }
  coordinators_[index] = std::make_unique<CoordinatorUnderTest>(flags);
}

void ClusterUnderTest::StartNode(size_t index) {
  nodes_[index] = std::make_unique<NodeUnderTest>(
      std::vector<std::string>{"--name", NodeName(index), "--coordinator",
                               absl::StrJoin(addresses_, ",")},
      NodeLogs::kErrors);
}

void ClusterUnderTest::RestartCoordinator(size_t index) {
  coordinators_[index].reset();
  StartCoordinator(index, addresses_[index]);
}

void ClusterUnderTest::RestartNode(size_t index) {
  nodes_[index].reset();
  StartNode(index);
}

bool ClusterUnderTest::WaitUntilUp(size_t nodes) {
  const auto count = static_cast<double>(nodes);
  return WaitFor([&] {
    return std::all_of(coordinators_.begin(), coordinators_.end(), [count](const auto& c) {
      return c->Metric("tokura_coordinator_nodes{state=\"up\"}") == count &&
             c->Metric("tokura_coordinator_inventories{state=\"complete\"}") == count;
    });
  });
}

bool ClusterUnderTest::WaitForBlocks(uint64_t blocks) {
  return WaitFor([&] {
    return std::all_of(coordinators_.begin(), coordinators_.end(), [blocks](const auto& c) {
      return c->Metric("tokura_coordinator_index_blocks") == static_cast<double>(blocks);
    });
  });
}

double ClusterUnderTest::NodesMetric(const std::string& series) const {
  double sum = 0;
  for (const auto& node : nodes_) {
    sum += std::max(0.0, node->Metric(series));
  }
  return sum;
}

std::unique_ptr<Client> ClusterTest::ConnectVia(const std::vector<std::string>& coordinators,
                                                size_t nodes) {
  ClientOptions options = Options({});
  options.coordinators = coordinators;
  auto client = Client::Create(std::move(options));
  TOKURA_CHECK(client.ok());
  const absl::Status ready = (*client)->WaitReady(Scaled(std::chrono::seconds(20)));
  EXPECT_TRUE(ready.ok()) << ready;
  const auto stats = (*client)->Stat();
  EXPECT_EQ(nodes, static_cast<size_t>(std::count_if(stats.begin(), stats.end(),
                                                     [](const auto& stat) { return stat.ok(); })))
      << "the client is ready without all nodes";
  return std::move(*client);
}

Match ClusterTest::Lookup(Client& client, uint64_t seed, uint32_t blocks) {
  const auto space = client.OpenNamespace(TestSpace());
  TOKURA_CHECK(space.ok());
  LookupOptions options;
  options.deadline = deadline();
  const TimePoint start = SystemClock().Now();
  auto match = client.Lookup(*space, MakeChain(**space, seed, blocks), options);
  EXPECT_LE(SystemClock().Now() - start, deadline() + slack()) << "a lookup past its deadline";
  TOKURA_CHECK(match.ok());
  return *std::move(match);
}

size_t ClusterTest::Fetch(Client& client, uint64_t seed, uint32_t blocks) {
  const Match match = Lookup(client, seed, blocks);
  if (match.blocks() == 0) {
    return 0;
  }
  KvMemory expected(blocks), got(blocks);
  expected.Fill(seed);
  got.Clear();
  const auto space = client.OpenNamespace(TestSpace());
  GetOptions options;
  options.deadline = deadline();
  const TimePoint start = SystemClock().Now();
  const GetResult result = client.Get(*space, match, got.View(), options);
  EXPECT_LE(SystemClock().Now() - start, deadline() + slack()) << "a get past its deadline";
  for (uint32_t i = 0; i < result.blocks.size(); ++i) {
    EXPECT_TRUE(!result.blocks[i].ok() || got.SameData(expected, i, 1)) << "wrong data";
  }
  EXPECT_TRUE(got.CanariesIntact());
  return result.prefix_ok();
}

size_t ClusterTest::Store(Client& client, uint64_t seed, uint32_t blocks) {
  KvMemory memory(blocks);
  memory.Fill(seed);
  return Put(client, seed, memory, blocks, Scaled(std::chrono::seconds(5)));
}

void ClusterTest::ExpectHitsFor(Client& client, uint64_t seed, uint32_t blocks, Duration time) {
  const TimePoint end = SystemClock().Now() + Lasting(time);
  size_t calls = 0;
  do {
    EXPECT_EQ(Fetch(client, seed, blocks), blocks) << "call " << calls;
    ++calls;
  } while (SystemClock().Now() < end && !::testing::Test::HasFailure());
}

std::set<std::string> HoldersOf(const Match& match) {
  std::set<std::string> names;
  for (size_t i = 0; i < match.blocks(); ++i) {
    names.insert(match.HolderOf(i)->node);
  }
  return names;
}

size_t BlocksBefore(const Match& match, const std::string& node) {
  size_t blocks = 0;
  while (blocks < match.blocks() && match.HolderOf(blocks)->node != node) {
    ++blocks;
  }
  return blocks;
}

std::string LaterHolder(const Match& match) {
  std::set<std::string> names = HoldersOf(match);
  TOKURA_CHECK(names.size() > 1);
  names.erase(match.HolderOf(0)->node);
  return *names.begin();
}

}  // namespace tokura::integration
