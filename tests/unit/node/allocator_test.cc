#include "cache-node/allocator.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace tokura::node {
namespace {

using Place = ExtentAllocator::Place;
using Range = ExtentAllocator::Range;

TEST(ExtentAllocator, TakesTheBestFitAndGivesBackNeighbours) {
  ExtentAllocator allocator(100'000, 100);
  const auto big = allocator.Allocate(10'000, 1, Place::kBest);
  EXPECT_EQ(big->used, (Range{0, 10'000}));
  const auto a = allocator.Allocate(1'000, 2, Place::kBest);
  const auto b = allocator.Allocate(2'001, 3, Place::kBest);
  const auto c = allocator.Allocate(3'000, 4, Place::kBest);
  // Small ones from the end, downwards.
  EXPECT_EQ(a->used, (Range{99'000, 1'000}));
  EXPECT_EQ(b->used, (Range{96'900, 2'100}));
  EXPECT_EQ(c->used, (Range{93'900, 3'000}));
  EXPECT_EQ(allocator.used(), 16'100u);
  EXPECT_EQ(allocator.Free(b->used.offset), (Range{96'900, 2'100}));
  // The hole serves better than the large range.
  EXPECT_EQ(allocator.Allocate(2'000, 5, Place::kBest)->used, (Range{97'000, 2'000}));
  EXPECT_EQ(allocator.Free(97'000), (Range{96'900, 2'100}));
  EXPECT_EQ(allocator.Free(a->used.offset), (Range{96'900, 3'100}));
  EXPECT_EQ(allocator.Free(0), (Range{0, 93'900}));
  EXPECT_EQ(allocator.Free(c->used.offset), (Range{0, 100'000}));
  EXPECT_EQ(allocator.used(), 0u);
  EXPECT_EQ(allocator.pieces(), 1u);
}

TEST(ExtentAllocator, LargestExtentsStandOnAGridUnlessToldOtherwise) {
  ExtentAllocator allocator(10'000, 100);
  const auto place = [&](uint64_t bytes, Place where = Place::kBest) {
    const auto got = allocator.Allocate(bytes, 1, where);
    return got.has_value() ? got->used.offset : ~uint64_t{0};
  };
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_EQ(place(1'000), i * 1'000);
  }
  EXPECT_FALSE(allocator.Fits(100, Place::kAnywhere));
  allocator.Free(3'000);
  allocator.Free(4'000);
  EXPECT_EQ(place(300), 4'700u);
  EXPECT_EQ(place(900), 3'000u);  // nearly the largest
  EXPECT_EQ(place(800), 3'900u);  // not nearly
  allocator.Free(7'000);
  EXPECT_EQ(place(500), 7'500u);
  EXPECT_EQ(place(500), 7'000u);
  allocator.Free(7'500);
  allocator.Free(8'000);
  EXPECT_EQ(place(400), 8'600u);
  // 1,100 are free at 7,500, but the grid point in them has only 600 behind it.
  EXPECT_EQ(allocator.largest_free(), 1'100u);
  EXPECT_FALSE(allocator.Fits(1'000, Place::kBest));
  EXPECT_EQ(place(1'000), ~uint64_t{0});
  EXPECT_EQ(place(1'000, Place::kAnywhere), 7'500u);
}

TEST(ExtentAllocator, CandidatesAreGridPointsForTheLargestAndPiecesForOthers) {
  ExtentAllocator allocator(10'000, 100);
  EXPECT_EQ(allocator.Candidate(10'100, 0), std::nullopt);
  ASSERT_TRUE(allocator.Allocate(2'000, 1, Place::kBest).has_value());
  ASSERT_EQ(allocator.Allocate(300, 1, Place::kBest)->used.offset, 9'700u);
  EXPECT_EQ(allocator.Candidate(2'000, 0), (Range{0, 2'000}));
  EXPECT_EQ(allocator.Candidate(2'000, 100), (Range{2'000, 2'000}));
  EXPECT_EQ(allocator.Candidate(1'950, 7'000), (Range{8'000, 2'000}));
  EXPECT_EQ(allocator.Candidate(2'000, 8'100), std::nullopt);
  EXPECT_EQ(allocator.Candidate(500, 100), (Range{2'000, 500}));
  EXPECT_EQ(allocator.Candidate(250, 2'100), (Range{9'700, 300}));
  EXPECT_EQ(allocator.Candidate(500, 2'100), std::nullopt);
}

// Against a model: what is handed out never overlaps, what is free is coalesced, sums agree.
TEST(ExtentAllocator, RandomOperationsKeepItsBooks) {
  constexpr uint64_t kCapacity = 1 << 20;
  constexpr uint64_t kGranule = 128;
  ExtentAllocator allocator(kCapacity, kGranule);
  std::mt19937_64 random(1);
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> model;
  for (uint32_t step = 1; step < 60'000; ++step) {
    if (random() % 2 == 0 || model.empty()) {
      const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 40'000 : 4'000);
      const Place place = random() % 2 == 0 ? Place::kBest : Place::kAnywhere;
      const bool fits = allocator.Fits(bytes, place);
      const auto got = allocator.Allocate(bytes, step, place);
      ASSERT_EQ(got.has_value(), fits);
      if (got.has_value()) {
        ASSERT_GE(got->used.bytes, bytes);
        ASSERT_LT(got->used.bytes, bytes + kGranule);
        model[got->used.offset] = {got->used.bytes, step};
      } else if (place == Place::kAnywhere) {
        ASSERT_LT(allocator.largest_free(), allocator.RoundUp(bytes));
      }
    } else {
      auto victim = model.lower_bound(random() % kCapacity);
      victim = victim == model.end() ? model.begin() : victim;
      allocator.Free(victim->first);
      model.erase(victim);
    }
    if (step % 64 != 0) {
      continue;
    }
    uint64_t used = 0, largest = 0;
    bool free_before = false;
    for (uint64_t offset = 0; offset < kCapacity;) {
      const ExtentAllocator::Piece piece = allocator.PieceAt(offset);
      ASSERT_EQ(piece.range.offset, offset);
      ASSERT_EQ(allocator.PieceAt(offset + piece.range.bytes - 1).range, piece.range);
      const auto known = model.find(offset);
      ASSERT_EQ(piece.owner, known == model.end() ? 0 : known->second.second);
      if (piece.owner == 0) {
        ASSERT_FALSE(free_before);
        largest = std::max(largest, piece.range.bytes);
      } else {
        ASSERT_EQ(piece.range.bytes, known->second.first);
        used += piece.range.bytes;
      }
      free_before = piece.owner == 0;
      offset += piece.range.bytes;
    }
    ASSERT_EQ(allocator.used(), used);
    ASSERT_EQ(allocator.largest_free(), largest);
  }
}

}  // namespace
}  // namespace tokura::node
