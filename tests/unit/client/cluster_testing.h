#pragma once

// What the tests of a client in a cluster share: coordinators and nodes in a simulated network, and
// further clients beside the one of ClientTest.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/client/client_testing.h"
#include "tests/unit/client/fake_coordinator.h"

namespace tokura {

// A further process of the tenant with a client of its own.
class OtherClient {
 public:
  OtherClient(sim::SimNetwork& network, const std::string& ip);
  void Start(ClientOptions options);
  // The process dies; its client goes down behind the closed connections.
  void Die();
  // Shut the client down. Before the network goes.
  void Stop();
  ClientCore& core() { return *core_; }
  template <typename F>
  void OnLoop(F&& f) {
    host_.loop().Enter([&] { f(); });
  }

 private:
  sim::SimNetwork& network_;
  sim::SimHost host_;
  sim::SimTransport transport_;
  std::unique_ptr<ClientCore> core_;
};

class ClusterTest : public ClientTest {
 protected:
  ~ClusterTest() override;

  FakeCoordinator& AddCoordinator();
  // A node that every coordinator has as a member.
  FakeNode& AddMember(FakeNode::Options options = {});
  // `nodes` members behind `coordinators` coordinators, and the client connected to all.
  void StartCluster(size_t coordinators, size_t nodes, ClientOptions options = {});
  void StartClusterClient(ClientOptions options = {});
  ClientOptions WithCoordinators(ClientOptions options = {}) const;
  OtherClient& AddOtherClient();
  GetResult GetBy(OtherClient& client, const Match& match, SequenceView view,
                  GetOptions options = {});

  // Put `blocks` blocks and expect all to be stored.
  void PutAll(EngineMemory& source, const TokenChain& chain);
  // Whether blocks [first, first + count) of the two memories are equal.
  static void ExpectSameBlocks(const EngineMemory& a, const EngineMemory& b, uint32_t first,
                               uint32_t count);

  std::vector<std::unique_ptr<FakeCoordinator>> coordinators_;
  std::vector<std::unique_ptr<OtherClient>> others_;
};

}  // namespace tokura
