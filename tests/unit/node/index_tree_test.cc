#include "cache-node/index_tree.h"

#include <gtest/gtest.h>

#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

constexpr uint32_t kChildren = 50'000;

// A parent with 50,000 children, which is what a peer may claim.
class FanOutTest : public ::testing::Test {
 protected:
  FanOutTest() {
    parent_ = tree_.GetOrCreate(Space(), Key(0), {});
    parent_->forms = 1;
    SetComplete(true);
    for (uint32_t i = 1; i <= kChildren; ++i) {
      children_.push_back(AddChild(i));
    }
  }
  StoredBlock* AddChild(uint64_t number) {
    return tree_.GetOrCreate(Space(), Key(number), {Key(0), 1});
  }
  void SetComplete(bool complete) {
    parent_->complete = complete ? &form_ : nullptr;
    tree_.Changed(*parent_);
  }
  size_t Orphans() const {
    size_t count = 0;
    for (const StoredBlock* child : children_) {
      count += child->orphan ? 1 : 0;
    }
    return count;
  }

  VictimQueue queue_;
  ChainTree tree_{kChildren + 10, queue_};
  StoredForm form_;
  StoredBlock* parent_ = nullptr;
  std::vector<StoredBlock*> children_;
};

TEST_F(FanOutTest, LinkingAChildLeavesNothingToDo) {
  EXPECT_FALSE(tree_.PropagateOrphans(0));
  SetComplete(false);
  while (tree_.PropagateOrphans(1000)) {
  }
  StoredBlock* late = AddChild(kChildren + 1);
  EXPECT_TRUE(late->orphan);
  EXPECT_FALSE(tree_.PropagateOrphans(0)) << "the siblings are walked again";
}

TEST_F(FanOutTest, ChildrenCountAsSteps) {
  SetComplete(false);
  EXPECT_EQ(Orphans(), 0u);
  for (size_t calls = 1; calls <= 3; ++calls) {
    EXPECT_TRUE(tree_.PropagateOrphans(256));
    EXPECT_EQ(Orphans(), calls * 256);
  }
  while (tree_.PropagateOrphans(4096)) {
  }
  EXPECT_EQ(Orphans(), kChildren);
}

TEST_F(FanOutTest, TheParentsReturnStartsAgainFromTheFirst) {
  SetComplete(false);
  EXPECT_TRUE(tree_.PropagateOrphans(256));
  SetComplete(true);
  EXPECT_FALSE(AddChild(kChildren + 1)->orphan);
  while (tree_.PropagateOrphans(4096)) {
  }
  EXPECT_EQ(Orphans(), 0u);
}

TEST_F(FanOutTest, ChildrenMayGoHalfway) {
  SetComplete(false);
  EXPECT_TRUE(tree_.PropagateOrphans(256));
  // Children are visited from the last linked on: the next ones to visit go, and one before.
  for (size_t i = 0; i < 3; ++i) {
    const size_t index = kChildren - 257 + (i == 2 ? 50 : 0) - (i == 1 ? 1 : 0);
    tree_.ReleaseIfUnused(*children_[index]);
    children_[index] = parent_;
  }
  while (tree_.PropagateOrphans(4096)) {
  }
  EXPECT_EQ(Orphans(), kChildren - 3);
}

}  // namespace
}  // namespace tokura::node
