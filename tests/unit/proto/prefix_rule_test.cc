#include "proto/prefix_rule.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace tokura {
namespace {

NamespaceSpec FullAndSliding() {
  NamespaceSpec spec;
  spec.block_tokens = 16;
  spec.groups.resize(2);
  spec.groups[1].kind = AttentionKind::kSliding;
  spec.groups[1].window = 17;  // two blocks
  return spec;
}

TEST(PrefixRuleTest, GroupsFollowFromTheNamespace) {
  const PrefixRule rule(FullAndSliding());
  EXPECT_EQ(rule.Needed(0, 4), 1u);
  EXPECT_EQ(rule.Needed(1, 4), 1u);
  EXPECT_EQ(rule.Needed(2, 4), 3u);
  EXPECT_EQ(rule.Needed(0, 1), 3u);
  EXPECT_EQ(rule.MustFollow(3), 0u);
  EXPECT_EQ(rule.MustFollow(1), 2u);
  EXPECT_EQ(rule.MustFollow(2), PrefixRule::kNever);
  EXPECT_EQ(PrefixRule().MustFollow(0), 0u) << "without groups any block will do";
}

TEST(PrefixRuleTest, SlidingGroupsCountAtTheEndOnly) {
  const PrefixRule rule(FullAndSliding());
  const auto usable = [&](std::vector<uint32_t> masks) { return rule.UsablePrefix(masks); };
  EXPECT_EQ(usable({}), 0u);
  EXPECT_EQ(usable({3, 3, 3}), 3u);
  EXPECT_EQ(usable({1, 1, 3, 3}), 4u);
  EXPECT_EQ(usable({3, 1, 3, 1}), 1u);
  EXPECT_EQ(usable({3, 3, 2, 3}), 2u) << "a full group must not have a hole";
  EXPECT_EQ(usable({1, 3, 1}), 0u);
}

TEST(PrefixRuleTest, TravelsAsAMessage) {
  proto::LocateRequest request;
  PrefixRule(FullAndSliding()).Write(*request.mutable_groups());
  ASSERT_EQ(request.groups_size(), 2);
  EXPECT_EQ(request.groups(1).tail_blocks(), 2u);
  const auto read = PrefixRule::Read(request.groups());
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->MustFollow(1), 2u);
  request.add_groups()->set_group(1);
  EXPECT_EQ(PrefixRule::Read(request.groups()).status().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_groups(2)->set_group(8);
  EXPECT_EQ(PrefixRule::Read(request.groups()).status().code(), absl::StatusCode::kInvalidArgument);
}

// The definition: the longest n for which every block has what Needed says.
size_t Longest(const PrefixRule& rule, const std::vector<uint32_t>& masks) {
  size_t longest = 0;
  for (size_t n = 1; n <= masks.size(); ++n) {
    bool all = true;
    for (size_t i = 0; i < n; ++i) {
      const uint32_t needed = rule.Needed(i, n);
      all = all && (masks[i] & needed) == needed;
    }
    longest = all ? n : longest;
  }
  return longest;
}

TEST(PrefixRuleTest, TheUsablePrefixIsTheLongestThatHasWhatItNeeds) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    proto::LocateRequest request;
    for (uint32_t group = 0; group < 3; ++group) {
      if (random() % 3 > 0) {
        proto::GroupRule& rule = *request.add_groups();
        rule.set_group(group);
        rule.set_tail_blocks(random() % 5);
      }
    }
    const PrefixRule rule = PrefixRule::Read(request.groups()).value();
    std::vector<uint32_t> masks(random() % 12);
    for (uint32_t& mask : masks) {
      mask = random() % 2 == 0 ? 7 : random() % 8;
    }
    EXPECT_EQ(rule.UsablePrefix(masks), Longest(rule, masks)) << request.ShortDebugString();
  }
}

}  // namespace
}  // namespace tokura
