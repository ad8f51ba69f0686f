// What a profile learns from captures.

#include "kernels/profile_maker.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/float_convert.h"

namespace tokura::kernels {
namespace {

constexpr uint32_t kDim = 8;
constexpr uint32_t kValueDim = 6;

ProfileGroup Group() {
  ProfileGroup group;
  group.kv_heads = 2;
  group.queries_per_head = 1;
  group.k_head_dim = kDim;
  group.v_head_dim = kValueDim;
  group.rope = {RopeKind::kHalfSplit, 0, kDim};
  group.softmax_scale = 0.5f;
  group.k_outliers = 2;
  group.v_outliers = 2;
  group.rounding = true;
  group.layers = {{3, 10000, TurnsOf(10000, kDim)}, {7, 10000, TurnsOf(10000, kDim)}};
  return group;
}

TokenRun RandomRun(uint64_t first_position, uint32_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  TokenRun run{first_position, tokens, {}, {}};
  run.k.resize(size_t{tokens} * kDim);
  run.v.resize(size_t{tokens} * kValueDim);
  std::generate(run.k.begin(), run.k.end(), [&] { return value(random); });
  std::generate(run.v.begin(), run.v.end(), [&] { return value(random); });
  return run;
}

// Every token of the run has these keys.
TokenRun ConstantKeys(uint64_t first_position, uint32_t tokens, const std::vector<float>& key) {
  TokenRun run = RandomRun(first_position, tokens, 1);
  for (uint32_t t = 0; t < tokens; ++t) {
    std::copy(key.begin(), key.end(), run.k.begin() + static_cast<ptrdiff_t>(size_t{t} * kDim));
  }
  return run;
}

HeadSamples Samples(std::vector<TokenRun> runs, uint32_t queries) {
  HeadSamples samples;
  samples.runs = std::move(runs);
  for (uint32_t i = 0; i < queries; ++i) {
    samples.positions.push_back(1000 + i);
    for (uint32_t c = 0; c < kDim; ++c) {
      // Numbers that fp16 has, none of them twice.
      samples.queries.push_back(static_cast<float>(i * kDim + c) / 16 - 4);
    }
  }
  return samples;
}

TEST(ProfileMaker, SmoothingIsTheRootOfThePairsPeak) {
  std::vector<float> key(kDim);
  key[2] = -9;
  key[6] = 4;  // the partner of 2
  key[3] = 0.25f;
  const ProfileHead head =
      MakeProfileHead(Group(), {0, 0}, Samples({ConstantKeys(100, 70, key)}, 3), 2);
  EXPECT_EQ(head.smooth, (std::vector<float>{1, 1, 3, 0.5f, 1, 1, 3, 0.5f}));
}

TEST(ProfileMaker, StatisticsLeaveOutTheFirstTokensOfASequence) {
  std::vector<float> ordinary(kDim, 1.0f);
  std::vector<float> sink(kDim, 1.0f);
  sink[0] = 10000;
  const auto smooth = [&](uint64_t first_position, uint32_t at) {
    TokenRun run = ConstantKeys(first_position, 70, ordinary);
    std::copy(sink.begin(), sink.end(), run.k.begin() + static_cast<ptrdiff_t>(size_t{at} * kDim));
    return MakeProfileHead(Group(), {0, 0}, Samples({run}, 3), 2).smooth[0];
  };
  EXPECT_EQ(smooth(0, kProfileSinks - 1), 1);
  EXPECT_EQ(smooth(0, kProfileSinks), 100);
  EXPECT_EQ(smooth(1, kProfileSinks - 2), 1);
  EXPECT_EQ(smooth(64, 0), 100) << "a run from the middle has no sinks";
}

TEST(ProfileMaker, OutliersOfKeysAreWholePairsAndOfValuesSingleChannels) {
  TokenRun run = RandomRun(100, 70, 2);
  for (uint32_t t = 0; t < run.tokens; ++t) {
    run.k[size_t{t} * kDim + 5] = -20;  // pair (1, 5)
    run.v[size_t{t} * kValueDim + 4] = 30;
    run.v[size_t{t} * kValueDim + 1] = -40;
  }
  run.k[3] = 25;  // once, so that its mean stays small
  const ProfileHead head = MakeProfileHead(Group(), {0, 0}, Samples({run}, 3), 2);
  EXPECT_EQ(head.k_outliers, (std::vector<uint16_t>{1, 5}));
  EXPECT_EQ(head.v_outliers, (std::vector<uint16_t>{1, 4}));
}

TEST(ProfileMaker, StatisticsAreOverAllRuns) {
  std::vector<float> key(kDim, 1.0f);
  std::vector<float> other = key;
  other[7] = 16;
  const HeadSamples samples = Samples({ConstantKeys(100, 70, key), ConstantKeys(300, 5, other)}, 3);
  EXPECT_EQ(MakeProfileHead(Group(), {0, 0}, samples, 2).smooth[3], 4) << "partner of 7";
}

TEST(ProfileMaker, ExemplarsAreCapturedQueriesEachOnce) {
  const HeadSamples samples = Samples({RandomRun(0, 200, 3), RandomRun(512, 130, 4)}, 40);
  const ProfileHead head = MakeProfileHead(Group(), {1, 1}, samples, 16);
  ASSERT_EQ(head.positions.size(), 16u);
  ASSERT_EQ(head.queries.size(), 16u * kDim);
  for (size_t i = 0; i < head.positions.size(); ++i) {
    const size_t source = head.positions[i] - 1000;
    for (uint32_t c = 0; c < kDim; ++c) {
      EXPECT_EQ(HalfToFloat(head.queries[i * kDim + c]), samples.queries[source * kDim + c]);
    }
  }
  std::vector<uint32_t> positions = head.positions;
  std::sort(positions.begin(), positions.end());
  EXPECT_EQ(std::unique(positions.begin(), positions.end()), positions.end());
  // Fewer of them are the first ones.
  const ProfileHead fewer = MakeProfileHead(Group(), {1, 1}, samples, 5);
  EXPECT_TRUE(std::equal(fewer.positions.begin(), fewer.positions.end(), head.positions.begin()));
}

TEST(ProfileMaker, WithoutAWholeBlockExemplarsAreSpreadEvenly) {
  const ProfileHead head = MakeProfileHead(Group(), {0, 0}, Samples({RandomRun(0, 20, 5)}, 12), 4);
  EXPECT_EQ(head.positions, (std::vector<uint32_t>{1000, 1003, 1006, 1009}));
}

TEST(ProfileMaker, MakesHeadsThatAProfileAccepts) {
  ProfileData data;
  data.model = "m";
  data.exemplars = 6;
  data.groups = {Group()};
  ProfileGroup& group = data.groups[0];
  for (uint32_t i = 0; i < 4; ++i) {
    const HeadPlace place{i / 2, i % 2};
    const HeadSamples samples = Samples({RandomRun(0, 100, i)}, 9);
    group.heads.push_back(MakeProfileHead(group, place, samples, data.exemplars));
    EXPECT_EQ(group.heads.back(), MakeProfileHead(group, place, samples, data.exemplars));
  }
  EXPECT_TRUE(CheckProfile(data).ok()) << CheckProfile(data);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(group.heads[i].sign_seed, group.heads[j].sign_seed);
    }
  }
}

TEST(ProfileMaker, HeadsWithoutValuesUseTheirKeysChannelsBeforeRope) {
  ProfileGroup group = Group();
  group.attention = ProfileAttention::kLatent;
  group.kv_heads = 1;
  group.v_head_dim = 0;
  group.v_outliers = 0;
  group.rope = {RopeKind::kHalfSplit, 4, 4};
  for (ProfileLayer& layer : group.layers) {
    layer.turns = TurnsOf(10000, 4);
  }
  TokenRun run = RandomRun(0, 130, 6);
  run.v.clear();
  const ProfileHead head = MakeProfileHead(group, {0, 0}, Samples({run}, 9), 6);
  EXPECT_EQ(head.positions.size(), 6u);
  EXPECT_TRUE(head.v_outliers.empty());
}

}  // namespace
}  // namespace tokura::kernels
