#include "cli/demo.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura::cli {
namespace {

DemoRequest Decode() {
  DemoRequest request;
  request.name = "request_1";
  request.tokens = 328;
  request.tokens_hit = 256;
  request.hits_by_node = {{"node-a", 64}, {"node-b", 192}};
  request.first_node = "node-a";
  request.bytes_logical = 100;
  request.bytes_stored = 30;
  request.bytes_moved = 70;
  request.bytes_private = 500;
  request.seconds = 0.25;
  request.has_queries = true;
  request.attention_error = 0.03;
  return request;
}

DemoRequest Prefill() {
  DemoRequest request;
  request.name = "prefill";
  request.tokens = 256;
  request.bytes_logical = 400;
  request.bytes_stored = 100;
  request.bytes_moved = 100;
  return request;
}

TEST(DemoTest, JsonHasTheShapeThatScriptsRelyOn) {
  DemoResult result;
  result.shared.requests = {Prefill(), Decode()};
  result.after_node_loss.requests = {Prefill(), Decode()};
  result.after_node_loss.errors = 2;
  result.after_coordinator_restart.requests = {Decode()};
  const Json json = ToJson(result);
  ASSERT_EQ(json["requests"].size(), 2u);
  EXPECT_EQ(json["requests"][0]["name"], "prefill");
  EXPECT_TRUE(json["requests"][0]["attention_error"].is_null());
  EXPECT_EQ(json["requests"][0]["hits_by_node"], Json::object());
  const Json& decode = json["requests"][1];
  EXPECT_EQ(decode["tokens"], 328);
  EXPECT_EQ(decode["tokens_hit"], 256);
  EXPECT_EQ(decode["hits_by_node"]["node-a"], 64);
  EXPECT_EQ(decode["hits_by_node"]["node-b"], 192);
  EXPECT_EQ(decode["bytes_logical"], 100);
  EXPECT_EQ(decode["bytes_stored"], 30);
  EXPECT_EQ(decode["bytes_moved"], 70);
  EXPECT_EQ(decode["seconds"], 0.25);
  EXPECT_EQ(decode["attention_error"], 0.03);
  EXPECT_EQ(json["totals"]["bytes_logical"], 500);
  EXPECT_EQ(json["totals"]["bytes_stored"], 130);
  EXPECT_EQ(json["totals"]["bytes_moved"], 170);
  EXPECT_EQ(json["after_node_loss"]["errors"], 2);
  EXPECT_EQ(json["after_node_loss"]["requests"].size(), 2u);
  EXPECT_EQ(json["after_coordinator_restart"]["errors"], 0);
  EXPECT_EQ(json["after_coordinator_restart"]["requests"].size(), 1u);
}

TEST(DemoTest, AWorkersReportSurvivesItsPipe) {
  for (const DemoRequest& request : {Prefill(), Decode()}) {
    const auto parsed = ParseDemoRequest(ToLine(request));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(ToLine(*parsed), ToLine(request));
    EXPECT_EQ(parsed->bytes_private, request.bytes_private);
  }
  DemoRequest broken = Decode();
  broken.attention_error = std::nan("");
  const auto parsed = ParseDemoRequest(ToLine(broken));
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(std::isnan(parsed->attention_error));
}

TEST(DemoTest, OtherOutputIsNoReport) {
  const std::string good = ToLine(Decode());
  for (const std::string& line : {std::string(), std::string("{}"), std::string("[1]"),
                                  std::string("killed"), good.substr(0, good.size() / 2)}) {
    EXPECT_EQ(ParseDemoRequest(line).status().code(), absl::StatusCode::kInternal) << line;
  }
  Json other_type = Json::parse(good);
  other_type["tokens"] = "many";
  EXPECT_FALSE(ParseDemoRequest(other_type.dump()).ok());
  Json other_hits = Json::parse(good);
  other_hits["hits_by_node"]["node-a"] = "many";
  EXPECT_FALSE(ParseDemoRequest(other_hits.dump()).ok());
}

}  // namespace
}  // namespace tokura::cli
