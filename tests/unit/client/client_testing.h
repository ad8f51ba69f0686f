#pragma once

// What the client's tests share: a simulated machine with a ClientCore on it, engine memory, and
// calls that run the simulation until they are answered.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include "common/log.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/transport.h"
#include "tests/unit/client/fake_node.h"
#include "tokura/client_core.h"

namespace tokura {

// Engine memory of one sequence: contiguous float32 pages per group, every element distinct.
class EngineMemory {
 public:
  // Heads of `shards` shards, tokens for `blocks` blocks.
  EngineMemory(const Namespace& ns, uint32_t blocks, uint32_t first_shard = 0, uint32_t shards = 0);
  SequenceView View();
  void Randomize(uint32_t seed);
  void Fill(float value);
  // Values of block `block` in group `group`, layers [first, first + layers).
  std::vector<float> Block(size_t group, uint32_t block, uint32_t first_layer = 0,
                           uint32_t layers = 0) const;
  const std::vector<std::vector<float>>& values() const { return values_; }

 private:
  struct Group {
    uint32_t layers, heads, k_dim, v_dim;
  };
  const Namespace& ns_;
  const uint32_t tokens_;
  const uint32_t first_shard_;
  const uint32_t shards_;
  std::vector<Group> groups_;
  std::vector<std::vector<float>> values_;  // by group: layer by layer, K [h, t, d] then V
};

NamespaceSpec SmallSpec();
// `tokens` tokens that begin with `salt`.
TokenChain MakeChain(const Namespace& ns, uint32_t blocks, uint32_t salt = 1);

class ClientTest : public ::testing::Test {
 protected:
  explicit ClientTest(uint64_t seed = 1);
  ~ClientTest() override;

  FakeNode& AddNode(FakeNode::Options options = {});
  // Make the core with all nodes listed and wait for `connected` of them.
  void StartClient(ClientOptions options = {}, ClientPlantedBugs bugs = {});
  void StopClient();
  // Put `blocks` blocks of random values on the nodes and return what a lookup finds.
  Match PutAndLookup(EngineMemory& source, const TokenChain& chain);

  // Call on the client's thread.
  template <typename F>
  void OnLoop(F&& f) {
    host_.loop().Enter([&] { f(); });
  }
  // Run the simulation until `done`; fails the test after `limit` of simulated time.
  void RunUntil(const std::function<bool()>& done, Duration limit = std::chrono::seconds(30));
  void RunFor(Duration duration) { scheduler_.RunFor(duration); }

  Match Lookup(const TokenChain& chain, LookupOptions options = {});
  Match Acquire(const Match& match);
  GetResult Get(const Match& match, SequenceView view, GetOptions options = {});
  PutResult Put(const TokenChain& chain, SequenceView view, PutOptions options = {});
  RemoveResult Remove(std::vector<BlockKey> keys);

  // Operations under way, for tests that look in between.
  struct PendingGet {
    ClientCore::OperationId id = 0;
    std::optional<GetResult> result;
    TimePoint ended;
  };
  std::shared_ptr<PendingGet> StartGet(const Match& match, SequenceView view,
                                       GetOptions options = {});
  struct PendingPut {
    ClientCore::OperationId id = 0;
    bool released = false;
    TimePoint released_at;
    std::optional<PutResult> result;
    TimePoint ended;
  };
  std::shared_ptr<PendingPut> StartPut(const TokenChain& chain, SequenceView view,
                                       PutOptions options = {});

  // This test loses nodes or data on purpose: warnings are expected. Else they fail the test.
  void ExpectWarnings() { warnings_expected_ = true; }

  // Value of a metric with these labels; NaN when it does not exist.
  double Metric(const std::string& name,
                const std::vector<std::pair<std::string, std::string>>& labels = {}) const;
  TimePoint Now() const { return host_.Now(); }

  sim::SimScheduler scheduler_;
  sim::SimNetwork network_;
  sim::SimHost host_;
  sim::SimTransport transport_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::vector<std::unique_ptr<FakeNode>> nodes_;
  std::unique_ptr<ClientCore> core_;
  const LogCount logged_before_ = LogCounts();
  bool warnings_expected_ = false;
  NamespaceRef ns_;
};

}  // namespace tokura
