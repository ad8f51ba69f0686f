#include "cli/bench_lookup_redis.h"

#include <string>

#include <gtest/gtest.h>

#include "cli/bench_lookup_blocks.h"

namespace tokura::cli {
namespace {

TEST(RespIntegersTest, CountsAndAddsHoweverTheBytesCome) {
  const std::string replies = ":1\r\n:0\r\n:25\r\n";
  for (size_t piece = 1; piece <= replies.size(); ++piece) {
    RespIntegers integers;
    for (size_t at = 0; at < replies.size(); at += piece) {
      ASSERT_TRUE(integers.Feed(replies.substr(at, piece)).ok());
    }
    EXPECT_EQ(integers.replies(), 3u);
    EXPECT_EQ(integers.sum(), 26u);
  }
}

TEST(RespIntegersTest, AnythingElseIsAnErrorThatSaysWhat) {
  for (const char* reply : {"-ERR unknown command\r\n", "+OK\r\n", ":\r\n", ":1x\r\n", "\r\n"}) {
    RespIntegers integers;
    const absl::Status status = integers.Feed(reply);
    EXPECT_TRUE(absl::IsInternal(status)) << reply;
  }
  RespIntegers integers;
  EXPECT_EQ(integers.Feed("-LOADING wait\r\n").message(), "redis answers -LOADING wait");
}

TEST(RedisPeerTest, HasTheKeysThatItWasGivenAndTellsWhichItHasNot) {
  auto peer = RedisPeer::Start();
  if (absl::IsNotFound(peer.status())) {
    GTEST_SKIP() << peer.status();
  }
  ASSERT_TRUE(peer.ok()) << peer.status();
  ASSERT_TRUE((*peer)->Grow(1500).ok());
  ASSERT_TRUE((*peer)->Grow(1500).ok()) << "there is nothing to add";
  ASSERT_TRUE((*peer)->Grow(2500).ok());
  const auto took = (*peer)->TimeExists(MadeKeys(0, 2500));
  ASSERT_TRUE(took.ok()) << took.status();
  EXPECT_GT(*took, Duration::zero());
  EXPECT_TRUE(absl::IsDataLoss((*peer)->TimeExists(MadeKeys(2400, 101)).status()));
}

}  // namespace
}  // namespace tokura::cli
