#include "cli/bench_lookup_rows.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;
using ::testing::Not;

const BenchRow* Find(const std::vector<BenchRow>& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&name](const BenchRow& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

TEST(LookupRowsTest, RatioSaysHowManyTimesSoonerThanRedis) {
  LookupRows lookups(1024, 1'000'000);
  lookups.Add(microseconds(100), microseconds(1000));
  lookups.Add(microseconds(300), microseconds(1500));  // the machine is slow
  lookups.Add(microseconds(100), microseconds(800));
  EXPECT_EQ(lookups.size(), 3u);
  const std::vector<BenchRow> rows = lookups.Rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "lookup/1024/index1e6");
  EXPECT_EQ(rows[0].unit, "us");
  EXPECT_DOUBLE_EQ(rows[0].value, 100);
  EXPECT_DOUBLE_EQ(rows[0].bound, 1000);
  ASSERT_TRUE(rows[0].ratio.has_value());
  EXPECT_DOUBLE_EQ(*rows[0].ratio, 8);  // of 10, 5, 8
  EXPECT_LT(rows[0].p10, 8);
  EXPECT_GT(rows[0].p90, 8);
}

TEST(LookupRowsTest, WithoutRedisThereIsNoBoundAndTheTextSaysHowToGetOne) {
  LookupRows lookups(64, 100'000);
  lookups.Add(microseconds(20), {});
  lookups.Add(microseconds(30), {});
  lookups.Add(microseconds(40), {});
  const std::vector<BenchRow> rows = lookups.Rows();
  EXPECT_DOUBLE_EQ(rows[0].value, 30);
  EXPECT_FALSE(rows[0].ratio.has_value());
  EXPECT_EQ(rows[0].bound_name, "");
  EXPECT_EQ(rows[0].repeats, 3u);
  EXPECT_THAT(LookupText(rows), HasSubstr("apt-get install redis-server"));
}

TEST(LookupRowsTest, LargestIndexIsNotComparedWithRedisAndNothingIsMissing) {
  LookupRows large(64, 10'000'000), compared(64, 1'000'000);
  large.Add(microseconds(20), {});
  compared.Add(microseconds(20), microseconds(100));
  std::vector<BenchRow> rows = large.Rows();
  const std::vector<BenchRow> more = compared.Rows();
  rows.insert(rows.end(), more.begin(), more.end());
  EXPECT_THAT(LookupText(rows), Not(HasSubstr("redis")));
}

TEST(LookupRowsTest, ServerTimeIsPerRequestAndPerKey) {
  LookupRows lookups(1000, 100'000);
  lookups.AddServerTime(0.001, 10);   // 100 us each
  lookups.AddServerTime(0.0005, 10);  // 50
  lookups.AddServerTime(0, 0);        // nothing was asked meanwhile
  lookups.AddServerTime(0.003, 10);   // 300
  const std::vector<BenchRow> rows = lookups.Rows();
  const BenchRow* request = Find(rows, "lookup/1000/index1e5/server");
  const BenchRow* key = Find(rows, "lookup/1000/index1e5/server/key");
  ASSERT_TRUE(request != nullptr && key != nullptr);
  EXPECT_DOUBLE_EQ(request->value, 100);
  EXPECT_EQ(request->unit, "us");
  EXPECT_EQ(request->repeats, 3u);
  EXPECT_DOUBLE_EQ(key->value, 100);
  EXPECT_EQ(key->unit, "ns");
}

TEST(LookupRowsTest, LargerIndexesAreJudgedByTheSmallestOfTheSameLookups) {
  std::vector<BenchRow> rows;
  double us = 100;
  for (const uint64_t blocks : kLookupIndexes) {
    LookupRows lookups(1024, blocks), others(64, blocks);
    lookups.AddServerTime(us / 1e6, 1);
    others.AddServerTime(7e-6, 1);
    for (const LookupRows& all : {lookups, others}) {
      const std::vector<BenchRow> of = all.Rows();
      rows.insert(rows.end(), of.begin(), of.end());
    }
    us *= 1.5;
  }
  CompareServerTimes(&rows);
  EXPECT_FALSE(Find(rows, "lookup/1024/index1e5/server/key")->ratio.has_value());
  EXPECT_DOUBLE_EQ(*Find(rows, "lookup/1024/index1e6/server/key")->ratio, 1.5);
  EXPECT_DOUBLE_EQ(*Find(rows, "lookup/1024/index1e7/server/key")->ratio, 2.25);
  EXPECT_DOUBLE_EQ(*Find(rows, "lookup/64/index1e7/server/key")->ratio, 1);
  EXPECT_FALSE(Find(rows, "lookup/1024/index1e7/server")->ratio.has_value());
}

TEST(LookupRowsTest, MemoryIsPerBlockAndPlottedAgainstItsLimit) {
  std::vector<BenchRow> rows =
      MemoryRows(100'000, {.index_bytes = 8'000'000, .resident_bytes = 9'000'000});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "lookup/memory/index1e5");
  EXPECT_DOUBLE_EQ(rows[0].value, 80);
  EXPECT_DOUBLE_EQ(rows[0].bound, 100);
  EXPECT_DOUBLE_EQ(*rows[0].ratio, 0.8);
  EXPECT_EQ(rows[1].name, "lookup/memory/index1e5/resident");
  EXPECT_DOUBLE_EQ(rows[1].value, 90);
  EXPECT_FALSE(rows[1].ratio.has_value());
  const std::vector<BenchRow> more =
      MemoryRows(10'000'000, {.index_bytes = 1.2e9, .resident_bytes = 1e9});
  rows.insert(rows.end(), more.begin(), more.end());
  const std::string text = LookupText(rows);
  EXPECT_THAT(
      text, HasSubstr("index1e5  80.0 B  " + std::string(40, '#') + std::string(10, ' ') + "|\n"));
  EXPECT_THAT(text, HasSubstr("index1e7  120.0 B  " + std::string(50, '#') + "|" +
                              std::string(10, '#') + "\n"));
  EXPECT_THAT(text, Not(HasSubstr("resident")));
  EXPECT_EQ(LookupText({}), "");
}

}  // namespace
}  // namespace tokura::cli
