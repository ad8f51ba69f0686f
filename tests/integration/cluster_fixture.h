#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/log.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/server_under_test.h"
#include "tokura/client.h"

namespace tokura::integration {

// A tokura-coordinator process that logs errors only, with segments of kSegmentBlocks and no ramp.
class CoordinatorUnderTest : public ServerUnderTest {
 public:
  explicit CoordinatorUnderTest(const std::vector<std::string>& flags);
};
inline constexpr uint32_t kSegmentBlocks = 4;

// Coordinator and node processes. The first coordinator holds membership and policy, the others
// follow it; every node knows all of them. One thread.
class ClusterUnderTest {
 public:
  struct Size {
    size_t nodes = 2;
    size_t coordinators = 2;
  };
  // Every coordinator knows every node, or the test has failed.
  explicit ClusterUnderTest(Size size);

  CoordinatorUnderTest& coordinator(size_t index) { return *coordinators_[index]; }
  NodeUnderTest& node(size_t index) { return *nodes_[index]; }
  size_t nodes() const { return nodes_.size(); }
  static std::string NodeName(size_t index);
  // The node of this name.
  size_t IndexOf(const std::string& name) const;
  // Addresses for clients, the holder's first.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // After it has ended: a new process under its name and address, which knows nothing.
  void RestartCoordinator(size_t index);
  // After it has ended: a new process under its name, at another address, with nothing in it.
  void RestartNode(size_t index);

  // Wait until every coordinator has `nodes` of them as members that are up, with complete
  // inventories.
  bool WaitUntilUp(size_t nodes);
  // Wait until every coordinator's index has so many blocks.
  bool WaitForBlocks(uint64_t blocks);
  // Sum of one series over all nodes.
  double NodesMetric(const std::string& series) const;

 private:
  void StartCoordinator(size_t index, const std::string& listen);
  void StartNode(size_t index);

  std::vector<std::unique_ptr<CoordinatorUnderTest>> coordinators_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<NodeUnderTest>> nodes_;
};

// Clients of a cluster.
class ClusterTest : public NodeTest {
 protected:
  // Tests here provoke warnings on purpose.
  ClusterTest() { SetLogLevel(LogLevel::kError); }
  // Of calls whose end is watched.
  static Duration deadline() { return Scaled(std::chrono::milliseconds(500)); }
  // For whoever gets no processor for a while.
  static Duration slack() { return Scaled(std::chrono::seconds(1)); }

  // A client that knows these coordinators, and has reached so many nodes.
  static std::unique_ptr<Client> ConnectVia(const std::vector<std::string>& coordinators,
                                            size_t nodes = 2);
  static Match Lookup(Client& client, uint64_t seed, uint32_t blocks);
  // Look the chain up and get it; how many leading blocks came. That both calls ended by deadline()
  // and slack(), and that what came is what Put has put, is expected.
  static size_t Fetch(Client& client, uint64_t seed, uint32_t blocks);
  // Put the chain; how many blocks were stored.
  static size_t Store(Client& client, uint64_t seed, uint32_t blocks);
  // Fetch again and again for `time`, and expect all of the chain each time.
  static void ExpectHitsFor(Client& client, uint64_t seed, uint32_t blocks, Duration time);
};

// Names of the nodes that hold blocks of a match.
std::set<std::string> HoldersOf(const Match& match);
// How many leading blocks of a match are held by other nodes than this one.
size_t BlocksBefore(const Match& match, const std::string& node);
// A node that holds some of the match, but not its first block. Every node but one, of more than
// one holder, is.
std::string LaterHolder(const Match& match);

}  // namespace tokura::integration
