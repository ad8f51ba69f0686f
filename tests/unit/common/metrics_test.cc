#include "common/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "common/build_info.h"

namespace tokura {
namespace {

TEST(MetricsTest, LatencyBucketsSpanFiftyMicrosecondsToTwoAndAHalfSeconds) {
  const auto bounds = LatencyBuckets();
  ASSERT_EQ(bounds.size(), 15u);
  EXPECT_DOUBLE_EQ(bounds.front(), 50e-6);
  EXPECT_DOUBLE_EQ(bounds.back(), 2.5);
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_GE(bounds[i] / bounds[i - 1], 1.99);
    EXPECT_LE(bounds[i] / bounds[i - 1], 2.51);
  }
}

TEST(MetricsTest, BytesBucketsSpanFourKiBToSixtyFourMiBInStepsOfFour) {
  const auto bounds = BytesBuckets();
  ASSERT_EQ(bounds.size(), 8u);
  EXPECT_EQ(bounds.front(), 4096);
  EXPECT_EQ(bounds.back(), 64.0 * 1024 * 1024);
}

TEST(MetricsTest, BuildInfoIsAConstantOneWithItsLabels) {
  prometheus::Registry registry;
  RegisterBuildInfo(registry, "1.22.0");
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(text,
              ::testing::ContainsRegex("tokura_build_info\\{[^}]*commit=\"[^\"]+\"[^}]*\\} 1\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("transport_version=\"1.22.0\""));
  EXPECT_THAT(text, ::testing::HasSubstr("version=\"" + GetBuildInfo().version + "\""));
}

TEST(BuildInfoTest, NamesACommitAndNoPath) {
  EXPECT_EQ(GetBuildInfo().version, "0.1.0");
  EXPECT_THAT(GetBuildInfo().commit,
              ::testing::MatchesRegex("unknown|[0-9a-f]{12,40}|[0-9a-f]{12,40}-dirty"));
}

}  // namespace
}  // namespace tokura
