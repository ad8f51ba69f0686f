#include "cache-node/server_verify.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/node/server_testing.h"

namespace tokura::node {
namespace {

kernels::PartIdentity AnIdentity() {
  kernels::PartIdentity identity;
  identity.key.bytes[0] = 1;
  identity.content_id.bytes[0] = 2;
  return identity;
}

// Verify `part`, of which some more bytes are told of each time until all are there. Bytes that
// have not been told of are wrong until then.
PartVerify::Result VerifyGrowing(const std::vector<std::byte>& part, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> room(part.size(), std::byte{0xa5});
  PartVerify verify({room, AnIdentity(), LayerChecks::kAll});
  size_t there = 0;
  while (there < part.size() && !verify.over()) {
    const size_t more = std::min<size_t>(part.size() - there, 1 + random() % (part.size() / 3));
    std::copy_n(part.begin() + static_cast<ptrdiff_t>(there), more,
                room.begin() + static_cast<ptrdiff_t>(there));
    there += more;
    verify.Grow(there);
    while (verify.Step() == Job::Progress::kMore) {
    }
    EXPECT_TRUE(!verify.over() || there == part.size() || !verify.result().ok());
  }
  EXPECT_TRUE(verify.over());
  return verify.result();
}

TEST(PartVerify, PartThatGrowsIsVerifiedWhateverArrivesAtATime) {
  const std::vector<std::byte> part = MakePart(AnIdentity(), 1, 3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const PartVerify::Result result = VerifyGrowing(part, seed);
    ASSERT_TRUE(result.ok()) << result.status() << " with seed " << seed;
    ASSERT_EQ(result->part_bytes, part.size());
  }
}

TEST(PartVerify, AFlippedBitAnywhereIsFoundWhateverArrivesAtATime) {
  const std::vector<std::byte> part = MakePart(AnIdentity(), 1, 3);
  std::mt19937_64 random(7);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<std::byte> damaged = part;
    damaged[random() % part.size()] ^= static_cast<std::byte>(1u << random() % 8);
    ASSERT_FALSE(VerifyGrowing(damaged, seed).ok()) << "with seed " << seed;
  }
}

}  // namespace
}  // namespace tokura::node
