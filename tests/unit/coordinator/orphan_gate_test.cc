#include "coordinator/orphan_gate.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/prefix_index_testing.h"

namespace tokura::coordinator {
namespace {

using std::chrono::seconds;

class OrphanGateTest : public testing::Test {
 protected:
  OrphanGateTest() : inventory_(*fixture_.index) { state_.set_epoch(1); }

  void AddMember(const std::string& name) { state_.add_members()->set_node(name); }
  void Register(const std::string& name, uint64_t incarnation = 1) {
    ASSERT_TRUE(inventory_.Admit(name, incarnation).ok());
  }
  proto::InventoryBatch Batch(const std::string& name) {
    proto::InventoryBatch batch;
    batch.set_node(name);
    batch.set_incarnation(inventory_.Find(name)->incarnation);
    return batch;
  }
  // Its whole inventory, which is empty.
  void Complete(const std::string& name) {
    proto::InventoryBatch batch = Batch(name);
    batch.set_snapshot(1);
    batch.set_last_chunk(true);
    ASSERT_TRUE(inventory_.Apply(batch).ok());
  }
  void LoseABatch(const std::string& name) {
    proto::InventoryBatch batch = Batch(name);
    batch.set_first_seq(100);
    batch.set_last_seq(100);
    ASSERT_TRUE(inventory_.Apply(batch).ok());
  }
  bool OpenAt(Duration after) { return gate_.Open(state_, inventory_, TimePoint(after)); }

  IndexFixture fixture_;
  Inventory inventory_;
  proto::ClusterState state_;
  OrphanGate gate_;
};

TEST_F(OrphanGateTest, IsShutWithoutAStateAndOpenWithoutNodes) {
  EXPECT_TRUE(OpenAt(seconds(1)));
  state_.set_epoch(0);
  EXPECT_FALSE(OpenAt(seconds(2)));
  EXPECT_FALSE(OpenAt(seconds(2) + 2 * OrphanGate::kWaitMax));
}

TEST_F(OrphanGateTest, WaitsForTheInventoryOfEveryLife) {
  Register("a");
  Register("b");
  Complete("a");
  EXPECT_FALSE(OpenAt(seconds(1)));
  Complete("b");
  EXPECT_TRUE(OpenAt(seconds(1)));
  LoseABatch("a");
  EXPECT_FALSE(OpenAt(seconds(2)));
  Complete("a");
  EXPECT_TRUE(OpenAt(seconds(2)));
}

TEST_F(OrphanGateTest, WaitsForMembersThatHaveNotRegisteredHere) {
  AddMember("a");
  AddMember("b");
  Register("a");
  Complete("a");
  EXPECT_FALSE(OpenAt(seconds(1)));
  Register("b");
  EXPECT_FALSE(OpenAt(seconds(2)));
  Complete("b");
  EXPECT_TRUE(OpenAt(seconds(3)));
  inventory_.Forget("b");
  EXPECT_FALSE(OpenAt(seconds(4)));
  state_.mutable_members()->RemoveLast();
  EXPECT_TRUE(OpenAt(seconds(4))) << "what it had is gone";
}

TEST_F(OrphanGateTest, ANodeHoldsBackOrphansForABoundedTime) {
  AddMember("a");
  EXPECT_FALSE(OpenAt(seconds(1)));
  Register("a");
  EXPECT_FALSE(OpenAt(OrphanGate::kWaitMax));
  Register("a", 2);  // Starts again and again.
  EXPECT_FALSE(OpenAt(OrphanGate::kWaitMax));
  EXPECT_TRUE(OpenAt(OrphanGate::kWaitMax + seconds(1)));
  Register("b");
  EXPECT_FALSE(OpenAt(OrphanGate::kWaitMax + seconds(1))) << "another one has its own time";
  EXPECT_FALSE(OpenAt(2 * OrphanGate::kWaitMax));
  Complete("a");
  EXPECT_TRUE(OpenAt(2 * OrphanGate::kWaitMax + seconds(1)));
  LoseABatch("a");
  EXPECT_FALSE(OpenAt(2 * OrphanGate::kWaitMax + seconds(2))) << "complete in between";
}

}  // namespace
}  // namespace tokura::coordinator
