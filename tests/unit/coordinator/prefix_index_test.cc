#include "coordinator/prefix_index.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/prefix_index_testing.h"

namespace tokura::coordinator {
namespace {

using Use = NodeStanding::Use;

TEST(PrefixIndexTest, RunsCoverThePrefixUpToTheFirstHole) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.Put(a, 1, 4);
  fixture.Put(b, 5, 6);
  fixture.Put(b, 8, 9);
  const LocateResult result = fixture.Locate(9);
  EXPECT_EQ(result.prefix_blocks, 6u);
  EXPECT_EQ(IndexFixture::Text(result.runs), "0:0+4 1:4+2");
  EXPECT_EQ(result.runs[0].stored_bytes, 4000u);
  EXPECT_TRUE(result.alternates.empty());
}

TEST(PrefixIndexTest, ARunGoesOnWithItsNodeAndOthersAreAlternates) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.Put(a, 1, 3);
  fixture.Put(a, 6, 6);
  fixture.Put(b, 2, 6);
  fixture.nodes[1].load = 0;
  fixture.nodes[0].load = 9;
  const LocateResult result = fixture.Locate(6);
  EXPECT_EQ(IndexFixture::Text(result.runs), "0:0+3 1:3+3");
  EXPECT_EQ(IndexFixture::Text(result.alternates), "1:1+2 0:5+1");
}

TEST(PrefixIndexTest, TheLeastLoadedNodeBegins) {
  IndexFixture fixture;
  for (NodeSlot node = 0; node < 3; ++node) {
    fixture.Put(fixture.AddSource(node), 1, 4);
  }
  fixture.nodes[0].load = 5;
  fixture.nodes[1].load = 7;
  fixture.nodes[2].load = 2;
  const LocateResult result = fixture.Locate(4);
  EXPECT_EQ(IndexFixture::Text(result.runs), "2:0+4");
  EXPECT_EQ(IndexFixture::Text(result.alternates), "0:0+4");
}

TEST(PrefixIndexTest, LastResortsServeOnlyWhatNobodyElseHas) {
  IndexFixture fixture;
  fixture.Put(fixture.AddSource(0), 1, 6);
  fixture.Put(fixture.AddSource(1), 3, 4);
  fixture.nodes[0].use = Use::kLastResort;
  const LocateResult result = fixture.Locate(6);
  EXPECT_EQ(IndexFixture::Text(result.runs), "0:0+2 1:2+2 0:4+2");
  EXPECT_TRUE(result.alternates.empty()) << "a node that may be gone is no replacement";
  fixture.nodes[0].use = Use::kHidden;
  EXPECT_EQ(fixture.Locate(6).prefix_blocks, 0u);
}

TEST(PrefixIndexTest, TheClassOfFormEndsARunAndErrorsAreSummedUp) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 2, 0);
  fixture.Put(a, 3, 4, 1);
  const LocateResult any = fixture.Locate(4);
  ASSERT_EQ(IndexFixture::Text(any.runs), "0:0+2 0:2+2");
  EXPECT_FLOAT_EQ(any.runs[1].error_mean, 0.1f);
  AcceptRule accept;
  accept.max_error = 0.1;  // a float below the double: still met
  EXPECT_EQ(fixture.Locate(4, accept).prefix_blocks, 4u);
  accept.max_error = 0.05;
  EXPECT_EQ(fixture.Locate(4, accept).prefix_blocks, 2u);
}

TEST(PrefixIndexTest, SlidingGroupsAreNeededAtTheTailOnly) {
  IndexFixture fixture;
  proto::LocateRequest request;
  request.add_groups()->set_group(0);
  request.add_groups()->set_group(1);
  request.mutable_groups(1)->set_tail_blocks(2);
  fixture.rule = PrefixRule::Read(request.groups()).value();
  const ClassId full = fixture.Class("raw", 1, kWireExact);
  const ClassId both = fixture.Class("raw", 3, kWireExact);
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 6, full);
  EXPECT_EQ(fixture.Locate(6).prefix_blocks, 0u);
  fixture.Put(a, 3, 4, both);
  EXPECT_EQ(fixture.Locate(6).prefix_blocks, 4u);
  // Another node has what is needed at the tail; before it, the one that goes on will do.
  const SourceId b = fixture.AddSource(1);
  fixture.Put(b, 5, 6, both);
  const LocateResult result = fixture.Locate(6);
  EXPECT_EQ(result.prefix_blocks, 6u);
  EXPECT_EQ(IndexFixture::Text(result.runs), "0:0+2 0:2+2 1:4+2");
  fixture.Remove(b, 6, 6);
  EXPECT_EQ(fixture.Locate(6).prefix_blocks, 5u);
}

TEST(PrefixIndexTest, TheMiddleEvictedOnOneNodeComesFromTheOther) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.Put(a, 1, 8);
  fixture.Put(b, 1, 8);
  fixture.Remove(a, 4, 5);
  const LocateResult result = fixture.Locate(8);
  EXPECT_EQ(result.prefix_blocks, 8u);
  EXPECT_EQ(IndexFixture::Text(result.runs), "0:0+3 1:3+5");
  fixture.Remove(b, 5, 5);
  EXPECT_EQ(fixture.Locate(8).prefix_blocks, 4u);
}

// Records that follow each other are found one way, others another way.
TEST(PrefixIndexTest, ChainsAreFoundHoweverTheyWereAnnounced) {
  for (const uint32_t piece : {1u, 3u, 40u, 5000u}) {
    IndexFixture fixture;
    const SourceId a = fixture.AddSource(0);
    const uint32_t pieces = (5000 + piece - 1) / piece;
    for (uint32_t i = 0; i < pieces; ++i) {
      const uint32_t first = (i * 7919 % pieces) * piece + 1;  // 7919 is prime: any order of pieces
      fixture.Put(a, first, std::min(5000u, first + piece - 1));
    }
    EXPECT_EQ(fixture.Locate(5000).prefix_blocks, 5000u) << piece;
    fixture.Remove(a, 3000, 5000);
    fixture.Remove(a, 1234, 1234);
    fixture.Settle();
    EXPECT_EQ(fixture.Locate(5000).prefix_blocks, 1233u) << piece;
    std::vector<BlockKey> keys;
    for (uint32_t i = 1; i <= 5000; ++i) {
      keys.push_back(i % 10 == 0 ? BlockKey{} : IndexFixture::Key(i));
    }
    std::vector<BlockHolders> holders;
    fixture.index->Held({keys, "raw", 1, fixture.nodes}, holders);
    for (uint32_t i = 1; i <= 5000; ++i) {
      EXPECT_EQ(holders[i - 1].count, i % 10 != 0 && i < 3000 && i != 1234 ? 1 : 0) << i;
    }
  }
}

TEST(PrefixIndexTest, HeatIsLookupsPerMinuteAndTouchesComeOnceASecond) {
  IndexFixture fixture;
  fixture.Put(fixture.AddSource(0), 1, 1);
  fixture.touch = LocateQuery::Touch::kYes;
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 3000; ++i) {  // ten a second, for five minutes
    fixture.Locate(1, {}, now);
    now += std::chrono::milliseconds(100);
  }
  EXPECT_NEAR(fixture.index->Heat(IndexFixture::Key(1), now), 600, 30);
  EXPECT_EQ(fixture.sink.touched.size(), 300u);
  now += std::chrono::minutes(5);
  EXPECT_LT(fixture.index->Heat(IndexFixture::Key(1), now), 10);
  EXPECT_EQ(fixture.index->Heat(IndexFixture::Key(2), now), 0);
}

// In one lookup of a chain whose parts were looked up at different times.
TEST(PrefixIndexTest, EachBlocksHeatDecaysByItsOwnTime) {
  IndexFixture fixture;
  fixture.Put(fixture.AddSource(0), 1, 6);
  fixture.touch = LocateQuery::Touch::kYes;
  const TimePoint start{std::chrono::hours(1)};
  fixture.Locate(6, {}, start);
  fixture.Locate(4, {}, start + std::chrono::seconds(30));
  fixture.Locate(2, {}, start + std::chrono::seconds(60));
  const TimePoint now = start + std::chrono::seconds(120);
  fixture.Locate(6, {}, now);
  const auto left = [](double seconds) { return std::exp(-seconds / 60); };
  const double once = 1 + left(120);
  const double twice = 1 + left(90) * (1 + left(30));
  const double thrice = 1 + left(60) * (1 + left(30) * (1 + left(30)));
  const double expected[] = {thrice, thrice, twice, twice, once, once};
  for (uint32_t block = 1; block <= 6; ++block) {
    EXPECT_NEAR(fixture.index->Heat(IndexFixture::Key(block), now), expected[block - 1], 1e-5)
        << block;
  }
}

TEST(PrefixIndexTest, OnlyTheUsablePrefixIsTouched) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 2);
  fixture.Put(a, 4, 4);
  fixture.touch = LocateQuery::Touch::kYes;
  fixture.Locate(4);
  EXPECT_EQ(fixture.sink.touched,
            (NodeBlocks{{0, IndexFixture::Key(1)}, {0, IndexFixture::Key(2)}}));
}

TEST(PrefixIndexTest, AHiddenInventoryIsSeenOnceItIsShown) {
  IndexFixture fixture;
  fixture.AddSource(0);
  const SourceId hidden = fixture.index->AddSource(0, PrefixIndex::Visibility::kHidden).value();
  fixture.Put(hidden, 1, 3);
  EXPECT_EQ(fixture.Locate(3).prefix_blocks, 0u);
  fixture.index->Show(hidden);
  EXPECT_EQ(fixture.Locate(3).prefix_blocks, 3u);
}

TEST(PrefixIndexTest, ADroppedInventoryIsGoneAtOnceAndSweptInSlices) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 5000);
  fixture.index->Drop(a);
  EXPECT_EQ(fixture.Locate(10).prefix_blocks, 0u);
  EXPECT_TRUE(fixture.index->Sweeping(0));
  size_t slices = 0;
  uint64_t forms = fixture.index->stats().forms;
  while (fixture.index->Work(100, PrefixIndex::Orphans::kTell)) {
    EXPECT_LE(forms - fixture.index->stats().forms, 200u) << "a slice did more than its share";
    forms = fixture.index->stats().forms;
    ++slices;
  }
  EXPECT_GT(slices, 50u);
  EXPECT_FALSE(fixture.index->Sweeping(0));
  EXPECT_EQ(fixture.index->stats().blocks, 0u);
  EXPECT_EQ(fixture.index->stats().vanished, 0u);
  EXPECT_TRUE(fixture.sink.orphaned.empty());
  EXPECT_TRUE(fixture.index->CheckInvariants().ok()) << fixture.index->CheckInvariants();
}

TEST(PrefixIndexTest, OrphansAreToldToEveryNodeThatHoldsThem) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.Put(a, 1, 4);
  fixture.Put(b, 2, 3);
  fixture.Remove(a, 2, 2);
  fixture.Settle();
  EXPECT_TRUE(fixture.sink.orphaned.empty()) << "the other node still has the block";
  fixture.Remove(b, 2, 2);
  fixture.Settle();
  EXPECT_EQ(fixture.sink.orphaned,
            (NodeBlocks{
                {0, IndexFixture::Key(3)}, {0, IndexFixture::Key(4)}, {1, IndexFixture::Key(3)}}));
}

TEST(PrefixIndexTest, NodesThatGoLeaveTheirDescendantsElsewhereAsOrphans) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.Put(a, 1, 3);
  fixture.Put(b, 3, 5);
  fixture.index->Drop(a);
  fixture.Settle();
  EXPECT_EQ(fixture.sink.orphaned,
            (NodeBlocks{
                {1, IndexFixture::Key(3)}, {1, IndexFixture::Key(4)}, {1, IndexFixture::Key(5)}}));
}

TEST(PrefixIndexTest, WhatComesBackBeforeItIsToldHasNoOrphans) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 100);
  fixture.Remove(a, 1, 1);
  EXPECT_FALSE(fixture.index->Work(1000, PrefixIndex::Orphans::kHold));
  EXPECT_TRUE(fixture.sink.orphaned.empty());
  EXPECT_EQ(fixture.index->stats().orphans_waiting, 1u);
  fixture.Put(a, 1, 1);
  fixture.Settle();
  EXPECT_TRUE(fixture.sink.orphaned.empty());
  // Half way, too.
  fixture.Remove(a, 1, 1);
  fixture.index->Work(20, PrefixIndex::Orphans::kTell);
  fixture.Put(a, 1, 1);
  fixture.Settle();
  EXPECT_GT(fixture.sink.orphaned.size(), 5u);
  EXPECT_LT(fixture.sink.orphaned.size(), 30u);
  EXPECT_EQ(fixture.Locate(100).prefix_blocks, 100u);
  EXPECT_TRUE(fixture.index->CheckInvariants().ok()) << fixture.index->CheckInvariants();
}

TEST(PrefixIndexTest, AWalkSurvivesThatTheRecordItStandsAtIsFreed) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  for (size_t told = 1; told < 12; ++told) {
    fixture.Put(a, 1, 10);
    fixture.Remove(a, 1, 1);
    fixture.index->Work(told, PrefixIndex::Orphans::kTell);
    for (uint32_t block = 10; block >= 2; --block) {
      fixture.Remove(a, block, block);
      ASSERT_TRUE(fixture.index->CheckInvariants().ok()) << fixture.index->CheckInvariants();
    }
    fixture.Settle();
    EXPECT_EQ(fixture.index->stats().vanished, 0u);
  }
}

TEST(PrefixIndexTest, ALongChainOfVanishedRecordsIsFreedInSlices) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 20000);
  fixture.Remove(a, 1, 19999);
  fixture.Settle();
  EXPECT_EQ(fixture.index->stats().vanished, 19999u);
  fixture.Remove(a, 20000, 20000);
  EXPECT_GE(fixture.index->stats().vanished, 19998u);
  size_t slices = 0;
  while (fixture.index->Work(100, PrefixIndex::Orphans::kTell)) {
    ++slices;
  }
  EXPECT_GT(slices, 100u);
  EXPECT_EQ(fixture.index->stats().vanished, 0u);
}

// Blocks `first` to `last`, each with the next one as its parent and the last with the first.
std::vector<IndexUpdate> Ring(uint32_t first, uint32_t last) {
  static const IndexedForm form{0, 1, 0, 0};
  std::vector<IndexUpdate> ring;
  for (uint32_t i = first; i <= last; ++i) {
    ring.push_back(
        {IndexFixture::Key(i), IndexFixture::Key(i == last ? first : i + 1), {&form, 1}});
  }
  return ring;
}

TEST(PrefixIndexTest, ParentsInARingDoNoHarm) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  fixture.index->Apply(a, Ring(1, 5));
  fixture.Remove(a, 3, 3);
  fixture.Settle();
  EXPECT_EQ(fixture.sink.orphaned.size(), 4u);
  EXPECT_TRUE(fixture.index->CheckInvariants().ok()) << fixture.index->CheckInvariants();
}

// However they were announced, and whatever work was done meanwhile.
TEST(PrefixIndexTest, ParentsInARingDoNotKeepEachOther) {
  std::mt19937 random(1);
  for (uint32_t size = 2; size < 70; ++size) {
    IndexFixture fixture;
    const SourceId a = fixture.AddSource(0);
    std::vector<IndexUpdate> ring = Ring(1, size);
    std::shuffle(ring.begin(), ring.end(), random);
    // Branches that lead into the ring, and a second ring.
    fixture.Put(a, 200, 210);
    const IndexUpdate link{IndexFixture::Key(199), IndexFixture::Key(1), ring.front().forms};
    fixture.index->Apply(a, {&link, 1});
    fixture.index->Apply(a, Ring(300, 300 + size));
    for (const IndexUpdate& update : ring) {
      fixture.index->Apply(a, {&update, 1});
      if (random() % 2 == 0) {
        fixture.index->Work(1 + random() % 8, PrefixIndex::Orphans::kTell);
      }
    }
    for (const auto& [first, last] : {std::pair(1u, size), {199u, 210u}, {300u, 300 + size}}) {
      for (uint32_t block = first; block <= last; ++block) {
        fixture.Remove(a, block, block);
        fixture.index->Work(random() % 4, PrefixIndex::Orphans::kTell);
      }
    }
    fixture.Settle();
    EXPECT_EQ(fixture.index->stats().vanished, 0u) << size;
    ASSERT_TRUE(fixture.index->CheckInvariants().ok()) << fixture.index->CheckInvariants();
  }
}

// A long way up is taken in slices, beside other work.
TEST(PrefixIndexTest, ALongRingIsOpenedInSlicesThatLeaveRoomForOtherWork) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  const SourceId b = fixture.AddSource(1);
  fixture.index->Apply(a, Ring(1, 50'000));
  fixture.Put(b, 100'001, 101'000);
  fixture.index->Drop(b);
  size_t slices = 0;
  for (; fixture.index->Sweeping(1); ++slices) {
    ASSERT_TRUE(fixture.index->Work(512, PrefixIndex::Orphans::kTell));
  }
  EXPECT_LT(slices, 400u) << "half of the steps are for the sweep";
  fixture.Settle();
  fixture.Remove(a, 1, 50'000);
  fixture.Settle();
  EXPECT_EQ(fixture.index->stats().vanished, 0u);
}

TEST(PrefixIndexTest, BlocksAndFormsBeyondTheLimitsAreRefusedAndCounted) {
  IndexFixture fixture(100);
  const SourceId a = fixture.AddSource(0);
  fixture.Put(a, 1, 150);
  EXPECT_EQ(fixture.index->stats().blocks, 100u);
  EXPECT_EQ(fixture.index->stats().refused_blocks, 50u);
  EXPECT_EQ(fixture.Locate(150).prefix_blocks, 100u);
  for (NodeSlot node = 1; node <= PrefixIndex::kFormsMax; ++node) {
    fixture.Put(fixture.AddSource(node), 1, 1);
  }
  EXPECT_EQ(fixture.index->stats().refused_forms, 1u);
  fixture.Remove(a, 1, 100);
  fixture.Put(a, 2, 50);
  EXPECT_EQ(fixture.Locate(50).prefix_blocks, 50u);
}

TEST(PrefixIndexTest, OptionsOutOfRangeAreNamed) {
  RecordingSink sink;
  PrefixIndexOptions options;
  options.blocks_max = 0;
  EXPECT_EQ(PrefixIndex::Create(options, sink).status().code(), absl::StatusCode::kInvalidArgument);
}

// At every size: memory per block, and what one insertion moves.
TEST(PrefixIndexTest, GrowsInBoundedStepsWithinItsMemory) {
  IndexFixture fixture;
  const SourceId a = fixture.AddSource(0);
  uint64_t moves = 0;
  uint64_t most = 0;
  for (uint32_t block = 1; block <= 600'000; ++block) {
    fixture.Put(a, block, block);
    const uint64_t moved = fixture.index->stats().table_moves;
    most = std::max(most, moved - moves);
    moves = moved;
    if (block >= 100'000 && block % 1000 == 0) {
      ASSERT_LE(fixture.index->memory_bytes(), uint64_t{100} * block);
    }
  }
  EXPECT_LE(most, PrefixIndex::kMovesPerInsert);
  EXPECT_LT(moves, 3u * 600'000);
}

}  // namespace
}  // namespace tokura::coordinator
