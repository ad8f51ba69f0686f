// Model profiles from a capture to a block and back, through real processes.

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/node_fixture.h"
#include "tests/integration/tokura_run.h"

namespace tokura::integration {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kBlocks = 16;  // of 16 tokens, in the prefix

class ProfileTest : public ::testing::Test {
 protected:
  // The profile is made of one request; what is stored is a text that it has not seen.
  static void SetUpTestSuite() {
    directory_ = FreshPath(".profiles");
    std::filesystem::create_directory(directory_);
    const json made = TokuraJson(
        {"profile", "--kv", Captured("request_1.kvcap"), "--out", File(), "--exemplars", "16"});
    id_ = made["id"].get<std::string>();
    EXPECT_EQ(id_.size(), 16u);
  }
  static std::string File() { return directory_ + "/made.profile"; }

  // `name` with the prefix capture and `more`, at these servers.
  static std::vector<std::string> Command(const std::string& name,
                                          const std::vector<std::string>& servers,
                                          const std::vector<std::string>& more) {
    std::vector<std::string> all = {name, "--kv", Captured("prefix.kvcap"), "--block-tokens", "16"};
    all.insert(all.end(), servers.begin(), servers.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static inline std::string directory_;
  static inline std::string id_;
};

TEST_F(ProfileTest, GuidedRoundingNeedsOneToWriteAndNoneToRead) {
  NodeUnderTest node;
  const std::vector<std::string> servers = {"--node", node.data()};
  const Finished refused = Tokura(Command("put", servers, {"--codec", "kivi4r", "--json", "-"}));
  EXPECT_EQ(refused.exit_code, 1);
  const json without = json::parse(refused.out, nullptr, false);
  EXPECT_EQ(without["status"]["FAILED_PRECONDITION"], kBlocks) << refused.out;
  EXPECT_THAT(without["reasons"].dump(), HasSubstr("kivi4r needs a model profile"));
  EXPECT_EQ(TokuraJson({"stat", "--node", node.data()})["nodes"][0]["blocks"], 0);

  const json put = TokuraJson(Command("put", servers, {"--codec", "kivi4r", "--profile", File()}));
  EXPECT_EQ(put["status"]["OK"], kBlocks) << put.dump();
  // kivi4r's bytes are kivi4's; what its error was measured with is in the part.
  const json got = TokuraJson(Command("get", servers, {"--max-error", "0.5"}));
  EXPECT_EQ(got["hit"], kBlocks) << got.dump();
  EXPECT_EQ(got["declared_error"]["proxy_blocks"], 0);
  EXPECT_GT(got["declared_error"]["mean"], 0.01);
  EXPECT_LT(got["declared_error"]["mean"], 0.3);
}

TEST_F(ProfileTest, BlocksThatNeedOneToReadAreMissesWithoutIt) {
  NodeUnderTest node;
  const std::vector<std::string> servers = {"--node", node.data()};
  const std::vector<std::string> with = {"--profile-dir", directory_};
  std::vector<std::string> put = {"--codec", "qserve4"};
  put.insert(put.end(), with.begin(), with.end());
  EXPECT_EQ(TokuraJson(Command("put", servers, put))["status"]["OK"], kBlocks);
  const json got = TokuraJson(Command("get", servers, with));
  EXPECT_EQ(got["hit"], kBlocks) << got.dump();
  EXPECT_EQ(got["reasons"], json::array());

  const Finished missed = Tokura(Command("get", servers, {"--json", "-"}));
  EXPECT_EQ(missed.exit_code, 0);
  const json without = json::parse(missed.out, nullptr, false);
  EXPECT_EQ(without["hit"], 0) << missed.out;
  EXPECT_EQ(without["status"]["NOT_FOUND"], kBlocks);
  ASSERT_EQ(without["reasons"].size(), 1u);
  EXPECT_THAT(without["reasons"][0].get<std::string>(), HasSubstr(id_));
  EXPECT_THAT(missed.error, HasSubstr("missing_profile"));
  const Finished said = Tokura(Command("get", servers, {}));
  EXPECT_THAT(said.out, HasSubstr("why not: part: model profile " + id_ + " is not here"));
}

TEST_F(ProfileTest, ErrorsThatQueriesMeasuredMeetABudgetThroughTheCoordinator) {
  const std::string port_file = FreshPath(".ports");
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess up({TOKURA_PROGRAM, "up", "--host-bytes", "64MiB", "--port-file", port_file,
                   "--profile-dir", directory_},
                  files);
  ASSERT_TRUE(WaitFor([&] { return !ReadPorts(port_file).empty(); }));
  const std::vector<std::string> servers = {"--coordinator", ReadPorts(port_file)["data"]};
  const auto hits = [&](const std::string& tenant) {
    const json got =
        TokuraJson(Command("get", servers, {"--max-error", "0.5", "--tenant", tenant}));
    return got["hit"].get<int>();
  };
  const json measured = TokuraJson(
      Command("put", servers, {"--codec", "int8", "--tenant", "a", "--profile", File()}));
  EXPECT_EQ(measured["status"]["OK"], kBlocks) << measured.dump();
  EXPECT_TRUE(WaitFor([&] { return hits("a") == kBlocks; }));
  const json guessed = TokuraJson(Command("put", servers, {"--codec", "int8", "--tenant", "b"}));
  EXPECT_EQ(guessed["status"]["OK"], kBlocks) << guessed.dump();
  const json any = TokuraJson(Command("get", servers, {"--tenant", "b"}));
  EXPECT_EQ(any["hit"], kBlocks);
  EXPECT_EQ(any["declared_error"]["proxy_blocks"], kBlocks);
  EXPECT_EQ(hits("b"), 0) << "judged by its own keys only";
}

TEST_F(ProfileTest, NodesNameTheirsAndDoNotStartWithADamagedOne) {
  NodeUnderTest node({"--profile-dir", directory_});
  int status = 0;
  const json version = json::parse(node.Http("/version", &status), nullptr, false);
  ASSERT_EQ(version["profiles"].size(), 1u) << version.dump();
  EXPECT_EQ(version["profiles"][0]["id"], id_);
  EXPECT_THAT(version["profiles"][0]["model"].get<std::string>(), HasSubstr("SmolLM2"));

  const std::string damaged = FreshPath(".profile");
  std::string bytes = ReadText(File());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(damaged, std::ios::binary) << bytes;
  const ChildProcess::Output files{FreshPath(".out"), FreshPath(".err")};
  ChildProcess broken({TOKURA_NODE_PROGRAM, "--host-bytes", "64MiB", "--profile", damaged}, files);
  const auto ended = broken.WaitForEnd();
  ASSERT_TRUE(ended.has_value());
  EXPECT_NE(*ended, 0);
  EXPECT_THAT(ReadText(files.error_path), HasSubstr(damaged));
  const Finished put =
      Tokura(Command("put", {"--node", node.data()}, {"--codec", "int8", "--profile", damaged}));
  EXPECT_EQ(put.exit_code, 1);
  EXPECT_THAT(put.error, HasSubstr(damaged));
}

TEST_F(ProfileTest, CodecEvalNamesItByItsId) {
  const std::vector<std::string> eval = {"codec",     "eval",
                                         "--kv",      Captured("request_2.kvcap"),
                                         "--prefix",  Captured("prefix.kvcap"),
                                         "--codec",   "qserve4",
                                         "--profile", File()};
  EXPECT_EQ(TokuraJson(eval)["declared_error"]["profile"], id_);
}

}  // namespace
}  // namespace tokura::integration
