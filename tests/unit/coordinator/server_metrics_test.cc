// The metrics that the flows of the other tests do not move, and the queues behind some of them.

#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "coordinator/coordinator_metrics.h"
#include "coordinator/server_nodes.h"
#include "tests/unit/coordinator/server_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;

// The value of one series of a registry; -1 without it.
double Value(prometheus::Registry& registry, const std::string& name,
             const std::map<std::string, std::string>& labels = {}) {
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::map<std::string, std::string> found;
      for (const auto& label : metric.label) {
        found[label.name] = label.value;
      }
      if (family.name == name && found == labels) {
        return family.type == prometheus::MetricType::Counter ? metric.counter.value
                                                              : metric.gauge.value;
      }
    }
  }
  return -1;
}

TEST(CoordinatorMetricsTest, EverySeriesIsThereFromTheStartAtZero) {
  auto registry = std::make_shared<prometheus::Registry>();
  const CoordinatorMetrics metrics(registry);
  size_t series = 0;
  for (const prometheus::MetricFamily& family : registry->Collect()) {
    EXPECT_EQ(family.name.rfind("tokura_", 0), 0u) << family.name;
    EXPECT_EQ(family.type == prometheus::MetricType::Counter,
              family.name.find("_total") != std::string::npos)
        << family.name;
    for (const prometheus::ClientMetric& metric : family.metric) {
      ++series;
      EXPECT_EQ(metric.counter.value + metric.gauge.value, 0) << family.name;
    }
  }
  EXPECT_GT(series, 100u);
}

TEST(CoordinatorMetricsTest, OnlyALongerTurnReplacesTheLongest) {
  auto registry = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics(registry);
  metrics.TurnEnded(Turn::kInventory, milliseconds(2));
  metrics.TurnEnded(Turn::kInventory, milliseconds(1));
  metrics.TurnEnded(Turn::kMaintenance, milliseconds(1));
  const auto longest = [&](const char* turn) {
    return Value(*registry, "tokura_coordinator_longest_turn_cpu_seconds", {{"turn", turn}});
  };
  EXPECT_DOUBLE_EQ(longest("inventory"), 0.002);
  EXPECT_DOUBLE_EQ(longest("maintenance"), 0.001);
}

TEST(CoordinatorMetricsTest, SampleCopiesGaugesAndAddsWhatCountersGrewBy) {
  auto registry = std::make_shared<prometheus::Registry>();
  CoordinatorMetrics metrics(registry);
  CoordinatorGauges gauges;
  gauges.epoch = 1;
  gauges.policy_version = 2;
  gauges.nodes_up = 3;
  gauges.nodes_suspect = 4;
  gauges.nodes_leaving = 5;
  gauges.index_bytes = 6;
  gauges.watches = 7;
  gauges.touches_waiting = 8;
  gauges.orphans_waiting = 9;
  PrefixIndexStats index;
  index.blocks = 10;
  index.vanished = 11;
  index.forms = 12;
  index.sources_swept = 13;
  index.refused_blocks = 14;
  index.refused_forms = 15;
  InventoryStats inventory;
  inventory.lives = 20;
  inventory.incomplete = 16;
  inventory.records = 17;
  inventory.batches = 18;
  inventory.gaps = 19;
  inventory.stale_batches = 21;
  inventory.snapshots_started = 22;
  inventory.snapshots_finished = 23;
  inventory.snapshots_restarted = 24;
  inventory.refused_batches = 25;
  inventory.refused_classes = 26;
  metrics.Sample(gauges, index, inventory);
  metrics.Sample(gauges, index, inventory);  // Counters hold still.
  const auto value = [&](const char* name, const std::map<std::string, std::string>& labels = {}) {
    return Value(*registry, name, labels);
  };
  EXPECT_EQ(value("tokura_placement_epoch"), 1);
  EXPECT_EQ(value("tokura_coordinator_policy_version"), 2);
  EXPECT_EQ(value("tokura_coordinator_nodes", {{"state", "up"}}), 3);
  EXPECT_EQ(value("tokura_coordinator_nodes", {{"state", "suspect"}}), 4);
  EXPECT_EQ(value("tokura_coordinator_nodes", {{"state", "leaving"}}), 5);
  EXPECT_EQ(value("tokura_coordinator_index_bytes"), 6);
  EXPECT_EQ(value("tokura_queue_depth", {{"queue", "watches"}}), 7);
  EXPECT_EQ(value("tokura_queue_depth", {{"queue", "touches"}}), 8);
  EXPECT_EQ(value("tokura_queue_depth", {{"queue", "orphans"}}), 9);
  EXPECT_EQ(value("tokura_coordinator_index_blocks"), 10);
  EXPECT_EQ(value("tokura_coordinator_index_vanished_blocks"), 11);
  EXPECT_EQ(value("tokura_coordinator_index_forms"), 12);
  EXPECT_EQ(value("tokura_coordinator_inventories", {{"state", "dropped"}}), 13);
  EXPECT_EQ(value("tokura_coordinator_index_refused_total", {{"what", "blocks"}}), 14);
  EXPECT_EQ(value("tokura_coordinator_index_refused_total", {{"what", "forms"}}), 15);
  EXPECT_EQ(value("tokura_coordinator_inventories", {{"state", "complete"}}), 4);
  EXPECT_EQ(value("tokura_coordinator_inventories", {{"state", "incomplete"}}), 16);
  EXPECT_EQ(value("tokura_coordinator_inventory_records_total"), 17);
  EXPECT_EQ(value("tokura_coordinator_inventory_batches_total", {{"result", "applied"}}), 18);
  EXPECT_EQ(value("tokura_coordinator_inventory_batches_total", {{"result", "gap"}}), 19);
  EXPECT_EQ(value("tokura_coordinator_inventory_batches_total", {{"result", "stale"}}), 21);
  EXPECT_EQ(value("tokura_coordinator_inventory_batches_total", {{"result", "refused"}}), 25);
  const auto snapshots = [&](const char* event) {
    return value("tokura_coordinator_inventory_snapshots_total", {{"event", event}});
  };
  EXPECT_EQ(snapshots("started"), 22);
  EXPECT_EQ(snapshots("finished"), 23);
  EXPECT_EQ(snapshots("restarted"), 24);
  EXPECT_EQ(value("tokura_coordinator_index_refused_total", {{"what", "classes"}}), 26);
  inventory.records = 27;
  metrics.Sample(gauges, index, inventory);
  EXPECT_EQ(value("tokura_coordinator_inventory_records_total"), 27);
}

TEST_F(ServerTest, ABrokenProtocolEndsTheConnectionAndIsCounted) {
  StartCoordinator(SmallOptions());
  TestPeer& client = Connect();
  client.Send(static_cast<net::Op>(99), proto::NodesRequest());
  ASSERT_TRUE(RunUntil([&] { return client.down().has_value(); }));
  EXPECT_EQ(Metric("tokura_coordinator_connections_ended_total", {{"reason", "violation"}}), 1);
  EXPECT_EQ(Metric("tokura_transport_errors_total", {{"status", "invalid_argument"}}), 1);
  EXPECT_EQ(Metric("tokura_transport_endpoints", {{"state", "open"}}), 0);
}

// ---- the table of nodes alone ----

class NodeTableTest : public ::testing::Test {
 protected:
  NodeTableTest()
      : registry_(std::make_shared<prometheus::Registry>()),
        metrics_(registry_),
        nodes_(PlantedBugs(), metrics_),
        index_(*PrefixIndex::Create({}, nodes_)),
        inventory_(*index_) {}

  NodeSlot Register(const std::string& name, uint64_t incarnation, uint64_t connection) {
    EXPECT_TRUE(inventory_.Admit(name, incarnation).ok());
    nodes_.Register(name, *inventory_.Find(name), connection, TimePoint());
    nodes_.Judge(state_, inventory_);
    return inventory_.Find(name)->slot;
  }
  void AddMember(const std::string& name, uint64_t incarnation, proto::Member::State member_state) {
    proto::Member* member = state_.add_members();
    member->set_node(name);
    member->set_incarnation(incarnation);
    member->set_state(member_state);
    nodes_.Judge(state_, inventory_);
  }
  NodeStanding::Use Use(NodeSlot slot) { return nodes_.standings().at(slot).use; }

  std::shared_ptr<prometheus::Registry> registry_;  // shared with the metrics
  CoordinatorMetrics metrics_;
  NodeTable nodes_;
  std::unique_ptr<PrefixIndex> index_;
  Inventory inventory_;
  proto::ClusterState state_;
};

TEST_F(NodeTableTest, OnlyTheLifeThatTheMembersNameIsUsed) {
  const NodeSlot up = Register("a", 10, 1);
  const NodeSlot suspect = Register("b", 20, 2);
  const NodeSlot leaving = Register("c", 30, 3);
  const NodeSlot other_life = Register("d", 40, 4);
  const NodeSlot stranger = Register("e", 50, 5);
  EXPECT_EQ(Use(up), NodeStanding::Use::kHidden);
  AddMember("a", 10, proto::Member::UP);
  AddMember("b", 20, proto::Member::SUSPECT);
  AddMember("c", 30, proto::Member::LEAVING);
  AddMember("d", 41, proto::Member::UP);
  EXPECT_EQ(Use(up), NodeStanding::Use::kUsable);
  EXPECT_EQ(Use(suspect), NodeStanding::Use::kLastResort);
  EXPECT_EQ(Use(leaving), NodeStanding::Use::kLastResort);
  EXPECT_EQ(Use(other_life), NodeStanding::Use::kHidden);
  EXPECT_EQ(Use(stranger), NodeStanding::Use::kHidden);
}

TEST_F(NodeTableTest, NotesBeyondTheQueueAreDroppedAndCounted) {
  const NodeSlot slot = Register("a", 10, 1);
  for (size_t i = 0; i < NodeTable::kNotesMax + 5; ++i) {
    nodes_.Orphaned(slot, ChainKey(1, i));
    nodes_.Touched(slot, ChainKey(1, i));
  }
  EXPECT_EQ(nodes_.orphans_waiting(), NodeTable::kNotesMax);
  EXPECT_EQ(nodes_.touches_waiting(), NodeTable::kNotesMax);
  nodes_.CountDropped();
  EXPECT_EQ(Value(*registry_, "tokura_coordinator_orphans_total", {{"result", "dropped"}}), 5);
  EXPECT_EQ(Value(*registry_, "tokura_coordinator_touches_total", {{"result", "dropped"}}), 5);
  EXPECT_EQ(nodes_.Find("a")->orphans.Take(1), KeyBytes(ChainKey(1, 0))) << "the oldest first";
}

TEST_F(NodeTableTest, ANewLifeStartsWithEmptyQueuesAndNoLoad) {
  const NodeSlot slot = Register("a", 10, 1);
  AddMember("a", 10, proto::Member::UP);
  nodes_.Orphaned(slot, ChainKey(1, 0));
  proto::ReportRequest report;
  report.set_inflight_bytes(1 << 20);
  nodes_.Reported(*nodes_.Find("a"), report, TimePoint());
  nodes_.Promise(slot, 1 << 20);
  EXPECT_EQ(nodes_.standings().at(slot).load, 2048u);
  nodes_.Reported(*nodes_.Find("a"), report, TimePoint());
  EXPECT_EQ(nodes_.standings().at(slot).load, 1024u) << "what was promised is in the report";
  report.set_inflight_bytes(UINT64_MAX);
  nodes_.Reported(*nodes_.Find("a"), report, TimePoint());
  nodes_.Promise(slot, 1 << 20);
  EXPECT_EQ(nodes_.standings().at(slot).load, UINT32_MAX);
  const NodeSlot next = Register("a", 11, 2);
  EXPECT_EQ(nodes_.standings().at(next).load, 0u);
  EXPECT_EQ(nodes_.orphans_waiting(), 0u);
  EXPECT_EQ(nodes_.Find("a")->orphans.incarnation(), 11u);
  EXPECT_EQ(nodes_.Find("a", 1), nullptr);
  EXPECT_NE(nodes_.Find("a", 2), nullptr);
}

TEST_F(NodeTableTest, WhoIsConnectedIsNotErased) {
  Register("a", 10, 1);
  Register("b", 20, 2);
  nodes_.Find("b")->connection = 0;
  const auto all = [](const std::string&, const NodeTable::Node&) { return true; };
  EXPECT_THAT(nodes_.Erase(all), testing::ElementsAre("b"));
  EXPECT_NE(nodes_.Find("a"), nullptr);
  EXPECT_EQ(nodes_.Find("b"), nullptr);
}

}  // namespace
}  // namespace tokura::coordinator
