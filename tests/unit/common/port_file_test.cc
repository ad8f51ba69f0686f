#include "common/port_file.h"

#include <fstream>

#include <gtest/gtest.h>

namespace tokura {
namespace {

TEST(PortFileTest, ReadsWhatServersWrite) {
  const auto ports = ParsePortFile("data=127.0.0.1:1\nnode=127.0.0.1:2\nadmin=127.0.0.1:3\n");
  ASSERT_TRUE(ports.ok()) << ports.status();
  EXPECT_EQ(ports->data, "127.0.0.1:1");
  EXPECT_EQ(ports->node, "127.0.0.1:2");
  EXPECT_EQ(ports->admin, "127.0.0.1:3");
  EXPECT_EQ(ParsePortFile("data=h:1\nfuture=x\n")->node, "h:1");
  EXPECT_EQ(ParsePortFile("admin=h:1\n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParsePortFile("data\n").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadPortFile("/nonexistent").status().code(), absl::StatusCode::kNotFound);
}

TEST(PortFileTest, ExistsOnlyWhileItsProcessServes) {
  const std::string path = ::testing::TempDir() + "/port_file_test.ports";
  std::ofstream(path) << "data=127.0.0.1:1\n";
  {
    OwnPortFile own(path);
    EXPECT_EQ(ReadPortFile(path).status().code(), absl::StatusCode::kNotFound)
        << "an earlier process's addresses";
    ASSERT_TRUE(own.Write({{"data", "h:2"}, {"admin", "h:3"}}).ok());
    const auto ports = ReadPortFile(path);
    ASSERT_TRUE(ports.ok()) << ports.status();
    EXPECT_EQ(ports->data, "h:2");
    EXPECT_EQ(ports->admin, "h:3");
  }
  EXPECT_EQ(ReadPortFile(path).status().code(), absl::StatusCode::kNotFound);
}

TEST(PortFileTest, SaysWhenItCannotBeWritten) {
  OwnPortFile nowhere("/nonexistent/ports");
  EXPECT_EQ(nowhere.Write({{"data", "h:1"}}).code(), absl::StatusCode::kUnavailable);
  OwnPortFile none("");
  EXPECT_TRUE(none.Write({{"data", "h:1"}}).ok());
}

}  // namespace
}  // namespace tokura
