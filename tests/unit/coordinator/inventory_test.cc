#include "coordinator/inventory.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/prefix_index_testing.h"

namespace tokura::coordinator {
namespace {

void Append(std::string& bytes, const BlockKey& key) {
  bytes.append(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

proto::InventoryBatch Batch(uint64_t first_seq, uint64_t last_seq) {
  proto::InventoryBatch batch;
  batch.set_node("n");
  batch.set_incarnation(7);
  batch.set_first_seq(first_seq);
  batch.set_last_seq(last_seq);
  proto::FormClass& form_class = *batch.add_classes();
  form_class.set_codec("raw");
  form_class.set_group_mask(1);
  form_class.set_shards(1);
  form_class.set_fidelity(kWireExact);
  return batch;
}

proto::InventoryBatch Chunk(uint64_t seq, uint64_t snapshot, uint32_t chunk, bool last) {
  proto::InventoryBatch batch = Batch(seq, seq);
  batch.set_snapshot(snapshot);
  batch.set_chunk(chunk);
  batch.set_last_chunk(last);
  return batch;
}

// Blocks of IndexFixture's chain.
proto::InventoryBatch Hold(proto::InventoryBatch batch, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; ++i) {
    Append(*batch.mutable_keys(), IndexFixture::Key(i));
    Append(*batch.mutable_parents(), IndexFixture::Key(i - 1));
    batch.add_forms(1);
    batch.add_form_class(0);
    batch.add_stored_bytes(100 * i);
    batch.add_error_mean(0);
    batch.add_error_max(0);
  }
  return batch;
}

proto::InventoryBatch Lose(proto::InventoryBatch batch, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; ++i) {
    Append(*batch.mutable_removed(), IndexFixture::Key(i));
  }
  return batch;
}

class InventoryTest : public testing::Test {
 protected:
  explicit InventoryTest(PlantedBugs bugs = {}) : inventory_(*fixture_.index, bugs) {
    fixture_.nodes.assign(8, NodeStanding{NodeStanding::Use::kUsable, 0});
    slot_ = inventory_.Admit("n", 7).value();
  }
  // Apply; whether it asks for a snapshot.
  bool Apply(const proto::InventoryBatch& batch) {
    const auto reply = inventory_.Apply(batch);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() && reply->send_snapshot();
  }
  uint32_t Found(uint32_t blocks = 100) { return fixture_.Locate(blocks).prefix_blocks; }
  const NodeLife& Life() { return *inventory_.Find("n"); }
  void Settle() {
    while (fixture_.index->Work(100, PrefixIndex::Orphans::kTell)) {
    }
    EXPECT_TRUE(fixture_.index->CheckInvariants().ok()) << fixture_.index->CheckInvariants();
  }

  IndexFixture fixture_;
  Inventory inventory_;
  NodeSlot slot_ = 0;
};

TEST_F(InventoryTest, AnUnknownInventoryIsAskedForAndFound) {
  EXPECT_TRUE(Life().wants_snapshot);
  EXPECT_TRUE(Apply(Hold(Batch(3, 5), 1, 2))) << "deltas of nothing";
  EXPECT_EQ(Found(), 0u);
  EXPECT_FALSE(Apply(Hold(Chunk(5, 1, 0, false), 1, 3)));
  EXPECT_FALSE(Life().wants_snapshot);
  EXPECT_FALSE(Life().complete);
  EXPECT_EQ(Found(), 3u) << "the first inventory is of use while it comes";
  EXPECT_FALSE(Apply(Hold(Chunk(5, 1, 1, true), 4, 5)));
  EXPECT_TRUE(Life().complete);
  EXPECT_EQ(Life().last_seq, 5u);
  EXPECT_EQ(Found(), 5u);
  EXPECT_EQ(inventory_.Blocks(slot_), 5u);
}

TEST_F(InventoryTest, DeltasFollowAndAGapAsksForASnapshot) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 5));
  EXPECT_FALSE(Apply(Hold(Batch(5, 8), 6, 7)));
  EXPECT_FALSE(Apply(Lose(Batch(8, 9), 7, 7)));
  EXPECT_EQ(Found(), 6u);
  EXPECT_TRUE(Apply(Lose(Batch(10, 11), 1, 1)));
  EXPECT_FALSE(Life().complete);
  EXPECT_EQ(Found(), 6u) << "what does not follow is not applied";
  EXPECT_TRUE(Apply(Lose(Batch(11, 12), 1, 1))) << "nor is what follows that";
  EXPECT_EQ(inventory_.stats().gaps, 1u);
  EXPECT_FALSE(Apply(Hold(Chunk(12, 1, 0, true), 1, 2)));
  EXPECT_EQ(Found(), 2u);
  Settle();
  EXPECT_EQ(inventory_.Blocks(slot_), 2u);
  EXPECT_EQ(fixture_.index->stats().blocks, 2u);
}

TEST_F(InventoryTest, WhatIsKnownAlreadyIsNoGap) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 5));
  EXPECT_FALSE(Apply(Lose(Batch(5, 8), 5, 5)));
  EXPECT_FALSE(Apply(Hold(Batch(5, 7), 5, 5))) << "older than what is known: left out";
  EXPECT_EQ(Found(), 4u);
  EXPECT_EQ(inventory_.stats().stale_batches, 1u);
  EXPECT_FALSE(Apply(Lose(Batch(6, 10), 4, 4))) << "begins early, and is true all the same";
  EXPECT_EQ(Found(), 3u);
  EXPECT_EQ(Life().last_seq, 10u);
}

TEST_F(InventoryTest, ASnapshotReplacesTheOldInventoryAtOnce) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 8));
  Apply(Hold(Chunk(9, 2, 0, false), 1, 2));
  EXPECT_EQ(Found(), 8u) << "until the last chunk the old one is what is known";
  EXPECT_TRUE(fixture_.Locate(8).alternates.empty()) << "a node is no alternate of itself";
  Apply(Hold(Chunk(9, 2, 1, true), 3, 3));
  EXPECT_EQ(Found(), 3u);
  Settle();
  EXPECT_EQ(fixture_.index->stats().forms, 3u);
}

TEST_F(InventoryTest, DeltasDuringASnapshotReachBothInventories) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 4));
  Apply(Hold(Chunk(5, 2, 0, false), 1, 3));
  EXPECT_FALSE(Apply(Lose(Batch(5, 6), 3, 3)));
  EXPECT_EQ(Found(), 2u);
  EXPECT_FALSE(Apply(Hold(Batch(6, 7), 3, 3)));
  EXPECT_FALSE(Apply(Lose(Batch(7, 8), 2, 2)));
  Apply(Hold(Chunk(5, 2, 1, true), 4, 5));
  EXPECT_EQ(Found(), 1u);
  EXPECT_EQ(Life().last_seq, 8u);
  EXPECT_FALSE(Apply(Hold(Batch(8, 9), 2, 2)));
  EXPECT_EQ(Found(), 5u);
}

TEST_F(InventoryTest, DeltasOfTheSnapshotNeedNotFollowTheOldInventory) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 4));
  Apply(Hold(Chunk(20, 2, 0, false), 1, 2));
  EXPECT_FALSE(Apply(Hold(Batch(20, 21), 3, 3))) << "the snapshot under way is what matters";
  Apply(Chunk(20, 2, 1, true));
  EXPECT_EQ(Found(), 3u);
  EXPECT_TRUE(Life().complete);
}

TEST_F(InventoryTest, AnUnfinishedSnapshotIsBegunAgain) {
  Apply(Hold(Chunk(5, 1, 0, false), 1, 6));
  EXPECT_FALSE(Apply(Hold(Chunk(9, 2, 0, false), 1, 2)));
  EXPECT_EQ(Found(), 2u);
  Apply(Hold(Chunk(9, 2, 1, true), 3, 3));
  EXPECT_EQ(Found(), 3u);
  EXPECT_EQ(inventory_.stats().snapshots_restarted, 1u);
  Settle();
  EXPECT_EQ(fixture_.index->stats().forms, 3u);
}

TEST_F(InventoryTest, ALostChunkEndsTheSnapshot) {
  const std::vector<proto::InventoryBatch> misfits = {Hold(Chunk(5, 1, 2, true), 7, 9),
                                                      Hold(Chunk(5, 2, 1, true), 7, 9),
                                                      Hold(Chunk(6, 1, 1, true), 7, 9)};
  for (const proto::InventoryBatch& misfit : misfits) {
    Apply(Hold(Chunk(5, 1, 0, false), 1, 6));
    EXPECT_TRUE(Apply(misfit));
    EXPECT_TRUE(Life().wants_snapshot);
    EXPECT_EQ(Found(), 0u);
  }
  Settle();
  EXPECT_EQ(fixture_.index->stats().forms, 0u);
}

TEST_F(InventoryTest, AGapDuringASnapshotEndsIt) {
  Apply(Hold(Chunk(5, 1, 0, false), 1, 6));
  EXPECT_TRUE(Apply(Hold(Batch(6, 7), 7, 7)));
  EXPECT_TRUE(Apply(Hold(Chunk(5, 1, 1, true), 8, 9)));
  EXPECT_FALSE(Life().complete);
}

TEST_F(InventoryTest, AHigherIncarnationEndsTheLifeBefore) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 6));
  EXPECT_EQ(inventory_.Admit("n", 7).value(), slot_) << "again: nothing changes";
  EXPECT_EQ(Found(), 6u);
  EXPECT_EQ(inventory_.Admit("n", 6).status().code(), absl::StatusCode::kFailedPrecondition);
  const NodeSlot next = inventory_.Admit("n", 8).value();
  EXPECT_NE(next, slot_) << "its events must not reach the new life";
  EXPECT_EQ(inventory_.Find(slot_), nullptr);
  EXPECT_EQ(Found(), 0u);
  EXPECT_EQ(inventory_.Apply(Hold(Batch(5, 6), 1, 1)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  Settle();
  EXPECT_EQ(inventory_.Admit("other", 1).value(), slot_) << "swept, so it can be used again";
}

TEST_F(InventoryTest, AForgottenNodeIsNotFound) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 6));
  inventory_.Forget("n");
  EXPECT_EQ(Found(), 0u);
  EXPECT_EQ(inventory_.Find("n"), nullptr);
  EXPECT_EQ(inventory_.Apply(Batch(5, 6)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(inventory_.stats().lives, 0u);
}

TEST_F(InventoryTest, WithoutRoomForANewLifeTheOldOneStays) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 3));
  for (size_t i = 1; i < Inventory::kLivesMax; ++i) {
    ASSERT_TRUE(inventory_.Admit("n" + std::to_string(i), 1).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(inventory_.Admit("n", 8).status()));
  EXPECT_EQ(Life().incarnation, 7u);
  EXPECT_EQ(Life().slot, slot_);
  EXPECT_EQ(Found(), 3u);
}

TEST_F(InventoryTest, EveryBatchIsCountedOnce) {
  Apply(Hold(Batch(3, 5), 1, 2));            // of no use before a snapshot
  Apply(Hold(Chunk(5, 1, 0, false), 1, 2));  // applied
  Apply(Hold(Chunk(5, 1, 2, true), 5, 6));   // a chunk is missing
  Apply(Hold(Chunk(5, 2, 0, true), 1, 2));   // applied
  Apply(Hold(Batch(5, 6), 3, 3));            // applied
  Apply(Hold(Batch(4, 5), 3, 3));            // known
  Apply(Hold(Batch(7, 8), 4, 4));            // a gap
  Apply(Hold(Chunk(8, 3, 0, false), 1, 4));  // applied
  Apply(Hold(Batch(9, 10), 5, 5));           // a gap in the snapshot under way
  EXPECT_EQ(inventory_.stats().batches, 4u);
  EXPECT_EQ(inventory_.stats().gaps, 3u);
  EXPECT_EQ(inventory_.stats().stale_batches, 2u);
  EXPECT_EQ(inventory_.stats().refused_batches, 0u);
}

// A link that breaks in every snapshot, faster than old ones are swept.
TEST_F(InventoryTest, ManySnapshotsThatWaitToBeSweptLeaveRoomForTheLast) {
  for (uint64_t snapshot = 1; snapshot <= 3 * PrefixIndex::kFormsMax; ++snapshot) {
    Apply(Hold(Chunk(5, snapshot, 0, false), 1, 4));
  }
  Apply(Hold(Chunk(5, 1000, 0, true), 1, 4));
  EXPECT_EQ(Found(), 4u);
  EXPECT_EQ(fixture_.index->stats().refused_forms, 0u);
  Settle();
  EXPECT_EQ(Found(), 4u);
  EXPECT_EQ(fixture_.index->stats().forms, 4u);
  EXPECT_EQ(fixture_.index->stats().sources_swept, 0u);
}

TEST_F(InventoryTest, MalformedBatchesAreRefusedWhole) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 3));
  const std::map<std::string, std::function<void(proto::InventoryBatch&)>> damages = {
      {"keys has", [](auto& b) { b.mutable_keys()->pop_back(); }},
      {"removed has", [](auto& b) { b.set_removed("abc"); }},
      {"parents", [](auto& b) { b.mutable_parents()->resize(16); }},
      {"forms has", [](auto& b) { b.add_forms(1); }},
      {"in no form", [](auto& b) { b.set_forms(0, 0); }},
      {"at most", [](auto& b) { b.set_forms(0, 4294967295u); }},
      {"columns", [](auto& b) { b.add_stored_bytes(1); }},
      {"columns of 1", [](auto& b) { b.mutable_form_class()->RemoveLast(); }},
      {"columns of 2, 2, 1", [](auto& b) { b.mutable_error_mean()->RemoveLast(); }},
      {"2 and 1", [](auto& b) { b.mutable_error_max()->RemoveLast(); }},
      {"class 1 of 1", [](auto& b) { b.set_form_class(1, 1); }},
      {"not a number", [](auto& b) { b.set_error_mean(0, std::nanf("")); }},
      {"negative", [](auto& b) { b.set_error_max(1, -1); }},
      {"key 0 is zero", [](auto& b) { b.mutable_keys()->replace(0, 16, 16, '\0'); }},
      {"its own parent", [](auto& b) { *b.mutable_parents() = b.keys(); }},
      {"above last_seq", [](auto& b) { b.set_first_seq(7); }},
      {"no chunks", [](auto& b) { b.set_chunk(1); }},
      {"of one position", [](auto& b) { b.set_snapshot(2); }},
      {"codec", [](auto& b) { b.mutable_classes(0)->set_codec(""); }},
      {"fidelity", [](auto& b) { b.mutable_classes(0)->set_fidelity(4); }},
      {"group_mask", [](auto& b) { b.mutable_classes(0)->set_group_mask(256); }},
      {"shards", [](auto& b) { b.mutable_classes(0)->set_shards(0); }},
      {"keys; at most", [](auto& b) { b.mutable_removed()->resize(16 * 4096); }},
  };
  for (const auto& [message, damage] : damages) {
    proto::InventoryBatch batch = Hold(Batch(5, 6), 4, 5);
    damage(batch);
    const auto reply = inventory_.Apply(batch);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_NE(reply.status().message().find(message), std::string::npos) << reply.status();
  }
  proto::InventoryBatch removing = Lose(Chunk(6, 2, 0, true), 1, 1);
  EXPECT_EQ(inventory_.Apply(removing).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Found(), 3u);
  EXPECT_EQ(Life().last_seq, 5u);
  EXPECT_EQ(inventory_.stats().refused_batches, damages.size() + 1);
}

class IgnoredGapsTest : public InventoryTest {
 protected:
  static PlantedBugs Bugs() {
    PlantedBugs bugs;
    bugs.ignore_gaps = true;
    return bugs;
  }
  IgnoredGapsTest() : InventoryTest(Bugs()) {}
};

TEST_F(IgnoredGapsTest, ThePlantedBugTakesWhatDoesNotFollow) {
  Apply(Hold(Chunk(5, 1, 0, true), 1, 3));
  EXPECT_FALSE(Apply(Hold(Batch(9, 10), 4, 4)));
  EXPECT_EQ(Found(), 4u);
}

// A node's log and a connection that loses batches: whatever happens, after a snapshot and all
// deltas the index has exactly what the node has.
TEST_F(InventoryTest, AnyHistoryEndsWithWhatTheNodeHas) {
  std::mt19937_64 random(11);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::map<uint32_t, bool> held;
  std::vector<uint32_t> log;  // entry i: the block that change i + 1 was about
  size_t told = 0;
  uint64_t snapshot = 0;
  bool asked = true;
  const auto state = [&](proto::InventoryBatch batch, uint32_t block) {
    return held[block] ? Hold(std::move(batch), block, block)
                       : Lose(std::move(batch), block, block);
  };
  const auto change = [&] {
    const uint32_t block = 1 + below(40);
    held[block] = below(3) > 0;
    log.push_back(block);
  };
  const auto send_delta = [&] {
    const size_t last = std::min(log.size(), told + below(6));
    proto::InventoryBatch batch = Batch(told, last);
    for (const uint32_t block : std::set<uint32_t>(log.begin() + told, log.begin() + last)) {
      batch = state(std::move(batch), block);
    }
    told = last;
    asked = (below(8) > 0 && Apply(batch)) || asked;  // one in eight is lost
  };
  const auto send_snapshot = [&] {
    told = log.size();
    const uint64_t begun = told;
    ++snapshot;
    asked = false;
    for (uint32_t chunk = 0; chunk < 4 && !asked; ++chunk) {
      proto::InventoryBatch batch = Chunk(begun, snapshot, chunk, chunk == 3);
      for (uint32_t block = 1 + chunk * 10; block <= (chunk + 1) * 10; ++block) {
        batch = held[block] ? Hold(std::move(batch), block, block) : std::move(batch);
      }
      asked = Apply(batch);
      change();
      send_delta();
    }
  };
  uint64_t compared = 0;
  for (int step = 0; step < 4000 && !HasFailure(); ++step) {
    change();
    if (asked) {
      send_snapshot();
    } else {
      send_delta();
    }
    if (Life().complete && Life().last_seq == log.size()) {
      ++compared;
      uint64_t blocks = 0;
      uint32_t prefix = 0;
      for (uint32_t block = 1; block <= 40; ++block) {
        blocks += held[block] ? 1 : 0;
        prefix += prefix + 1 == block && held[block] ? 1 : 0;
      }
      EXPECT_EQ(inventory_.Blocks(slot_), blocks);
      EXPECT_EQ(Found(), prefix);
    }
    fixture_.index->Work(below(50), PrefixIndex::Orphans::kTell);
  }
  EXPECT_GT(compared, 100u);
  Settle();
}

}  // namespace
}  // namespace tokura::coordinator
