// Every metric says something, in a cluster too: each family that clients and nodes have because of
// coordinators moves under what it counts.

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/integration/metrics_watch.h"
#include "tests/integration/raw_channel.h"

namespace tokura::integration {
namespace {

using ::testing::UnorderedElementsAre;

// Those of the families that have not moved which only clusters have.
std::set<std::string> UnmovedInCluster(const MetricsWatch& watch) {
  constexpr std::string_view kClusterOnly[] = {
      "tokura_client_coordinator", "tokura_client_plan",        "tokura_client_relocations",
      "tokura_client_cluster",     "tokura_client_policy",      "tokura_node_coordinators",
      "tokura_node_inventory",     "tokura_node_registrations", "tokura_node_touches",
      "tokura_node_orphans",       "tokura_node_placements"};
  std::set<std::string> unmoved;
  for (const std::string& family : watch.unmoved()) {
    for (const std::string_view prefix : kClusterOnly) {
      if (family.rfind(prefix, 0) == 0) {
        unmoved.insert(family);
      }
    }
  }
  return unmoved;
}

class IgnoredCall final : public net::Call {
 public:
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status, std::span<const std::byte>) override {}
};

class ClusterMetricsTest : public ClusterTest {
 protected:
  static constexpr uint32_t kBlocks = 64;

  ClusterMetricsTest() {
    ClientOptions options = Options({});
    options.coordinators = cluster_.addresses();
    auto client = Client::Create(std::move(options), registry_);
    TOKURA_CHECK(client.ok());
    client_ = std::move(*client);
    const absl::Status ready = client_->WaitReady(std::chrono::seconds(20));
    EXPECT_TRUE(ready.ok()) << ready;
    // Both watches begin where everybody knows everybody.
    of_client_ = std::make_unique<MetricsWatch>(
        [this] { return prometheus::TextSerializer().Serialize(registry_->Collect()); });
    of_node_ = std::make_unique<MetricsWatch>([this] {
      int status = 0;
      return cluster_.node(0).Http("/metrics", &status);
    });
  }

  static void ExpectMoves(MetricsWatch& watch, const std::string& name) {
    EXPECT_TRUE(WaitFor([&] { return watch.Moves(name); })) << name << " never moves";
  }
  void PlansAndBatches();
  void Touches();
  void Relocation();
  void Orphans();
  void LostCoordinator();
  void OldPlacement();

  ClusterUnderTest cluster_{{.nodes = 2, .coordinators = 2}};
  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::unique_ptr<Client> client_;
  std::unique_ptr<MetricsWatch> of_client_;
  std::unique_ptr<MetricsWatch> of_node_;
  const NamespaceRef space_ = std::make_shared<const Namespace>(TestSpace());
};

void ClusterMetricsTest::PlansAndBatches() {
  ASSERT_EQ(Store(*client_, 1, kBlocks), kBlocks);
  ASSERT_TRUE(cluster_.WaitForBlocks(kBlocks));
  ASSERT_EQ(Store(*client_, 1, kBlocks), kBlocks);
  ExpectMoves(*of_client_, "tokura_client_plan_blocks_total{plan=\"sent\"}");
  ExpectMoves(*of_client_, "tokura_client_plan_blocks_total{plan=\"held\"}");
  ExpectMoves(*of_client_, "tokura_client_coordinator_requests_total{op=\"plan\",result=\"ok\"}");
  ExpectMoves(*of_node_, "tokura_node_inventory_batches_total{kind=\"changes\"}");
  ExpectMoves(*of_node_, "tokura_node_inventory_records_total{kind=\"changes\"}");
}

void ClusterMetricsTest::Touches() {
  EXPECT_EQ(Lookup(*client_, 1, kBlocks).blocks(), kBlocks);
  ExpectMoves(*of_client_, "tokura_client_coordinator_requests_total{op=\"locate\",result=\"ok\"}");
  ExpectMoves(*of_node_, "tokura_node_touches_total{life=\"this\"}");
}

void ClusterMetricsTest::Relocation() {
  ASSERT_EQ(Store(*client_, 2, kBlocks), kBlocks);
  ASSERT_TRUE(cluster_.WaitForBlocks(2 * kBlocks));
  const Match match = Lookup(*client_, 2, kBlocks);
  EXPECT_TRUE(client_->Remove(space_, match.keys).blocks.front().ok());
  KvMemory target(kBlocks);
  EXPECT_EQ(client_->Get(space_, match, target.View()).prefix_ok(), 0u);
  ExpectMoves(*of_client_, "tokura_client_relocations_total");
}

void ClusterMetricsTest::Orphans() {
  const Match match = Lookup(*client_, 1, kBlocks);
  ASSERT_EQ(match.blocks(), kBlocks);
  EXPECT_TRUE(client_->Remove(space_, {match.keys.front()}).blocks.front().ok());
  ExpectMoves(*of_node_, "tokura_node_orphans_total{life=\"this\"}");
}

void ClusterMetricsTest::LostCoordinator() {
  ASSERT_EQ(Store(*client_, 3, kBlocks), kBlocks);
  Match match;
  ASSERT_TRUE(WaitFor([&] {
    match = Lookup(*client_, 3, kBlocks);
    return match.blocks() == kBlocks;
  }));
  cluster_.coordinator(0).process().Stop();
  // What changes now, it cannot be told.
  client_->Remove(space_, match.keys);
  ExpectMoves(*of_node_, "tokura_node_inventory_lag_changes");
  cluster_.coordinator(0).Kill();
  EXPECT_TRUE(WaitFor([&] { return Store(*client_, 4, kBlocks) == kBlocks; }));
  ExpectMoves(*of_client_, "tokura_client_coordinator_failovers_total");
  ExpectMoves(*of_client_, "tokura_client_coordinators{breaker=\"open\"}");
  ExpectMoves(*of_node_, "tokura_node_coordinators_registered");
  cluster_.RestartCoordinator(0);
  ExpectMoves(*of_node_, "tokura_node_registrations_total{result=\"admitted\"}");
  ExpectMoves(*of_node_, "tokura_node_inventory_snapshots_total");
  ExpectMoves(*of_node_, "tokura_node_inventory_batches_total{kind=\"snapshot\"}");
  ExpectMoves(*of_client_, "tokura_client_cluster_epoch");
  EXPECT_TRUE(cluster_.WaitUntilUp(2));
}

void ClusterMetricsTest::OldPlacement() {
  PolledTransport transport;
  RawChannel raw(transport, cluster_.node(0).data(), SoundHello(transport));
  // The node leaves, and waits a while for the coordinator that is stopped to know.
  cluster_.coordinator(1).process().Stop();
  cluster_.node(0).process().Signal(SIGTERM);
  proto::PutRequest put;
  put.set_fingerprint(std::string(Fingerprint::kBytes, 'f'));
  put.set_codec("raw");
  put.set_group_mask(1);
  put.set_shards(1);
  put.set_shard_count(1);
  put.set_placement_epoch(1);
  proto::PutBlock& block = *put.add_blocks();
  block.set_key(std::string(BlockKey::kBytes, 'k'));
  block.set_content_id(std::string(ContentId::kBytes, 'c'));
  EXPECT_TRUE(transport.PollUntil([&] {
    raw.channel().Send(net::Op::kPut, put, kNever, std::make_shared<IgnoredCall>());
    return of_node_->Moves("tokura_node_placements_refused_total");
  }));
  cluster_.coordinator(1).process().Signal(SIGCONT);
}

TEST_F(ClusterMetricsTest, EveryFamilyMoves) {
  PlansAndBatches();
  Touches();
  Relocation();
  Orphans();
  LostCoordinator();
  OldPlacement();
  // A put is planned again only when its node leaves in the middle of it, which is left to chance
  // here; and no policy asks for more than clients can do (tests/unit/client has both).
  EXPECT_THAT(UnmovedInCluster(*of_client_),
              UnorderedElementsAre("tokura_client_plans_renewed_total",
                                   "tokura_client_policy_codec_unusable_total"));
  EXPECT_THAT(UnmovedInCluster(*of_node_), UnorderedElementsAre());
}

}  // namespace
}  // namespace tokura::integration
