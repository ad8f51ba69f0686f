// The profiles of a process: which files, in which order, and what is refused.

#include "kernels/profile_store.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/config.h"
#include "tests/unit/kernels/sample_profile.h"

namespace tokura::kernels {
namespace {

// A directory with files of this test.
class ProfileStoreTest : public testing::Test {
 protected:
  ProfileStoreTest() : directory_(testing::TempDir() + "/profile_store_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
  ~ProfileStoreTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }
  // The file of a profile of `model`.
  std::string WriteModel(const std::string& name, const std::string& model) const {
    ProfileData data = SampleProfile();
    data.model = model;
    return Write(name, SerializeProfile(data));
  }
  absl::Status Refused(ProfilePaths paths) const {
    return ProfileStore::Load(std::move(paths)).status();
  }
  static std::vector<std::string> Models(const ProfilePaths& paths) {
    const auto store = ProfileStore::Load(paths);
    std::vector<std::string> models;
    EXPECT_TRUE(store.ok()) << store.status();
    for (const auto& profile :
         store.ok() ? (*store)->profiles() : std::vector<std::shared_ptr<const Profile>>()) {
      models.push_back(profile->data().model);
    }
    return models;
  }

  const std::string directory_;
};

TEST_F(ProfileStoreTest, HasTheFilesAsGivenThenTheDirectoryByName) {
  WriteModel("b.profile", "b");
  WriteModel("a.profile", "a");
  Write("c.txt", "not looked at");
  const std::string late = WriteModel("z.bin", "z");
  const std::string early = WriteModel("y.bin", "y");
  EXPECT_EQ(Models({{late, early}, directory_}), (std::vector<std::string>{"z", "y", "a", "b"}));
  EXPECT_EQ(Models({{}, directory_}), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Models({{early}, ""}), (std::vector<std::string>{"y"}));
  EXPECT_EQ(Models({}), std::vector<std::string>());
}

TEST_F(ProfileStoreTest, HasEqualProfilesOnce) {
  WriteModel("copy.profile", "a");
  const std::string first = WriteModel("first.bin", "a");
  EXPECT_EQ(Models({{first, first}, directory_}), std::vector<std::string>{"a"});
}

TEST_F(ProfileStoreTest, FindsById) {
  const auto store = ProfileStore::Load({{WriteModel("a.profile", "a")}, ""});
  ASSERT_TRUE(store.ok()) << store.status();
  const uint64_t id = (*store)->profiles()[0]->id();
  ASSERT_NE((*store)->Find(id), nullptr);
  EXPECT_EQ((*store)->Find(id)->id(), id);
  EXPECT_EQ((*store)->Find(id + 1), nullptr);
  EXPECT_EQ(ProfileStore().Find(id), nullptr);
}

TEST_F(ProfileStoreTest, NamesTheFileThatCannotBeUsed) {
  WriteModel("a.profile", "a");
  std::string newer = SerializeProfile(SampleProfile());
  newer[10] = 9;
  std::string damaged = SerializeProfile(SampleProfile());
  damaged[300] = static_cast<char>(damaged[300] ^ 1);
  const struct {
    std::string bytes;
    absl::StatusCode code;
    std::string says;
  } cases[] = {
      {std::string(300, 'x'), absl::StatusCode::kInvalidArgument, "TOKURAPF"},
      {newer, absl::StatusCode::kFailedPrecondition, "0.9"},
      {damaged, absl::StatusCode::kDataLoss, "checksum"},
  };
  for (const auto& bad : cases) {
    const std::string path = Write("bad.profile", bad.bytes);
    for (const absl::Status& status : {Refused({{}, directory_}), Refused({{path}, ""})}) {
      EXPECT_EQ(status.code(), bad.code) << status;
      EXPECT_NE(status.message().find(path), std::string::npos) << status;
      EXPECT_NE(status.message().find(bad.says), std::string::npos) << status;
    }
  }
}

TEST_F(ProfileStoreTest, RefusesWhatIsNotThere) {
  EXPECT_EQ(Refused({{}, Path("nowhere")}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Refused({{Path("none.profile")}, ""}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Refused({{}, WriteModel("a.bin", "a")}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ProfileStoreTest, RefusesTooMany) {
  const std::string path = WriteModel("a.profile", "a");
  ProfilePaths paths;
  paths.files.assign(ProfileStore::kProfilesMax, path);
  EXPECT_TRUE(ProfileStore::Load(paths).ok());
  paths.directory = directory_;
  EXPECT_EQ(Refused(paths).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ProfileOptions, ComeFromFlagsAndEnvironment) {
  ProfilePaths paths;
  OptionTable options("test", "Test.");
  AddProfileOptions(&options, &paths);
  const auto environment = [](const char* name) {
    return std::string(name) == "TOKURA_PROFILE_DIR" ? "/etc/profiles" : nullptr;
  };
  EXPECT_TRUE(options.Parse({"--profile", "a.profile,b.profile"}, environment).run);
  EXPECT_EQ(paths.files, (std::vector<std::string>{"a.profile", "b.profile"}));
  EXPECT_EQ(paths.directory, "/etc/profiles");
}

}  // namespace
}  // namespace tokura::kernels
