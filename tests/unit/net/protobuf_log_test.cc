#include "common/net/protobuf_log.h"

#include <gtest/gtest.h>

#include "common/log.h"
#include "proto/tokura.pb.h"

namespace tokura::net {
namespace {

TEST(ProtobufLogTest, BadTextOfAPeerPrintsNoLineOfItsOwn) {
  RouteProtobufLog();
  RouteProtobufLog();
  const std::string bad("\x0a\x02\xff\xfe", 4);  // field 1, two bytes that are no UTF-8
  const auto parse = [&] {
    proto::Form form;  // its first field is text
    EXPECT_FALSE(form.ParseFromString(bad));
  };
  ::testing::internal::CaptureStderr();
  parse();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  SetLogLevel(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  parse();
  const std::string line = ::testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_NE(line.find("protobuf message"), std::string::npos) << line;
}

}  // namespace
}  // namespace tokura::net
