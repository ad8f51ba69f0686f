// `tokura profile` and `profile show`, and what `codec list` says of profiles.

#include "cli/profile_command.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/capture_profile.h"
#include "cli/codec_commands.h"
#include "cli/kv_session.h"
#include "cli/sequence_memory.h"
#include "kernels/profile.h"
#include "tests/unit/cli/small_capture.h"

namespace tokura::cli {
namespace {

class ProfileCommandTest : public testing::Test {
 protected:
  ProfileCommandTest() : directory_(testing::TempDir() + "/profile_command_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
  ~ProfileCommandTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Written(const std::string& name, const Capture& capture) const {
    EXPECT_TRUE(WriteCapture(Path(name), capture).ok());
    return Path(name);
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static Json ReadJson(const std::string& path) { return Json::parse(Bytes(path), nullptr, false); }

  const std::string directory_;
};

TEST_F(ProfileCommandTest, MakesAProfileThatShowShows) {
  const std::string kv = Written("a.kvcap", SmallCapture());
  const std::string out = Path("tiny.profile");
  ASSERT_EQ(RunProfile({"--kv", kv, "--out", out, "--json", Path("made.json")}), kExitOk);
  const Json made = ReadJson(Path("made.json"));
  const auto profile = kernels::Profile::Read(out);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(made["id"], kernels::ProfileIdText((*profile)->id()));
  EXPECT_EQ(made["model"], "tiny");
  EXPECT_EQ(made["layers"], 3);
  EXPECT_EQ(made["kv_heads"], 2);
  EXPECT_EQ(made["head_dim"], 8);
  EXPECT_EQ(made["exemplars"], 8) << "two query heads read a KV head, at four positions";
  ASSERT_EQ(RunProfileShow({out, "--json", Path("shown.json")}), kExitOk);
  EXPECT_EQ(ReadJson(Path("shown.json")), made);
}

TEST_F(ProfileCommandTest, EqualCapturesGiveEqualBytes) {
  const std::string a = Written("a.kvcap", SmallCapture());
  const std::string b = Written("b.kvcap", SmallCapture({.tokens = 40, .first_position = 3}));
  for (const char* name : {"1.profile", "2.profile"}) {
    ASSERT_EQ(RunProfile({"--kv", a, "--kv", b, "--out", Path(name)}), kExitOk);
  }
  EXPECT_EQ(Bytes(Path("1.profile")), Bytes(Path("2.profile")));
  ASSERT_EQ(RunProfile({"--kv", a, "--out", Path("3.profile")}), kExitOk);
  EXPECT_NE(Bytes(Path("1.profile")), Bytes(Path("3.profile")));
}

TEST_F(ProfileCommandTest, NameAndNumberOfExemplarsCanBeChosen) {
  const std::string kv = Written("a.kvcap", SmallCapture());
  ASSERT_EQ(RunProfile({"--kv", kv, "--out", Path("p"), "--model", "served", "--exemplars", "3"}),
            kExitOk);
  const auto profile = kernels::Profile::Read(Path("p"));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ((*profile)->data().model, "served");
  EXPECT_EQ((*profile)->data().exemplars, 3u);
}

TEST_F(ProfileCommandTest, GroupsAreThoseOfTheNamespace) {
  const Capture capture = SmallCapture();
  const auto data = ProfileOfCaptures({&capture, 1}, {}, [](std::string_view) {});
  ASSERT_TRUE(data.ok()) << data.status();
  const auto spec = CaptureNamespace(capture, {});
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(data->model, spec->model);
  ASSERT_EQ(data->groups.size(), spec->groups.size());
  for (size_t g = 0; g < data->groups.size(); ++g) {
    EXPECT_EQ(data->groups[g].window, spec->groups[g].window);
    EXPECT_EQ(data->groups[g].kv_heads, spec->groups[g].kv_heads);
    EXPECT_EQ(data->groups[g].k_head_dim, spec->groups[g].k_head_dim);
    std::vector<uint32_t> layers;
    for (const kernels::ProfileLayer& layer : data->groups[g].layers) {
      layers.push_back(layer.index);
    }
    EXPECT_EQ(layers, spec->groups[g].layers);
  }
}

TEST_F(ProfileCommandTest, WrongUsageIsSaid) {
  const std::string kv = Written("a.kvcap", SmallCapture());
  const std::string out = Path("p");
  EXPECT_EQ(RunProfile({"--out", out}), kExitUsage);
  EXPECT_EQ(RunProfile({"--kv", kv}), kExitUsage);
  EXPECT_EQ(RunProfile({"--kv", kv, "--out", out, "--exemplars", "0"}), kExitUsage);
  EXPECT_EQ(RunProfile({"--kv", kv, "--out", out, "--exemplars", "65"}), kExitUsage);
  EXPECT_EQ(RunProfileShow({}), kExitUsage);
  EXPECT_EQ(RunProfileShow({out, out}), kExitUsage);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ProfileCommandTest, WhatCannotBeLearntFromLeavesNoFile) {
  const std::string out = Path("p");
  const std::string kv = Written("a.kvcap", SmallCapture());
  Capture other = SmallCapture();
  other.model = "other";
  const std::string alien = Written("b.kvcap", other);
  const std::string silent = Written("c.kvcap", SmallCapture({.queries = 0}));
  EXPECT_EQ(RunProfile({"--kv", Path("none.kvcap"), "--out", out}), kExitFailed);
  EXPECT_EQ(RunProfile({"--kv", kv, "--kv", alien, "--out", out}), kExitFailed);
  EXPECT_EQ(RunProfile({"--kv", silent, "--out", out}), kExitFailed);
  EXPECT_EQ(RunProfile({"--kv", kv, "--out", Path("no/such/place")}), kExitFailed);
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ProfileCommandTest, ShowRefusesWhatIsNoProfile) {
  EXPECT_EQ(RunProfileShow({Path("none.profile")}), kExitFailed);
  EXPECT_EQ(RunProfileShow({Written("a.kvcap", SmallCapture())}), kExitFailed);
}

TEST_F(ProfileCommandTest, CodecListSaysWhoNeedsOne) {
  ASSERT_EQ(RunCodecList({"--json", Path("list.json")}), kExitOk);
  std::map<std::string, std::string> uses;
  const Json list = ReadJson(Path("list.json"));
  for (const Json& codec : list["codecs"]) {
    uses[codec["name"].get<std::string>()] = codec["profile"].get<std::string>();
  }
  EXPECT_EQ(uses["raw"], "none");
  EXPECT_EQ(uses["kivi4"], "none");
  EXPECT_EQ(uses["turbo4"], "optional");
  EXPECT_EQ(uses["kivi4r"], "encode");
  EXPECT_EQ(uses["kivi4rv"], "encode");
  EXPECT_EQ(uses["qserve4"], "decode");
  EXPECT_EQ(uses["atom4"], "decode");
}

TEST(KvReasons, AreSaidOnceAndNotWithoutEnd) {
  EXPECT_TRUE(ReasonsOf({absl::OkStatus(), absl::NotFoundError("")}).empty());
  EXPECT_EQ(ReasonsOf({absl::NotFoundError("b"), absl::OkStatus(), absl::NotFoundError("a"),
                       absl::DataLossError("b")}),
            (std::vector<std::string>{"b", "a"}));
  std::vector<absl::Status> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(absl::NotFoundError(std::to_string(i)));
  }
  EXPECT_EQ(ReasonsOf(many).size(), kReasonsMax);
}

}  // namespace
}  // namespace tokura::cli
