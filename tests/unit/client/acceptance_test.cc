#include "client-lib/src/acceptance.h"

#include <gtest/gtest.h>

namespace tokura {
namespace {

using kernels::Fidelity;

kernels::PartInfo Info(Fidelity fidelity, uint8_t group, uint8_t shard,
                       std::vector<kernels::ErrorRecord::Layer> layers, uint64_t profile = 1) {
  kernels::PartInfo info;
  info.identity.part = {group, shard};
  info.fidelity = fidelity;
  info.error.layers = std::move(layers);
  info.error.profile = profile;
  return info;
}

TEST(BlockFidelityTest, ShardsAddUpWithinALayerAndGroupsFollow) {
  BlockFidelity block;
  block.Add(Info(Fidelity::kQuantized, 0, 0, {{0.01, 1}, {0.04, 1}}));
  block.Add(Info(Fidelity::kQuantized, 0, 1, {{0.01, 1}, {0.04, 1}}));
  block.Add(Info(Fidelity::kQuantized, 1, 0, {{0.09, 1}}));
  EXPECT_DOUBLE_EQ(block.Mean(), (0.1 + 0.2 + 0.3) / 3);
  EXPECT_FALSE(block.proxy());
}

TEST(BlockFidelityTest, UnknownErrorIsNeverTakenForExact) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  kernels::PartInfo unmeasured = Info(Fidelity::kQuantized, 0, 0, {{0, 0}, {0, 0}});
  unmeasured.error.measured = false;
  const kernels::PartInfo unknown[] = {
      unmeasured,
      Info(Fidelity::kQuantized, 0, 0, {}),
      Info(Fidelity::kQuantized, 0, 0, {{kInfinity, 0}}),
      Info(Fidelity::kQuantized, 0, 0, {{kInfinity, kInfinity}}),
      Info(Fidelity::kQuantized, 0, 0, {{0.1, 0}}),
      Info(Fidelity::kQuantized, 0, 0, {{kNan, 1}}),
      Info(Fidelity::kQuantized, 0, 0, {{1, -1}}),
  };
  for (const kernels::PartInfo& info : unknown) {
    BlockFidelity block;
    block.Add(Info(Fidelity::kQuantized, 1, 0, {{0.01, 1}}));
    block.Add(info);
    EXPECT_EQ(block.Mean(), kInfinity);
    EXPECT_TRUE(block.Acceptable({}));
    EXPECT_FALSE(block.Acceptable({.max_error = 1e9}));
    EXPECT_FALSE(block.Acceptable({.max_error = 0.0}));
  }
  BlockFidelity constant;
  constant.Add(Info(Fidelity::kQuantized, 0, 0, {{0, 0}, {0, 1}}));
  EXPECT_EQ(constant.Mean(), 0) << "measured, and nothing was lost";
}

TEST(BlockFidelityTest, AcceptsWhatTheCallerTolerates) {
  BlockFidelity exact, measured, proxy, summary;
  exact.Add(Info(Fidelity::kExact, 0, 0, {}, 0));
  measured.Add(Info(Fidelity::kQuantized, 0, 0, {{0.01, 1}}));
  proxy.Add(Info(Fidelity::kQuantized, 0, 0, {{0.01, 1}}, 0));
  summary.Add(Info(Fidelity::kSummary, 0, 0, {{0.01, 1}}));
  Acceptance any;
  Acceptance zero{.max_error = 0.0};
  Acceptance tenth{.max_error = 0.1};
  Acceptance proxies{.max_error = 0.1, .accept_proxy_error = true};
  Acceptance less{.max_error = 0.09};
  Acceptance summaries{.max_error = 0.2, .allow_summary = true};
  for (const Acceptance& acceptance : {any, zero, tenth, less, summaries}) {
    EXPECT_TRUE(exact.Acceptable(acceptance));
  }
  EXPECT_TRUE(measured.Acceptable(any));
  EXPECT_TRUE(measured.Acceptable(tenth));
  EXPECT_FALSE(measured.Acceptable(less));
  EXPECT_FALSE(measured.Acceptable(zero));
  EXPECT_TRUE(proxy.Acceptable(any));
  EXPECT_FALSE(proxy.Acceptable(tenth));
  EXPECT_TRUE(proxy.Acceptable(proxies));
  EXPECT_FALSE(summary.Acceptable(any));
  EXPECT_TRUE(summary.Acceptable(summaries));
}

}  // namespace
}  // namespace tokura
