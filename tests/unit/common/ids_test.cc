#include "common/ids.h"

#include <set>

#include <gtest/gtest.h>

#include "absl/hash/hash.h"

namespace tokura {
namespace {

TEST(IdTest, EveryByteChangesTheHash) {
  std::set<size_t> hashes = {absl::HashOf(Fingerprint{})};
  for (size_t i = 0; i < Fingerprint::kBytes; ++i) {
    Fingerprint id;
    id.bytes[i] = 1;
    EXPECT_TRUE(hashes.insert(absl::HashOf(id)).second) << "byte " << i;
  }
}

}  // namespace
}  // namespace tokura
