#include "cli/table.h"

#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

TEST(TextTableTest, AlignsColumnsAndLeavesNoTrailingSpaces) {
  TextTable table({{"name"}, {"bytes", TextTable::Align::kRight}, {"note"}});
  table.AddRow({"a", "1"});
  table.AddRow({"long", "12345", "x"});
  EXPECT_EQ(table.ToString(),
            "name  bytes  note\n"
            "a         1\n"
            "long  12345  x\n");
}

TEST(TextTableTest, CountsCharactersNotBytes) {
  TextTable table({{"ε"}, {"b"}});
  table.AddRow({"§§", "1"});
  EXPECT_EQ(table.ToString(), "ε   b\n§§  1\n");
}

TEST(TextTableTest, ReadableNumbers) {
  EXPECT_EQ(ReadableBytes(0), "0 B");
  EXPECT_EQ(ReadableBytes(1023), "1023 B");
  EXPECT_EQ(ReadableBytes(1536), "1.50 KiB");
  EXPECT_EQ(ReadableBytes(5.0 * 1024 * 1024), "5.00 MiB");
  EXPECT_EQ(FixedPoint(0.12345, 3), "0.123");
}

}  // namespace
}  // namespace tokura::cli
