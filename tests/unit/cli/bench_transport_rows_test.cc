#include "cli/bench_transport_rows.h"

#include "gtest/gtest.h"

namespace tokura::cli {
namespace {

using std::chrono::milliseconds;

TransferCosts Costs(int tokura_ms, int raw_ms, int raw_without_crc_ms) {
  constexpr uint64_t kBytes = 4'000'000;
  return {.tokura = {milliseconds(tokura_ms), kBytes, milliseconds(8), milliseconds(12)},
          .raw = {milliseconds(raw_ms), kBytes, milliseconds(4), milliseconds(4)},
          .raw_without_crc = {milliseconds(raw_without_crc_ms), kBytes, {}, {}},
          .others = {}};
}

TEST(TransferRowsTest, RatesAreBytesOverTimeAndRatiosOfTheSamePair) {
  TransferRows transfers({});
  transfers.Add(Costs(4, 2, 1));     // the machine is quick
  transfers.Add(Costs(40, 32, 10));  // then slow
  transfers.Add(Costs(8, 2, 2));
  const std::vector<BenchRow> rows = transfers.Rows("transport/get/4MB/batch1", "raw");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "transport/get/4MB/batch1");
  EXPECT_EQ(rows[0].unit, "GB/s");
  EXPECT_DOUBLE_EQ(rows[0].value, 0.5);  // of 1, 0.1, 0.5
  EXPECT_DOUBLE_EQ(rows[0].bound, 2);    // of 2, 0.125, 2
  ASSERT_TRUE(rows[0].ratio && rows[0].ratio_without_crc);
  EXPECT_DOUBLE_EQ(*rows[0].ratio, 0.5);               // of 0.5, 0.8, 0.25
  EXPECT_DOUBLE_EQ(*rows[0].ratio_without_crc, 0.25);  // of 0.25, 0.25, 0.25
  EXPECT_EQ(rows[0].repeats, 3u);
  EXPECT_LT(rows[0].p10, 0.5);
  EXPECT_GT(rows[0].p90, 0.5);
}

TEST(TransferRowsTest, ProcessorTimeIsPerByteOfEachSide) {
  TransferRows transfers({});
  transfers.Add(Costs(4, 2, 1));
  const std::vector<BenchRow> rows = transfers.Rows("x", "raw");
  EXPECT_EQ(rows[1].name, "x/cpu_client");
  EXPECT_EQ(rows[2].name, "x/cpu_node");
  EXPECT_DOUBLE_EQ(rows[1].value, 2);
  EXPECT_DOUBLE_EQ(rows[1].bound, 1);
  EXPECT_DOUBLE_EQ(*rows[2].ratio, 3);
  EXPECT_FALSE(rows[1].ratio_without_crc.has_value());
}

TEST(TransferRowsTest, OtherBoundsHaveRowsOfTheirOwn) {
  TransferRows transfers({{"copied", "raw and a copy"}, {"warm", "raw to warm memory"}});
  TransferCosts costs = Costs(4, 2, 1);
  costs.others = {{milliseconds(5), costs.raw.bytes, {}, {}},
                  {milliseconds(1), costs.raw.bytes, {}, {}}};
  transfers.Add(costs);
  const std::vector<BenchRow> rows = transfers.Rows("x", "raw");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1].name, "x/copied");
  EXPECT_EQ(rows[1].bound_name, "raw and a copy");
  EXPECT_EQ(rows[2].name, "x/warm");
  EXPECT_EQ(rows[2].bound_name, "raw to warm memory");
  EXPECT_DOUBLE_EQ(rows[1].value, rows[0].value);
  EXPECT_DOUBLE_EQ(*rows[0].ratio, 0.5);
  EXPECT_DOUBLE_EQ(*rows[1].ratio, 1.25);
  EXPECT_DOUBLE_EQ(*rows[2].ratio, 0.25);
}

TEST(TransferRowsTest, ProcessorClockThatDidNotMoveIsNoDivisionByZero) {
  TransferRows transfers({});
  TransferCosts costs = Costs(4, 2, 1);
  costs.raw.cpu_self = {};
  transfers.Add(costs);
  EXPECT_GT(transfers.Rows("x", "raw")[1].bound, 0);
}

}  // namespace
}  // namespace tokura::cli
