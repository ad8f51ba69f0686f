#include "cli/scrape.h"

#include <memory>

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include "common/http.h"

namespace tokura::cli {
namespace {

TEST(ScrapeTest, ReadsSeriesAndSkipsWhatIsNone) {
  const MetricValues values = ParseMetrics(
      "# HELP a_total Words 7\n# TYPE a_total counter\na_total{op=\"get put\"} 12\nb 0.5\n\n"
      "no_number x\nalone\nlast 3e-06");
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values.at("a_total{op=\"get put\"}"), 12);
  EXPECT_EQ(values.at("b"), 0.5);
  EXPECT_EQ(values.at("last"), 3e-6);
  EXPECT_EQ(*MetricValue(values, "b"), 0.5);
  EXPECT_TRUE(absl::IsUnavailable(MetricValue(values, "c").status()));
}

TEST(ScrapeTest, AsksAServer) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter()
      .Name("things_total")
      .Register(*registry)
      .Add({{"a", "b"}})
      .Increment(4);
  AdminServer::Options options;
  options.listen = {"127.0.0.1", 0};
  options.registry = registry;
  const auto server = AdminServer::Start(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto values = ScrapeMetrics((*server)->address().ToString());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(*MetricValue(*values, "things_total{a=\"b\"}"), 4);
}

TEST(ScrapeTest, NobodyThereIsUnavailableAndNoAddressIsInvalid) {
  EXPECT_TRUE(absl::IsUnavailable(ScrapeMetrics("127.0.0.1:1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ScrapeMetrics("nowhere").status()));
}

}  // namespace
}  // namespace tokura::cli
