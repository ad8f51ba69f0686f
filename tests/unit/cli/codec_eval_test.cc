#include "cli/codec_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/paths.h"
#include "tests/unit/cli/small_capture.h"

namespace tokura::cli {
namespace {

constexpr auto kNoProgress = [](std::string_view) {};

absl::StatusOr<Capture> RealRequest() {
  const std::string directory = *DemoDataDirectory("");
  return ReadSequence(directory + "/request_1.kvcap", directory + "/prefix.kvcap");
}

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

TEST(CodecEvalTest, RawIsExactInEveryFigure) {
  const auto e = EvaluateCodec(SmallCapture(), {.codec = "raw", .block_tokens = 4}, kNoProgress);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_EQ(e->blocks, 2u);
  EXPECT_GE(e->bits_per_element, 16);
  EXPECT_EQ(e->k_error, 0);
  EXPECT_EQ(e->v_error, 0);
  EXPECT_EQ(e->attention_error.Max(), 0);
  EXPECT_EQ(e->declared_error.Max(), 0);
  EXPECT_EQ(e->block_true_mean, 0);
  EXPECT_EQ(e->within_25_percent, 1);
}

TEST(CodecEvalTest, FinerCodecsErrLessOnRealKv) {
  const auto capture = RealRequest();
  ASSERT_TRUE(capture.ok()) << capture.status();
  const auto fine = EvaluateCodec(*capture, {.codec = "int8"}, kNoProgress);
  const auto coarse = EvaluateCodec(*capture, {.codec = "kivi4"}, kNoProgress);
  ASSERT_TRUE(fine.ok()) << fine.status();
  ASSERT_TRUE(coarse.ok()) << coarse.status();
  EXPECT_EQ(coarse->blocks, 4u);  // of 64 tokens in 304
  EXPECT_EQ(coarse->attention_error.per_layer.size(), 30u);
  EXPECT_EQ(coarse->declared_error.per_layer.size(), 30u);
  EXPECT_EQ(coarse->profile, 0u);
  // The scale that measurements on other texts of this model have.
  EXPECT_GT(fine->attention_error.Mean(), 0.002);
  EXPECT_LT(fine->attention_error.Mean(), 0.02);
  EXPECT_GT(coarse->attention_error.Mean(), 0.02);
  EXPECT_LT(coarse->attention_error.Mean(), 0.1);
  EXPECT_GT(coarse->block_true_mean, coarse->attention_error.Mean());
  EXPECT_GT(coarse->within_25_percent, 0.3);
  EXPECT_LT(coarse->bits_per_element, 5);
  EXPECT_GT(fine->bits_per_element, 8);
}

TEST(CodecEvalTest, OnlyWholeBlocksOfTheContextAreEncoded) {
  Capture capture = SmallCapture({.layers = 1, .tokens = 12, .queries = 4});
  capture.context_tokens = 7;
  // One block of four tokens, all of them sinks: nothing is lost.
  const auto all_sinks =
      EvaluateCodec(capture, {.codec = "kivi4", .block_tokens = 4, .sink_tokens = 4}, kNoProgress);
  ASSERT_TRUE(all_sinks.ok()) << all_sinks.status();
  EXPECT_EQ(all_sinks->blocks, 1u);
  EXPECT_EQ(all_sinks->k_error, 0);
  EXPECT_EQ(all_sinks->attention_error.Max(), 0);
  const auto no_sinks =
      EvaluateCodec(capture, {.codec = "kivi4", .block_tokens = 4, .sink_tokens = 0}, kNoProgress);
  ASSERT_TRUE(no_sinks.ok()) << no_sinks.status();
  EXPECT_GT(no_sinks->k_error, 0);
  EXPECT_GT(no_sinks->attention_error.Max(), 0);
}

TEST(CodecEvalTest, SaysWhatIsMissing) {
  const auto no_queries =
      EvaluateCodec(SmallCapture({.queries = 0}), {.block_tokens = 4}, kNoProgress);
  EXPECT_EQ(no_queries.status().code(), absl::StatusCode::kFailedPrecondition);
  const auto short_context = EvaluateCodec(SmallCapture(), {.block_tokens = 64}, kNoProgress);
  EXPECT_EQ(short_context.status().code(), absl::StatusCode::kInvalidArgument);
  const auto continuation =
      EvaluateCodec(SmallCapture({.first_position = 8}), {.block_tokens = 4}, kNoProgress);
  EXPECT_EQ(continuation.status().code(), absl::StatusCode::kInvalidArgument);
  const auto unknown =
      EvaluateCodec(SmallCapture(), {.codec = "zip", .block_tokens = 4}, kNoProgress);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
}

TEST(CodecEvalTest, JsonHasTheKeysThatScriptsRelyOn) {
  const auto e = EvaluateCodec(SmallCapture(), {.codec = "int8", .block_tokens = 4}, kNoProgress);
  ASSERT_TRUE(e.ok()) << e.status();
  const Json json = ToJson(*e);
  using ::testing::ElementsAre;
  EXPECT_THAT(Keys(json), ElementsAre("codec", "bits_per_element", "k_error", "v_error",
                                      "attention_error", "declared_error", "block_error"));
  EXPECT_THAT(Keys(json["attention_error"]), ElementsAre("mean", "max", "per_layer"));
  EXPECT_THAT(Keys(json["declared_error"]),
              ElementsAre("mean", "max", "per_layer", "profile", "bound_share"));
  EXPECT_THAT(Keys(json["block_error"]),
              ElementsAre("true_mean", "declared_mean", "within_25_percent", "ratio"));
  EXPECT_EQ(json["attention_error"]["per_layer"].size(), 3u);
  EXPECT_TRUE(json["declared_error"]["profile"].is_null());
}

TEST(CodecEvalTest, NamesTheProfileAsTextThatLosesNoDigits) {
  CodecEvaluation e;
  e.attention_error.per_layer = e.declared_error.per_layer = {0.5};
  e.profile = 0xfedcba9876543210;
  EXPECT_EQ(ToJson(e)["declared_error"]["profile"], "fedcba9876543210");
}

}  // namespace
}  // namespace tokura::cli
