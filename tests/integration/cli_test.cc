// The program `tokura` as users and scripts run it.

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/wait.h>

#include "tests/integration/node_fixture.h"
#include "tests/integration/soak_under_test.h"
#include "tests/integration/tokura_run.h"

namespace tokura::integration {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

void ExpectKeys(const json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    EXPECT_TRUE(object.contains(key)) << key << " is missing in " << object.dump();
  }
}

void ExpectDemoRequest(const json& request) {
  ExpectKeys(request, {"name", "tokens", "tokens_hit", "hits_by_node", "bytes_logical",
                       "bytes_stored", "bytes_moved", "seconds", "attention_error"});
}

// Tokens hit in a round, by node.
std::map<std::string, uint64_t> HitsByNode(const json& round) {
  std::map<std::string, uint64_t> hits;
  for (const json& request : round["requests"]) {
    for (const auto& [node, tokens] : request["hits_by_node"].items()) {
      hits[node] += tokens.get<uint64_t>();
    }
  }
  return hits;
}

void ExpectRound(const json& round) {
  EXPECT_EQ(round["errors"], 0);
  ASSERT_EQ(round["requests"].size(), 4u);
  EXPECT_EQ(round["requests"][0]["name"], "prefill");
  for (const json& request : round["requests"]) {
    ExpectDemoRequest(request);
    uint64_t by_nodes = 0;
    for (const auto& [node, hits] : request["hits_by_node"].items()) {
      by_nodes += hits.get<uint64_t>();
    }
    EXPECT_EQ(by_nodes, request["tokens_hit"]);
  }
}

TEST(CliTest, DemoSharesThePrefixAcrossTwoNodes) {
  const json demo = TokuraJson({"demo"});
  ExpectKeys(demo, {"requests", "totals", "after_node_loss", "after_node_return",
                    "after_coordinator_restart"});
  ExpectKeys(demo["totals"], {"bytes_logical", "bytes_stored", "bytes_moved"});
  ASSERT_EQ(demo["requests"].size(), 4u);
  const json& prefill = demo["requests"][0];
  ExpectDemoRequest(prefill);
  EXPECT_EQ(prefill["name"], "prefill");
  EXPECT_EQ(prefill["tokens_hit"], 0);
  EXPECT_TRUE(prefill["attention_error"].is_null());
  uint64_t stored = prefill["bytes_stored"], logical = prefill["bytes_logical"];
  for (size_t i = 1; i < 4; ++i) {
    const json& request = demo["requests"][i];
    ExpectDemoRequest(request);
    EXPECT_EQ(request["tokens_hit"], 256);
    EXPECT_EQ(request["hits_by_node"].size(), 2u) << request.dump();
    EXPECT_GT(request["attention_error"], 0.001);
    EXPECT_LT(request["attention_error"], 0.05);
    stored += request["bytes_stored"].get<uint64_t>();
    logical += request["bytes_logical"].get<uint64_t>();
  }
  EXPECT_EQ(demo["totals"]["bytes_stored"], stored);
  EXPECT_EQ(demo["totals"]["bytes_logical"], logical);
  EXPECT_LT(stored * 2, logical) << "the default codec halves at least";

  // What survives a node is hit, and nothing else.
  ExpectRound(demo["after_node_loss"]);
  const auto survived = HitsByNode(demo["after_node_loss"]);
  ASSERT_EQ(survived.size(), 1u);
  for (size_t i = 1; i < 4; ++i) {
    const json& request = demo["after_node_loss"]["requests"][i];
    EXPECT_GE(request["tokens_hit"], 64);
    EXPECT_LT(request["tokens_hit"], 256);
    EXPECT_EQ(request["bytes_logical"], 0) << "the round stores nothing";
  }
  ExpectRound(demo["after_node_return"]);
  EXPECT_EQ(HitsByNode(demo["after_node_return"]).size(), 2u);
  // Every block that was put is hit again, without a put.
  ExpectRound(demo["after_coordinator_restart"]);
  EXPECT_EQ(HitsByNode(demo["after_coordinator_restart"]).size(), 2u);
  for (const json& request : demo["after_coordinator_restart"]["requests"]) {
    EXPECT_EQ(request["tokens_hit"], request["tokens"].get<uint64_t>() / 16 * 16);
    EXPECT_EQ(request["bytes_logical"], 0);
  }
}

// Size and sum of one block's numbers in every command's report.
void ExpectReport(const json& report, int blocks, int hit) {
  ExpectKeys(report, {"blocks", "hit", "bytes_logical", "bytes_stored", "status"});
  EXPECT_EQ(report["blocks"], blocks) << report.dump();
  EXPECT_EQ(report["hit"], hit) << report.dump();
}

TEST(CliTest, PutGetStatAndRemoveGoRound) {
  NodeUnderTest node;
  const std::string out_path = FreshPath(".kvcap");
  const auto command = [&](const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {
        name, "--node",  node.data(), "--kv", Captured("prefix.kvcap"), "--block-tokens",
        "16", "--codec", "raw"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ExpectReport(TokuraJson(command("get")), 16, 0);
  const json put = TokuraJson(command("put"));
  ExpectReport(put, 16, 0);
  EXPECT_EQ(put["status"]["OK"], 16);
  ExpectReport(TokuraJson(command("put")), 16, 16);
  ExpectReport(TokuraJson(command("get", {"--out", out_path})), 16, 16);
  EXPECT_TRUE(ReadText(out_path) == ReadText(Captured("prefix.kvcap")))
      << "what came back exactly is not the capture";
  ExpectReport(TokuraJson(command("get", {"--max-error", "0"})), 16, 16);
  ExpectReport(TokuraJson(command("get", {"--tenant", "another"})), 16, 0);
  ExpectReport(TokuraJson(command("get", {"--model", "another"})), 16, 0);
  ExpectReport(TokuraJson(command("stat")), 16, 16);
  const json nodes = TokuraJson({"stat", "--node", node.data()});
  ASSERT_EQ(nodes["nodes"].size(), 1u);
  EXPECT_EQ(nodes["nodes"][0]["blocks"], 16);
  ExpectReport(TokuraJson(command("rm")), 16, 16);
  ExpectReport(TokuraJson(command("rm")), 16, 0);
  ExpectReport(TokuraJson(command("stat")), 16, 0);
  const Finished quiet = Tokura(command("put"));
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_THAT(quiet.out, HasSubstr("16 OK"));
  EXPECT_EQ(quiet.error, "") << "log lines that nobody asked for";
}

TEST(CliTest, LossyBlocksAreWithinTheErrorThatIsAccepted) {
  NodeUnderTest node;
  const std::vector<std::string> where = {
      "--node", node.data(), "--kv", Captured("prefix.kvcap"), "--block-tokens", "16"};
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.begin() + 1, where.begin(), where.end());
    return TokuraJson(std::move(words));
  };
  ExpectReport(command({"put", "--codec", "kivi4"}), 16, 0);
  ExpectReport(command({"get"}), 16, 16);
  ExpectReport(command({"get", "--max-error", "0"}), 16, 0);
  ExpectReport(command({"get", "--max-error", "0.5"}), 16, 0);  // judged by its own keys only
  ExpectReport(command({"get", "--max-error", "0.5", "--accept-proxy-error"}), 16, 16);
}

TEST(CliTest, CodecCommandsHaveTheirShapes) {
  const json list = TokuraJson({"codec", "list"});
  ASSERT_GE(list["codecs"].size(), 3u);
  for (const json& codec : list["codecs"]) {
    ExpectKeys(codec, {"name", "k", "v", "bits_per_element_d128"});
  }
  const json eval = TokuraJson({"codec", "eval", "--kv", Captured("request_1.kvcap"), "--prefix",
                                Captured("prefix.kvcap"), "--codec", "kivi4"});
  ExpectKeys(eval, {"codec", "bits_per_element", "k_error", "v_error", "attention_error",
                    "declared_error", "block_error"});
  ExpectKeys(eval["attention_error"], {"mean", "max", "per_layer"});
  ExpectKeys(eval["declared_error"], {"mean", "max", "per_layer", "profile"});
  ExpectKeys(eval["block_error"], {"true_mean", "declared_mean", "within_25_percent"});
  EXPECT_EQ(eval["attention_error"]["per_layer"].size(), 30u);
  EXPECT_GT(eval["bits_per_element"], 4.0);
  EXPECT_LT(eval["bits_per_element"], 7.0);
}

TEST(CliTest, BenchCodecVerifiesAndReports) {
  const json bench =
      TokuraJson({"bench", "codec", "--seconds", "2", "--filter", "codec/cpu/decode/int8"});
  ExpectKeys(bench, {"commit", "machine", "results"});
  ASSERT_GE(bench["results"].size(), 1u);
  for (const json& row : bench["results"]) {
    ExpectKeys(row, {"name", "value", "unit", "bound", "bound_name", "ratio", "repeats"});
    EXPECT_GT(row["value"], 0);
  }
}

TEST(CliTest, UpServesUntilSigterm) {
  const std::string port_file = FreshPath(".ports");
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess up({TOKURA_PROGRAM, "up", "--host-bytes", "64MiB", "--port-file", port_file}, files);
  ASSERT_TRUE(WaitFor([&] { return !ReadPorts(port_file).empty(); }));
  std::map<std::string, std::string> ports = ReadPorts(port_file);
  EXPECT_EQ(ports.count("data"), 1u);
  EXPECT_EQ(ports.count("admin"), 1u);
  EXPECT_EQ(ports.count("node"), 1u);
  EXPECT_EQ(ports.count("coordinator_admin"), 1u);
  json nodes;
  EXPECT_TRUE(WaitFor([&] {
    nodes = TokuraJson({"nodes", "--coordinator", ports["data"]});
    return nodes.size() == 1 && nodes[0]["complete"] == true;
  })) << nodes.dump();
  EXPECT_EQ(nodes[0]["state"], "up");
  EXPECT_EQ(nodes[0]["address"], ports["node"]);
  EXPECT_EQ(TokuraJson({"stat", "--coordinator", ports["data"]})["nodes"].size(), 1u);
  EXPECT_EQ(TokuraJson({"stat", "--node", ports["node"]})["nodes"].size(), 1u);
  // Blocks put through the coordinator are found through it, and at the node itself.
  const std::vector<std::string> kv = {
      "--kv", Captured("prefix.kvcap"), "--block-tokens", "16", "--codec", "raw"};
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.end(), kv.begin(), kv.end());
    return TokuraJson(std::move(words));
  };
  ExpectReport(command({"put", "--coordinator", ports["data"]}), 16, 0);
  json got;
  EXPECT_TRUE(WaitFor([&] {
    got = command({"get", "--coordinator", ports["data"]});
    return got["hit"] == 16;
  })) << got.dump();
  ExpectReport(command({"get", "--node", ports["node"]}), 16, 16);
  ExpectReport(command({"rm", "--coordinator", ports["data"]}), 16, 16);
  EXPECT_TRUE(WaitFor([&] { return !ReadText(files.out_path).empty(); }));
  EXPECT_THAT(ReadText(files.out_path), HasSubstr("http://" + ports["admin"] + "/metrics"));
  up.Signal(SIGTERM);
  const auto ended = up.WaitForEnd();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << *ended;
}

// The first that is named is gone, and the second starts only after it was asked for in vain.
TEST(CliTest, NodesAsksSeveralCoordinatorsUntilOneAnswers) {
  const auto start = [](const std::string& listen, std::map<std::string, std::string>* ports) {
    const std::string port_file = FreshPath(".ports");
    auto up = std::make_unique<ChildProcess>(
        std::vector<std::string>{TOKURA_PROGRAM, "up", "--host-bytes", "64MiB", "--listen", listen,
                                 "--port-file", port_file},
        ChildProcess::Output{FreshPath(".out"), FreshPath(".err")});
    EXPECT_TRUE(WaitFor([&] { return !ReadPorts(port_file).empty(); }));
    *ports = ReadPorts(port_file);
    return up;
  };
  std::map<std::string, std::string> gone, late;
  start("127.0.0.1:0", &gone);
  start("127.0.0.1:0", &late);
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess nodes({TOKURA_PROGRAM, "nodes", "--coordinator", gone["data"] + "," + late["data"],
                      "--timeout", "60s", "--json", "-"},
                     files);
  // Nobody listens: a single round of asking is over long before.
  EXPECT_TRUE(nodes.RunsFor(Lasting(std::chrono::milliseconds(500))));
  const auto up = start(late["data"], &late);
  const auto ended = nodes.WaitForEnd();
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(WIFEXITED(*ended) && WEXITSTATUS(*ended) == 0) << ReadText(files.error_path);
  EXPECT_TRUE(json::accept(ReadText(files.out_path)));
}

TEST(CliTest, WrongAddressesAreRefusedWithTheirOption) {
  const std::vector<std::vector<std::string>> commands = {
      {"get", "--kv", Captured("prefix.kvcap"), "--node"},
      {"get", "--kv", Captured("prefix.kvcap"), "--coordinator"},
      {"nodes", "--coordinator"},
      {"up", "--listen"},
      {"up", "--node-listen"},
      {"up", "--admin"},
      {"up", "--coordinator-admin"},
  };
  for (std::vector<std::string> command : commands) {
    const std::string option = command.back();
    command.push_back("127.0.0.1:port");
    const Finished refused = Tokura(command);
    EXPECT_EQ(refused.exit_code, 2) << refused.error;
    EXPECT_THAT(refused.error, HasSubstr(option + ": 'port' is not a port"));
  }
}

TEST(CliTest, ExitStatusTellsFailureFromWrongUsage) {
  const Finished help = Tokura({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name :
       {"up", "demo", "put", "get", "stat", "nodes", "rm", "codec list", "codec eval",
        "bench codec", "bench transport", "bench lookup", "bench soak"}) {
    EXPECT_THAT(help.out, HasSubstr(std::string("\n") + name + " "));
  }
  EXPECT_EQ(Tokura({"no-such-command"}).exit_code, 2);
  EXPECT_EQ(Tokura({"put", "--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(Tokura({"get", "--kv", Captured("prefix.kvcap")}).exit_code, 2) << "no server named";
  EXPECT_EQ(Tokura({"get", "--node", "127.0.0.1:1", "--coordinator", "127.0.0.1:2", "--kv",
                    Captured("prefix.kvcap")})
                .exit_code,
            2);
  const Finished nobody = Tokura(
      {"get", "--node", "127.0.0.1:1", "--kv", Captured("prefix.kvcap"), "--timeout", "300ms"});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.error, HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(Tokura({"codec", "eval", "--kv", "/nonexistent"}).exit_code, 1);
}

TEST(CliTest, SoakFindsNothingWrongWhileTheNodeIsKilledAndStopped) {
  auto node = std::make_unique<NodeUnderTest>(std::vector<std::string>{}, NodeLogs::kErrors);
  const std::string address = node->data();
  SoakUnderTest soak({"--node", address, "--threads", "4", "--chains", "16"});
  const auto serves_gets = [&] {
    const double before = node->Metric("tokura_node_requests_total{op=\"get\",result=\"ok\"}");
    return WaitFor([&] {
      return node->Metric("tokura_node_requests_total{op=\"get\",result=\"ok\"}") > before + 20;
    });
  };
  ASSERT_TRUE(serves_gets());
  node->Kill();
  node = std::make_unique<NodeUnderTest>(std::vector<std::string>{"--listen", address},
                                         NodeLogs::kErrors);
  ASSERT_TRUE(serves_gets()) << "the restarted node is not used";
  node->process().Stop();
  // Long enough for clients to notice: no soak thread can have a request under way for longer.
  EXPECT_TRUE(soak.process().RunsFor(Lasting(std::chrono::milliseconds(1200))));
  node->process().Signal(SIGCONT);
  ASSERT_TRUE(serves_gets()) << "the continued node is not used";
  const json report = soak.End();
  ExpectKeys(report, {"ops", "puts", "gets", "hits", "wrong", "hung", "status", "latency_ms",
                      "recovery_ms"});
  ExpectKeys(report["latency_ms"], {"p50", "p99", "max"});
  EXPECT_GE(report["recovery_ms"].size(), 1u);
}

}  // namespace
}  // namespace tokura::integration
