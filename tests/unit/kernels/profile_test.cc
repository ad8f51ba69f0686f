// The golden file pins the bytes of PROFILE.md. When they change on purpose, raise the revision and
// write it again, at the repository's root, with
//   TOKURA_SOURCE_DIR=. BUILD/tests/unit_kernels --gtest_also_run_disabled_tests
//       --gtest_filter=ProfileFile.DISABLED_WriteGolden

#include "kernels/profile.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <numbers>
#include <string>

#include <gtest/gtest.h>

#include "kernels/float_convert.h"
#include "kernels/part.h"
#include "tests/unit/kernels/sample_profile.h"

namespace tokura::kernels {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

std::shared_ptr<const Profile> Sample() {
  auto profile = Profile::Parse(Bytes(SerializeProfile(SampleProfile())));
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

std::string GoldenPath() {
  const char* source = std::getenv("TOKURA_SOURCE_DIR");
  return std::string(source == nullptr ? "." : source) + "/tests/golden/kernels/sample.profile";
}

TEST(ProfileFile, DISABLED_WriteGolden) {
  std::ofstream(GoldenPath(), std::ios::binary) << SerializeProfile(SampleProfile());
}

TEST(ProfileFile, HasTheGoldenBytes) {
  std::ifstream file(GoldenPath(), std::ios::binary);
  const std::string golden((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(SerializeProfile(SampleProfile()), golden);
  const auto profile = Profile::Read(GoldenPath());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ((*profile)->data(), SampleProfile());
  EXPECT_EQ(ProfileIdText((*profile)->id()), "ff40421f4afc4535");
}

TEST(ProfileFile, IdIsOfTheContents) {
  ProfileData other = SampleProfile();
  other.groups[0].heads[0].positions[0] += 1;
  const auto changed = Profile::Parse(Bytes(SerializeProfile(other)));
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(Sample()->id(), Sample()->id());
  EXPECT_NE((*changed)->id(), Sample()->id());
}

TEST(ProfileFile, RefusesEveryTruncationAndEveryFlippedByte) {
  const std::string good = SerializeProfile(SampleProfile());
  for (size_t size = 0; size < good.size(); size += size < 400 ? 1 : 61) {
    EXPECT_FALSE(ParseProfileData(Bytes(good).first(size)).ok()) << size;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x11);
    EXPECT_FALSE(ParseProfileData(Bytes(bad)).ok()) << i;
  }
}

TEST(ProfileFile, SaysWhichVersionAnotherRevisionIs) {
  std::string other = SerializeProfile(SampleProfile());
  other[10] = 9;
  const absl::Status status = ParseProfileData(Bytes(other)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("0.9"), std::string::npos) << status;
}

TEST(ProfileFile, EveryRuleIsChecked) {
  using Break = std::function<void(ProfileData*)>;
  const auto in_head = [](const std::function<void(ProfileHead*)>& change) {
    return Break([=](ProfileData* data) { change(&data->groups[0].heads[1]); });
  };
  const auto in_group = [](const std::function<void(ProfileGroup*)>& change) {
    return Break([=](ProfileData* data) { change(&data->groups[0]); });
  };
  const Break breaks[] = {
      [](ProfileData* d) { d->groups.clear(); },
      [](ProfileData* d) { d->groups.resize(9, d->groups[0]); },
      [](ProfileData* d) { d->exemplars = 0; },
      [](ProfileData* d) { d->exemplars = 65; },
      [](ProfileData* d) { d->model = std::string(65, 'm'); },
      [](ProfileData* d) { d->model = std::string("a\0b", 3); },
      in_group([](ProfileGroup* g) { g->window = 5; }),
      in_group([](ProfileGroup* g) { g->attention = ProfileAttention::kSliding; }),
      in_group([](ProfileGroup* g) { g->attention = static_cast<ProfileAttention>(3); }),
      in_group([](ProfileGroup* g) { g->kv_heads = 0; }),
      in_group([](ProfileGroup* g) { g->queries_per_head = 0; }),
      in_group([](ProfileGroup* g) { g->softmax_scale = 0; }),
      in_group([](ProfileGroup* g) { g->softmax_scale = std::nanf(""); }),
      in_group([](ProfileGroup* g) { g->rope.dims = 18; }),
      in_group([](ProfileGroup* g) { g->rope.dims = 7; }),
      in_group([](ProfileGroup* g) { g->rope.first = 2; }),
      in_group([](ProfileGroup* g) { g->rope.kind = RopeKind::kNone; }),
      in_group([](ProfileGroup* g) { g->rope.kind = static_cast<RopeKind>(3); }),
      in_group([](ProfileGroup* g) { g->layers[1].index = g->layers[0].index; }),
      in_group([](ProfileGroup* g) { g->layers[0].turns.pop_back(); }),
      in_group([](ProfileGroup* g) { g->heads.pop_back(); }),
      in_head([](ProfileHead* h) { h->smooth.pop_back(); }),
      in_head([](ProfileHead* h) { h->smooth[3] += 1; }),
      in_head([](ProfileHead* h) { h->smooth[3] = h->smooth[11] = 0; }),
      in_head([](ProfileHead* h) { h->smooth[3] = h->smooth[11] = HUGE_VALF; }),
      in_head([](ProfileHead* h) {
        h->k_outliers = {1, 2};
      }),
      in_head([](ProfileHead* h) {
        h->k_outliers = {9, 1};
      }),
      in_head([](ProfileHead* h) {
        h->v_outliers = {3, 12};
      }),
      in_head([](ProfileHead* h) {
        h->v_outliers = {3, 3};
      }),
      in_head([](ProfileHead* h) { h->order[0] = h->order[1]; }),
      in_head([](ProfileHead* h) { h->order[0] = 16; }),
      in_head([](ProfileHead* h) { h->factors[7] = std::nanf(""); }),
      in_head([](ProfileHead* h) { h->factors.pop_back(); }),
      in_head([](ProfileHead* h) { h->positions[0] = 1u << 31; }),
      in_head([](ProfileHead* h) { h->queries[0] = 0x7c00; }),
      in_head([](ProfileHead* h) { h->queries.pop_back(); }),
      [](ProfileData* d) { d->groups[2].rope.first = 0; },
  };
  EXPECT_TRUE(CheckProfile(SampleProfile()).ok());
  for (const Break& break_rule : breaks) {
    ProfileData data = SampleProfile();
    break_rule(&data);
    EXPECT_EQ(CheckProfile(data).code(), absl::StatusCode::kInvalidArgument)
        << &break_rule - breaks;
  }
}

PartShape ShapeFor(const ProfileGroup& group) {
  PartShape shape;
  shape.layers = static_cast<uint32_t>(group.layers.size());
  shape.heads = 1;
  shape.k_head_dim = group.k_head_dim;
  shape.v_head_dim = group.v_head_dim;
  shape.tokens = 64;
  return shape;
}

TEST(Profile, SaysWhyItIsNotForAPart) {
  const auto profile = Sample();
  const PartShape shape = ShapeFor(profile->data().groups[0]);
  EXPECT_TRUE(profile->CheckPart({0, 0}, shape, {}).ok());
  EXPECT_TRUE(profile->CheckPart({0, 1}, shape, {.smooth = true, .queries = true}).ok());
  EXPECT_TRUE(profile->CheckPart({0, 1}, shape, {.k_outliers = 2, .v_outliers = 2}).ok());
  EXPECT_TRUE(profile->CheckPart({0, 1}, shape, {.rounding_of_channels = true}).ok());
  const auto refused = [&](PartId part, const PartShape& s, const ModelProfile::Needs& needs) {
    const absl::Status status = profile->CheckPart(part, s, needs);
    return status.code() == absl::StatusCode::kFailedPrecondition &&
           status.message().find(ProfileIdText(profile->id())) != std::string::npos;
  };
  EXPECT_TRUE(refused({3, 0}, shape, {}));
  EXPECT_TRUE(refused({0, 2}, shape, {}));
  EXPECT_TRUE(refused({0, 0}, shape, {.k_outliers = 4}));
  EXPECT_TRUE(refused({0, 0}, shape, {.v_outliers = 4}));
  EXPECT_TRUE(refused({1, 0}, ShapeFor(profile->data().groups[1]), {.rounding_of_channels = true}));
  for (auto field : {&PartShape::layers, &PartShape::k_head_dim, &PartShape::v_head_dim}) {
    PartShape other = shape;
    other.*field += 1;
    EXPECT_TRUE(refused({0, 0}, other, {}));
  }
}

TEST(Profile, GivesTheHeadOfItsSlot) {
  const auto profile = Sample();
  const ProfileHead& head = profile->data().groups[0].heads[3];
  const HeadProfile view = profile->Head({0, 1, 1});
  EXPECT_EQ(view.k.smooth.data(), head.smooth.data());
  EXPECT_EQ(view.k.outliers.data(), head.k_outliers.data());
  EXPECT_EQ(view.v.outliers.data(), head.v_outliers.data());
  EXPECT_EQ(view.k.guide.order.data(), head.order.data());
  EXPECT_EQ(view.k.guide.factors.data(), head.factors.data());
  EXPECT_EQ(view.k.sign_seed, head.sign_seed);
  EXPECT_NE(view.v.sign_seed, head.sign_seed);
}

// A stored query, turned by `by` positions, in doubles.
std::vector<double> Turned(const ProfileGroup& group, const ProfileLayer& layer,
                           const uint16_t* query, int64_t by) {
  std::vector<double> out;
  for (uint32_t c = 0; c < group.k_head_dim; ++c) {
    out.push_back(static_cast<double>(HalfToFloat(query[c]) * group.softmax_scale));
  }
  for (uint32_t i = 0; i < group.rope.pairs(); ++i) {
    // The angle of one position, times the position: exact enough for |by| below 2^20.
    const double turn = static_cast<double>(layer.turns[i]) * 0x1p-64;
    const double angle = 2 * std::numbers::pi * std::fmod(turn * static_cast<double>(by), 1.0);
    const auto [a, b] = group.rope.PairAt(i);
    const double x = out[a];
    const double y = out[b];
    out[a] = x * std::cos(angle) - y * std::sin(angle);
    out[b] = y * std::cos(angle) + x * std::sin(angle);
  }
  return out;
}

TEST(Profile, ExemplarsStandBehindTheBlock) {
  const auto profile = Sample();
  for (uint32_t g = 0; g < 3; ++g) {
    const ProfileGroup& group = profile->data().groups[g];
    for (const uint64_t last : {uint64_t{0}, uint64_t{63}, uint64_t{100000}}) {
      for (const uint32_t count : {1u, 4u, 5u, 64u}) {
        const auto layer = static_cast<uint32_t>(group.layers.size() - 1);
        const Exemplars exemplars = profile->ExemplarsOf({g, layer, 0}, count);
        ASSERT_EQ(exemplars.count, std::min(count, 5u));
        std::vector<float> rows;
        AppendExemplarRows(exemplars, last, &rows);
        ASSERT_EQ(rows.size(), exemplars.count * group.k_head_dim);
        const ProfileHead& head = group.heads[size_t{layer} * group.kv_heads];
        for (uint32_t i = 0; i < exemplars.count; ++i) {
          const int64_t at = ExemplarOffset(i, exemplars.count, group.window);
          const std::vector<double> expected =
              Turned(group, group.layers[layer], head.queries.data() + i * group.k_head_dim,
                     static_cast<int64_t>(last) + at - head.positions[i]);
          for (uint32_t c = 0; c < group.k_head_dim; ++c) {
            EXPECT_NEAR(rows[i * group.k_head_dim + c], expected[c], 2e-6) << g << i << c;
          }
        }
      }
    }
  }
}

TEST(Exemplar, OffsetsSpreadOverTheSpan) {
  EXPECT_EQ(ExemplarOffset(0, 1, 0), 1u);
  EXPECT_EQ(ExemplarOffset(0, 2, 0), 1u);
  EXPECT_EQ(ExemplarOffset(1, 2, 0), 512u);
  EXPECT_EQ(ExemplarOffset(1, 3, 0), 257u);  // 256.5, halves up
  EXPECT_EQ(ExemplarOffset(5, 16, 0), 171u);
  EXPECT_EQ(ExemplarOffset(63, 64, 0), 512u);
  EXPECT_EQ(ExemplarOffset(63, 64, 512), 256u);  // half a window
  EXPECT_EQ(ExemplarOffset(63, 64, 4096), 512u);
  EXPECT_EQ(ExemplarOffset(63, 64, 1), 1u);
}

}  // namespace
}  // namespace tokura::kernels
