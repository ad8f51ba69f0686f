#include "proto/accept.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tokura {
namespace {

FormTraits Lossy() {
  return {0, 1, kWireQuantized, false};
}

TEST(AcceptTest, AnEmptyRuleTakesAnythingButSummaries) {
  const AcceptRule rule;
  EXPECT_EQ(Judge(rule, {0, 1, kWireExact, false}), Verdict::kYes);
  EXPECT_EQ(Judge(rule, {0, 1, kWireQuantized, true}), Verdict::kYes);
  EXPECT_EQ(Judge(rule, {0, 1, kWireSummary, false}), Verdict::kNo);
}

TEST(AcceptTest, ErrorsAreLimited) {
  AcceptRule rule;
  rule.max_error = 0.1;
  EXPECT_TRUE(Accepts(rule, Lossy(), 0.1));
  EXPECT_FALSE(Accepts(rule, Lossy(), 0.11));
  EXPECT_FALSE(Accepts(rule, Lossy(), std::nan("")));
  EXPECT_FALSE(Accepts(rule, Lossy(), std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(Accepts(rule, {0, 1, kWireExact, false}, 7)) << "exact forms always meet it";
}

TEST(AcceptTest, ZeroIsExactOnly) {
  AcceptRule rule;
  rule.max_error = 0;
  EXPECT_FALSE(Accepts(rule, Lossy(), 0));
  EXPECT_TRUE(Accepts(rule, {0, 1, kWireExact, false}, 0));
}

TEST(AcceptTest, ProxyErrorsMeetALimitOnlyWhereThatIsAllowed) {
  AcceptRule rule;
  FormTraits form = Lossy();
  form.proxy_error = true;
  EXPECT_TRUE(Accepts(rule, form, 0.05));
  rule.max_error = 0.1;
  EXPECT_FALSE(Accepts(rule, form, 0.05));
  rule.accept_proxy_error = true;
  EXPECT_TRUE(Accepts(rule, form, 0.05));
}

TEST(AcceptTest, CodecsAndGroupsAreRequired) {
  AcceptRule rule;
  rule.codecs = {"int8", "raw"};
  EXPECT_EQ(CodecRank(rule, "raw"), 1u);
  FormTraits form = Lossy();
  form.codec_rank = CodecRank(rule, "kivi4");
  EXPECT_EQ(Judge(rule, form), Verdict::kNo);
  form.codec_rank = CodecRank(rule, "int8");
  EXPECT_EQ(Judge(rule, form), Verdict::kYes);
  rule.required_groups = 2;
  EXPECT_EQ(Judge(rule, form), Verdict::kNo);
  form.group_mask = 3;
  EXPECT_EQ(Judge(rule, form), Verdict::kYes);
}

TEST(AcceptTest, FormsAreOrderedByRankFidelityErrorAndSize) {
  const FormRank best{0, kWireQuantized, 0.1, 100};
  EXPECT_TRUE(CompareForms(best, {1, kWireExact, 0, 1}) < 0);
  EXPECT_TRUE(CompareForms(best, {0, kWireSummary, 0, 1}) < 0);
  EXPECT_TRUE(CompareForms(best, {0, kWireQuantized, 0.2, 1}) < 0);
  EXPECT_TRUE(CompareForms(best, {0, kWireQuantized, 0.1, 101}) < 0);
  EXPECT_TRUE(CompareForms(best, best) == 0);
}

TEST(AcceptTest, MessagesAreChecked) {
  proto::Accept accept;
  accept.set_max_error(0.25);
  accept.set_allow_summary(true);
  accept.add_codecs("raw");
  const auto rule = ReadAccept(accept);
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(rule->max_error, 0.25);
  EXPECT_TRUE(rule->allow_summary);
  EXPECT_EQ(rule->codecs.size(), 1u);
  accept.set_max_error(std::nan(""));
  EXPECT_EQ(ReadAccept(accept).status().code(), absl::StatusCode::kInvalidArgument);
  accept.set_max_error(-1);
  EXPECT_EQ(ReadAccept(accept).status().code(), absl::StatusCode::kInvalidArgument);
  accept.clear_max_error();
  for (int i = 0; i < kAcceptCodecsMax; ++i) {
    accept.add_codecs("raw");
  }
  EXPECT_EQ(ReadAccept(accept).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tokura
