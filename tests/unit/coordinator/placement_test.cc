// Weighted rendezvous: shares, movement, replicas, and the same answer everywhere.

#include "coordinator/placement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/sim/scheduler.h"

namespace tokura::coordinator {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kGiB = uint64_t{1} << 30;

proto::Member& AddMember(proto::ClusterState& state, const std::string& name, uint64_t capacity,
                         uint32_t share = 1000) {
  proto::Member& member = *state.add_members();
  member.set_node(name);
  member.set_incarnation(1);
  member.set_capacity_bytes(capacity);
  member.set_share_permille(share);
  return member;
}

std::vector<BlockKey> Roots(size_t count, uint64_t seed = 1) {
  sim::SimRandom random(seed);
  std::vector<BlockKey> roots(count);
  for (BlockKey& root : roots) {
    random.Fill(std::as_writable_bytes(std::span<uint8_t>(root.bytes)));
  }
  return roots;
}

// Names of the best `count` members, best first.
std::vector<std::string> Names(const proto::ClusterState& state, const BlockKey& root,
                               size_t count = 1) {
  std::vector<uint32_t> chosen(count);
  chosen.resize(Placement(state).Choose(root, chosen));
  std::vector<std::string> names;
  for (const uint32_t member : chosen) {
    names.push_back(state.members(static_cast<int>(member)).node());
  }
  return names;
}

std::vector<uint32_t> FirstChoices(const proto::ClusterState& state,
                                   const std::vector<BlockKey>& roots) {
  const Placement placement(state);
  std::vector<uint32_t> first(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    EXPECT_EQ(placement.Choose(roots[i], std::span(first).subspan(i, 1)), 1u);
  }
  return first;
}

TEST(Placement, NobodyToChooseFrom) {
  uint32_t out[1];
  EXPECT_EQ(Placement().Choose(BlockKey(), out), 0u);
  EXPECT_EQ(Placement().epoch(), 0u);
  proto::ClusterState state;
  state.set_epoch(9);
  EXPECT_EQ(Placement(state).Choose(BlockKey(), out), 0u);
  EXPECT_EQ(Placement(state).epoch(), 9u);
}

TEST(Placement, OnlyMembersThatAreUpAndHaveAShareAreChosen) {
  proto::ClusterState state;
  AddMember(state, "leaving", kGiB, 0).set_state(proto::Member::LEAVING);
  AddMember(state, "suspect", kGiB).set_state(proto::Member::SUSPECT);
  AddMember(state, "idle", kGiB, 0);
  AddMember(state, "up", 1, 1);
  EXPECT_EQ(Placement(state).choices(), 1u);
  for (const BlockKey& root : Roots(100)) {
    EXPECT_THAT(Names(state, root, 4), ElementsAre("up"));
  }
}

// Computed by another program, in floating point, from the definition: SplitMix64's finalizer over
// key and the SHA-256 of the name, -log2 over the weight. Whoever changes an answer moves the
// blocks of every running cluster.
TEST(Placement, GivesTheAnswersWrittenDown) {
  proto::ClusterState state;
  for (int i = 0; i < 5; ++i) {
    AddMember(state, absl::StrCat("node-", i), (i + 1) * kGiB);
  }
  std::vector<std::string> got;
  for (uint8_t i = 0; i < 12; ++i) {
    BlockKey root;
    root.bytes.fill(static_cast<uint8_t>(i * 17));
    std::string text;
    for (const std::string& name : Names(state, root, 3)) {
      text += name.back();
    }
    got.push_back(text);
  }
  EXPECT_THAT(got, ElementsAre("231", "240", "431", "124", "423", "342", "412", "423", "341", "342",
                               "321", "142"));
}

TEST(Placement, TheOrderOfMembersDoesNotMatter) {
  sim::SimRandom random(5);
  proto::ClusterState state;
  for (int i = 0; i < 20; ++i) {
    AddMember(state, absl::StrCat("n", i), kGiB + random.Below(kGiB));
  }
  const std::vector<BlockKey> roots = Roots(500);
  for (int shuffle = 0; shuffle < 5; ++shuffle) {
    proto::ClusterState other = state;
    for (int i = 19; i > 0; --i) {
      other.mutable_members()->SwapElements(i, static_cast<int>(random.Below(i + 1)));
    }
    for (const BlockKey& root : roots) {
      ASSERT_EQ(Names(state, root, 5), Names(other, root, 5));
    }
  }
}

TEST(Placement, EqualBytesOfNameAndKeyDoNotCancel) {
  // Chains of an engine may have keys that differ in a few bits only.
  proto::ClusterState state;
  for (int i = 0; i < 4; ++i) {
    AddMember(state, absl::StrCat("n", i), kGiB);
  }
  std::map<std::string, int> count;
  for (int i = 0; i < 4000; ++i) {
    BlockKey root;
    std::memcpy(root.bytes.data(), &i, sizeof(i));
    ++count[Names(state, root)[0]];
    root = BlockKey();
    std::memcpy(root.bytes.data() + 8, &i, sizeof(i));
    ++count[Names(state, root)[0]];
  }
  ASSERT_EQ(count.size(), 4u);
  for (const auto& [name, segments] : count) {
    EXPECT_NEAR(segments, 2000, 200) << name;
  }
}

TEST(Placement, SegmentsGoByCapacityTimesShare) {
  const std::vector<BlockKey> roots = Roots(200000);
  const std::vector<std::vector<std::pair<uint64_t, uint32_t>>> clusters = {
      {{kGiB, 1000}, {kGiB, 1000}},
      {{kGiB, 1000}, {3 * kGiB, 1000}, {6 * kGiB, 500}, {kGiB, 100}},
      {{1 << 20, 1000}, {3 << 20, 1000}},
      {{uint64_t{1} << 63, 1000}, {uint64_t{1} << 62, 1000}, {uint64_t{3} << 62, 700}},
  };
  for (const auto& members : clusters) {
    proto::ClusterState state;
    double total = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      AddMember(state, absl::StrCat("n", i), members[i].first, members[i].second);
      total += static_cast<double>(members[i].first) * members[i].second;
    }
    std::vector<double> got(members.size());
    for (const uint32_t member : FirstChoices(state, roots)) {
      ++got[member];
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const double share = static_cast<double>(members[i].first) * members[i].second / total;
      const double sigma = std::sqrt(share * (1 - share) * static_cast<double>(roots.size()));
      EXPECT_NEAR(got[i], share * static_cast<double>(roots.size()), 5 * sigma) << i;
    }
  }
}

TEST(Placement, ManyMembersShareEvenly) {
  proto::ClusterState state;
  for (int i = 0; i < 1024; ++i) {
    AddMember(state, absl::StrCat("n", i), kGiB);
  }
  std::vector<double> got(1024);
  const size_t count = 100 * 1024;
  for (const uint32_t member : FirstChoices(state, Roots(count))) {
    ++got[member];
  }
  double chi2 = 0;
  for (const double segments : got) {
    chi2 += (segments - 100) * (segments - 100) / 100;
  }
  // 1,023 degrees of freedom: mean 1,023, standard deviation 45.
  EXPECT_NEAR(chi2, 1023, 5 * 45);
}

TEST(Placement, OnlySegmentsOfTheMemberThatChangesMove) {
  const std::vector<BlockKey> roots = Roots(20000);
  proto::ClusterState state;
  for (int i = 0; i < 5; ++i) {
    AddMember(state, absl::StrCat("n", i), kGiB * (1 + i % 3));
  }
  AddMember(state, "joining", 2 * kGiB, 0);
  std::vector<uint32_t> before = FirstChoices(state, roots);
  size_t had = 0;
  // A ramp up in steps, a drain at the end: each moves to it, or from it, and nothing else.
  for (const uint32_t share : {100, 300, 500, 1000, 0}) {
    state.mutable_members(5)->set_share_permille(share);
    const std::vector<uint32_t> after = FirstChoices(state, roots);
    size_t has = 0;
    for (size_t i = 0; i < roots.size(); ++i) {
      has += after[i] == 5;
      if (before[i] != after[i]) {
        ASSERT_EQ(share > 0 ? after[i] : before[i], 5u);
      }
    }
    if (share > 0) {
      EXPECT_GT(has, had);
      const double weight = 2.0 * share / 1000;
      EXPECT_NEAR(static_cast<double>(has), 20000 * weight / (9 + weight), 350);
    } else {
      EXPECT_EQ(has, 0u);
    }
    had = has;
    before = after;
  }
}

TEST(Placement, TheSecondChoiceIsTheFirstWithoutTheFirst) {
  sim::SimRandom random(3);
  proto::ClusterState state;
  for (int i = 0; i < 9; ++i) {
    AddMember(state, absl::StrCat("n", i), kGiB + random.Below(8 * kGiB));
  }
  for (const BlockKey& root : Roots(300)) {
    const std::vector<std::string> all = Names(state, root, 9);
    ASSERT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 9u);
    for (size_t count = 1; count <= 9; ++count) {
      ASSERT_EQ(Names(state, root, count),
                std::vector<std::string>(all.begin(), all.begin() + static_cast<long>(count)));
    }
    proto::ClusterState without = state;
    for (proto::Member& member : *without.mutable_members()) {
      if (member.node() == all[0]) {
        member.set_state(proto::Member::SUSPECT);
      }
    }
    ASSERT_EQ(Names(without, root, 8), std::vector<std::string>(all.begin() + 1, all.end()));
  }
}

}  // namespace
}  // namespace tokura::coordinator
