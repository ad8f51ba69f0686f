// Policy files: what they say, and messages that name line and fix.

#include "coordinator/policy.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tokura::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The message that `text` is refused with.
std::string Refused(const std::string& text) {
  const absl::StatusOr<Policy> policy = ParsePolicy(text, "p.yaml");
  EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(policy.status().message());
}

// One rule with this line in it, which is the third.
std::string RuleWith(const std::string& line) {
  return absl::StrCat("rules:\n  - tenant: t\n    ", line, "\n");
}

TEST(Policy, ReadsEveryKeyAndItsDefault) {
  const absl::StatusOr<Policy> policy = ParsePolicy(
      "rules:\n"
      "  - tenant: chat\n"
      "    model: llama-3*\n"
      "    ingest_codec: kivi4\n"
      "    max_error: 0.125\n"
      "    accept_proxy_error: true\n"
      "    ttl: 24h\n"
      "  - {}\n",
      "p.yaml");
  ASSERT_TRUE(policy.ok()) << policy.status();
  ASSERT_EQ(policy->rules.size(), 2u);
  const proto::PolicyRule& rule = policy->rules[0];
  EXPECT_EQ(rule.tenant(), "chat");
  EXPECT_EQ(rule.model(), "llama-3*");
  EXPECT_EQ(rule.ingest_codec(), "kivi4");
  EXPECT_EQ(rule.max_error(), 0.125);
  EXPECT_TRUE(rule.accept_proxy_error());
  EXPECT_EQ(rule.ttl_us(), uint64_t{24} * 3600 * 1000000);
  const proto::PolicyRule& rest = policy->rules[1];
  EXPECT_EQ(rest.tenant(), "*");
  EXPECT_EQ(rest.model(), "*");
  EXPECT_EQ(rest.ingest_codec(), "");
  EXPECT_FALSE(rest.has_max_error());
  EXPECT_FALSE(rest.accept_proxy_error());
  EXPECT_EQ(rest.ttl_us(), 0u);
}

TEST(Policy, AnEmptyFileHasNoRules) {
  for (const char* text : {"", "# nothing\n", "rules: []\n"}) {
    const absl::StatusOr<Policy> policy = ParsePolicy(text, "p.yaml");
    ASSERT_TRUE(policy.ok()) << policy.status();
    EXPECT_TRUE(policy->rules.empty());
    EXPECT_EQ(policy->text, text);
  }
}

TEST(Policy, TheExampleIsValid) {
  const char* source = std::getenv("TOKURA_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const absl::StatusOr<Policy> policy = ReadPolicyFile(absl::StrCat(source, "/deploy/policy.yaml"));
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->rules.size(), 3u);
}

TEST(Policy, CodecNamesAreCheckedAndCanonical) {
  const absl::StatusOr<Policy> policy =
      ParsePolicy(RuleWith("ingest_codec: kivi4+kivi4"), "p.yaml");
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->rules[0].ingest_codec(), "kivi4");
  EXPECT_TRUE(ParsePolicy(RuleWith("ingest_codec: int8+kivi4"), "p.yaml").ok());
  EXPECT_THAT(
      Refused(RuleWith("ingest_codec: kivi5")),
      AllOf(StartsWith("p.yaml:3: ingest_codec: "), HasSubstr("kivi5"), HasSubstr("kivi4")));
}

TEST(Policy, ErrorsNameTheLineAndTheFix) {
  EXPECT_THAT(Refused(RuleWith("codec: kivi4")),
              AllOf(StartsWith("p.yaml:3: unknown key 'codec'"),
                    HasSubstr("tenant, model, ingest_codec, max_error, accept_proxy_error, ttl")));
  EXPECT_THAT(Refused("rules:\n  - tenant: a\nrule: x\n"),
              AllOf(StartsWith("p.yaml:3: "), HasSubstr("'rules'")));
  EXPECT_THAT(Refused("- tenant: a\n"), AllOf(StartsWith("p.yaml:1: "), HasSubstr("'rules:'")));
  EXPECT_THAT(Refused("rules:\n  tenant: a\n"), AllOf(StartsWith("p.yaml:1: "), HasSubstr("'- '")));
  EXPECT_THAT(Refused("rules:\n"), AllOf(StartsWith("p.yaml:1: "), HasSubstr("[]")));
  EXPECT_THAT(Refused("rules:\n  - a\n"), StartsWith("p.yaml:2: a rule must be a map"));
  EXPECT_THAT(Refused("rules: []\nrules: []\n"), StartsWith("p.yaml:2: 'rules' is there a second"));
  EXPECT_THAT(Refused(RuleWith("tenant: u")), StartsWith("p.yaml:3: 'tenant' is there a second"));
  EXPECT_THAT(Refused(RuleWith("[a]: u")), StartsWith("p.yaml:3: a key must be a name"));
  EXPECT_THAT(Refused(RuleWith("model:")), StartsWith("p.yaml:3: model has no value"));
  EXPECT_THAT(Refused(RuleWith("model: [a]")), StartsWith("p.yaml:3: model must be one plain"));
  EXPECT_THAT(Refused(RuleWith("model: ''")), AllOf(StartsWith("p.yaml:3: "), HasSubstr("\"*\"")));
  EXPECT_THAT(Refused(RuleWith("model: a*b")), AllOf(StartsWith("p.yaml:3: "), HasSubstr("a*b")));
  EXPECT_THAT(Refused(RuleWith("model: *")), AllOf(StartsWith("p.yaml:3: "), HasSubstr("quotes")));
  EXPECT_THAT(Refused(RuleWith("model: [a")), HasSubstr("not YAML"));
  EXPECT_THAT(Refused("rules: []\n---\nrules: []\n"), HasSubstr("second document"));
}

TEST(Policy, NumbersAreInTheirRange) {
  for (const char* bad : {"-0.1", "1.5", "nan", "inf", "much", "0.1.2", "''"}) {
    EXPECT_THAT(Refused(RuleWith(absl::StrCat("max_error: ", bad))),
                AllOf(StartsWith("p.yaml:3: max_error: "), HasSubstr("from 0")));
  }
  for (const char* bad : {"10", "0", "10us", "-1s", "soon", "1.5h"}) {
    EXPECT_THAT(Refused(RuleWith(absl::StrCat("ttl: ", bad))), StartsWith("p.yaml:3: ttl: "));
  }
  EXPECT_THAT(Refused(RuleWith("accept_proxy_error: yes")),
              AllOf(StartsWith("p.yaml:3: accept_proxy_error: "), HasSubstr("true or false")));
}

TEST(Policy, ABudgetThatItsOwnCodecCannotMeetIsRefused) {
  EXPECT_THAT(Refused("rules:\n  - ingest_codec: kivi4\n    max_error: 0\n"),
              AllOf(StartsWith("p.yaml:2: max_error 0"), HasSubstr("raw")));
  EXPECT_THAT(Refused("rules:\n  - ingest_codec: raw+kivi4\n    max_error: 0\n"),
              StartsWith("p.yaml:2: max_error 0"));
  EXPECT_TRUE(ParsePolicy("rules:\n  - ingest_codec: raw\n    max_error: 0\n", "p.yaml").ok());
  EXPECT_TRUE(ParsePolicy("rules:\n  - max_error: 0\n", "p.yaml").ok());
}

TEST(Policy, ARuleThatNeverHoldsIsRefused) {
  const auto rules = [](const char* first, const char* second) {
    return absl::StrCat("rules:\n  - {", first, "}\n  - {", second, "}\n");
  };
  const auto never = AllOf(StartsWith("p.yaml:3: this rule never holds"), HasSubstr("line 2"));
  EXPECT_THAT(Refused(rules("", "tenant: a")), never);
  EXPECT_THAT(Refused(rules("tenant: a", "tenant: a")), never);
  EXPECT_THAT(Refused(rules("tenant: a*", "tenant: ab*, model: m")), never);
  EXPECT_TRUE(ParsePolicy(rules("tenant: ab*", "tenant: a*"), "p.yaml").ok());
  EXPECT_TRUE(ParsePolicy(rules("tenant: a", "tenant: a*"), "p.yaml").ok());
  EXPECT_TRUE(ParsePolicy(rules("tenant: a, model: m", "tenant: a"), "p.yaml").ok());
}

TEST(Policy, IsBounded) {
  std::string rules = "rules:\n";
  for (size_t i = 0; i < kPolicyRulesMax; ++i) {
    absl::StrAppend(&rules, "  - tenant: t", i, "\n");
  }
  EXPECT_TRUE(ParsePolicy(rules, "p.yaml").ok());
  EXPECT_THAT(Refused(rules + "  - tenant: more\n"), StartsWith("p.yaml:258: "));
  EXPECT_THAT(Refused(std::string(kPolicyTextBytesMax + 1, '#')), StartsWith("p.yaml: "));
  EXPECT_THAT(Refused(RuleWith(absl::StrCat("model: ", std::string(257, 'm')))),
              StartsWith("p.yaml:3: "));
}

TEST(Policy, FilesThatCannotBeReadSaySo) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/policy_test.yaml");
  EXPECT_EQ(ReadPolicyFile(path + ".none").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "rules:\n  - tenant: a\n    x: y\n";
  EXPECT_THAT(std::string(ReadPolicyFile(path).status().message()), StartsWith(path + ":3: "));
}

}  // namespace
}  // namespace tokura::coordinator
