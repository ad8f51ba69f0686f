#include "proto/policy_match.h"

#include <gtest/gtest.h>

namespace tokura {
namespace {

TEST(PolicyMatch, PatternsAreNamesOrBeginnings) {
  EXPECT_TRUE(PolicyPatternMatches("*", ""));
  EXPECT_TRUE(PolicyPatternMatches("*", "anything"));
  EXPECT_TRUE(PolicyPatternMatches("llama-3*", "llama-3"));
  EXPECT_TRUE(PolicyPatternMatches("llama-3*", "llama-3.1-8b"));
  EXPECT_FALSE(PolicyPatternMatches("llama-3*", "llama-"));
  EXPECT_TRUE(PolicyPatternMatches("a", "a"));
  EXPECT_FALSE(PolicyPatternMatches("a", "ab"));
  EXPECT_FALSE(PolicyPatternMatches("a", "A"));
  EXPECT_FALSE(PolicyPatternMatches("", "a"));
  EXPECT_FALSE(PolicyPatternMatches("a*b", "axb"));
}

TEST(PolicyMatch, TheFirstRuleThatMatchesHolds) {
  google::protobuf::RepeatedPtrField<proto::PolicyRule> rules;
  const auto add = [&](const char* tenant, const char* model) {
    rules.Add()->set_tenant(tenant);
    rules.rbegin()->set_model(model);
  };
  add("a", "m*");
  add("a", "*");
  add("*", "m1");
  EXPECT_EQ(MatchPolicy(rules, {"a", "m1"}), &rules[0]);
  EXPECT_EQ(MatchPolicy(rules, {"a", "n"}), &rules[1]);
  EXPECT_EQ(MatchPolicy(rules, {"b", "m1"}), &rules[2]);
  EXPECT_EQ(MatchPolicy(rules, {"b", "n"}), nullptr);
  EXPECT_EQ(MatchPolicy({}, {"a", "m1"}), nullptr);
}

}  // namespace
}  // namespace tokura
