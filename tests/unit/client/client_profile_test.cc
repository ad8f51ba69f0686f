// Model profiles in a client: which one is chosen, what it is good for, and what happens where it
// is not.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client-lib/src/model_profiles.h"
#include "tests/unit/client/cluster_testing.h"
#include "tests/unit/client/profile_testing.h"

namespace tokura {
namespace {

using kernels::ProfileData;
using testing::HasSubstr;

// A profile for SmallSpec; others of another `seed`.
ProfileData SmallProfile(uint32_t seed = 1) {
  return ProfileFor(SmallSpec(), seed);
}

class ClientProfileTest : public ClusterTest {
 protected:
  ClientProfileTest() : directory_(testing::TempDir() + "/client_profile_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }
  ~ClientProfileTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& bytes) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string Write(const std::string& name, const ProfileData& data) const {
    return Write(name, kernels::SerializeProfile(data));
  }
  static ClientOptions With(std::vector<std::string> files) {
    ClientOptions options;
    options.profiles.files = std::move(files);
    return options;
  }
  static std::string IdOf(const std::string& path) {
    const auto profile = kernels::Profile::Read(path);
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile.ok() ? kernels::ProfileIdText((*profile)->id()) : "";
  }
  void Restart(ClientOptions options) {
    StopClient();
    StartClient(std::move(options));
  }
  PutResult PutAs(const std::string& codec, const TokenChain& chain, EngineMemory& source) {
    PutOptions options;
    options.codec = codec;
    return Put(chain, source.View(), options);
  }
  absl::Status Refused(ClientOptions options) {
    absl::Status status;
    OnLoop([&] {
      status = ClientCore::Create({transport_, host_.pool(), host_.random(), registry_},
                                  std::move(options))
                   .status();
    });
    return status;
  }

  const std::string directory_;
};

TEST_F(ClientProfileTest, ErrorsAreMeasuredWithTheProfilesQueries) {
  AddNode();
  StartClient(With({Write("a.profile", SmallProfile())}));
  const TokenChain chain = MakeChain(*ns_, 2);
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  source.Randomize(1);
  ASSERT_EQ(PutAs("int8", chain, source).stored(), 2u);
  GetOptions options;
  options.accept.max_error = 0.5;  // and accept_proxy_error is off
  const GetResult got = Get(Lookup(chain), target.View(), options);
  ASSERT_EQ(got.prefix_ok(), 2u) << got.blocks[0];
  EXPECT_FALSE(got.proxy_error[0]);
  EXPECT_GT(got.declared_error[0], 0);
  // The same block judged by its own keys declares another error.
  Restart({});
  const TokenChain other = MakeChain(*ns_, 2, 7);
  ASSERT_EQ(PutAs("int8", other, source).stored(), 2u);
  const GetResult own = Get(Lookup(other), target.View());
  ASSERT_EQ(own.prefix_ok(), 2u);
  EXPECT_TRUE(own.proxy_error[0]);
  EXPECT_NE(own.declared_error[0], got.declared_error[0]);
  EXPECT_EQ(Get(Lookup(other), target.View(), options).prefix_ok(), 0u);
}

TEST_F(ClientProfileTest, BlocksOfAnotherModelDoNotUseIt) {
  ProfileData data = SmallProfile();
  data.model = "another";
  AddNode();
  StartClient(With({Write("a.profile", data)}));
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(1);
  ASSERT_EQ(PutAs("int8", chain, source).stored(), 1u);
  EXPECT_TRUE(Get(Lookup(chain), target.View()).proxy_error[0]);
}

TEST_F(ClientProfileTest, MissingProfileIsAMissThatNamesIt) {
  const std::string path = Write("a.profile", SmallProfile());
  AddNode();
  StartClient(With({path}));
  const TokenChain chain = MakeChain(*ns_, 3);
  EngineMemory source(*ns_, 3), target(*ns_, 3);
  source.Randomize(1);
  ASSERT_EQ(PutAs("qserve4", chain, source).stored(), 3u);
  const Match match = Lookup(chain);
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 3u);
  Restart({});
  ExpectWarnings();
  target.Fill(-5);
  const uint64_t warnings = LogCounts().warnings;
  for (int round = 0; round < 2; ++round) {
    const GetResult got = Get(match, target.View());
    ASSERT_EQ(got.blocks.size(), 3u);
    for (const absl::Status& block : got.blocks) {
      EXPECT_EQ(block.code(), absl::StatusCode::kNotFound) << block;
      EXPECT_THAT(std::string(block.message()), HasSubstr(IdOf(path)));
    }
  }
  for (const std::vector<float>& group : target.values()) {
    EXPECT_TRUE(std::all_of(group.begin(), group.end(), [](float v) { return v == -5; }));
  }
  EXPECT_EQ(Metric("tokura_client_missing_profile_total"), 6);
  EXPECT_EQ(Metric("tokura_client_blocks_total", {{"op", "get"}, {"result", "miss"}}), 6);
  EXPECT_EQ(Metric("tokura_client_data_loss_total"), 0);
  EXPECT_EQ(LogCounts().warnings, warnings + 1) << "one line for one profile";
}

TEST_F(ClientProfileTest, AnotherProfileOfTheModelWillNotDo) {
  const std::string writer = Write("a.profile", SmallProfile(1));
  const std::string reader = Write("b.profile", SmallProfile(2));
  AddNode();
  StartClient(With({writer}));
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(1);
  ASSERT_EQ(PutAs("atom4", chain, source).stored(), 1u);
  const Match match = Lookup(chain);
  ExpectWarnings();
  Restart(With({reader}));
  const absl::Status missed = Get(match, target.View()).blocks[0];
  EXPECT_EQ(missed.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missed.message()), HasSubstr(IdOf(writer)));
  // Old blocks stay readable while the old profile is anywhere in the list.
  Restart(With({reader, writer}));
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 1u);
}

TEST_F(ClientProfileTest, FirstThatFitsWrites) {
  ProfileData other = SmallProfile(3);
  other.groups[0].layers[2].index = 9;
  const std::string unfit = Write("0.profile", other);
  const std::string first = Write("1.profile", SmallProfile(1));
  const std::string second = Write("2.profile", SmallProfile(2));
  AddNode();
  StartClient(With({unfit, first, second}));
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(1);
  ASSERT_EQ(PutAs("qserve4", chain, source).stored(), 1u);
  const Match match = Lookup(chain);
  Restart(With({first}));
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 1u);
}

TEST_F(ClientProfileTest, ReadersOfGuidedRoundingNeedNone) {
  AddNode();
  StartClient(With({Write("a.profile", SmallProfile())}));
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(1);
  ASSERT_EQ(PutAs("kivi4r", chain, source).stored(), 1u);
  const Match match = Lookup(chain);
  Restart({});
  EXPECT_EQ(Get(match, target.View()).prefix_ok(), 1u);
}

TEST_F(ClientProfileTest, NothingIsSentOfAPutThatNeedsOne) {
  ProfileData wrong = SmallProfile();
  wrong.groups[0].layers.pop_back();
  wrong.groups[0].heads.resize(4);
  const std::string path = Write("a.profile", wrong);
  FakeNode& node = AddNode();
  StartClient(With({path}));
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  for (const char* codec : {"qserve4", "kivi4r", "atom4"}) {
    const PutResult put = PutAs(codec, MakeChain(*ns_, 2), source);
    ASSERT_EQ(put.blocks.size(), 2u);
    for (const absl::Status& block : put.blocks) {
      EXPECT_EQ(block.code(), absl::StatusCode::kFailedPrecondition) << block;
      EXPECT_THAT(std::string(block.message()), HasSubstr(codec));
      EXPECT_THAT(std::string(block.message()), HasSubstr(IdOf(path)));
      EXPECT_THAT(std::string(block.message()), HasSubstr("layers"));
    }
  }
  EXPECT_EQ(node.requests[net::Op::kPut], 0);
}

TEST_F(ClientProfileTest, NoPlanIsAskedForAPutThatNeedsOne) {
  StartCluster(1, 1);
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  const PutResult put = PutAs("qserve4", MakeChain(*ns_, 2), source);
  ASSERT_EQ(put.blocks.size(), 2u);
  EXPECT_EQ(put.blocks[1].code(), absl::StatusCode::kFailedPrecondition) << put.blocks[1];
  EXPECT_TRUE(coordinators_[0]->plans.empty());
}

TEST_F(ClientProfileTest, PolicysCodecThatNeedsOneGivesWayToTheClients) {
  StartCluster(1, 1);
  proto::ClusterState state = coordinators_[0]->state();
  state.set_policy_version(state.policy_version() + 1);
  proto::PolicyRule* rule = state.add_rules();
  rule->set_tenant("*");
  rule->set_model("*");
  rule->set_ingest_codec("qserve4");
  coordinators_[0]->Publish(state);
  RunFor(std::chrono::milliseconds(10));
  ExpectWarnings();
  EngineMemory source(*ns_, 2);
  source.Randomize(1);
  const uint64_t warnings = LogCounts().warnings;
  for (uint32_t salt = 1; salt < 4; ++salt) {
    EXPECT_EQ(Put(MakeChain(*ns_, 2, salt), source.View()).stored(), 2u);
    EXPECT_EQ(nodes_[0]->puts.back().codec(), "raw");
  }
  EXPECT_EQ(Metric("tokura_client_policy_codec_unusable_total"), 3);
  EXPECT_EQ(LogCounts().warnings, warnings + 1);
}

TEST_F(ClientProfileTest, PolicysCodecIsUsedWhereOneFits) {
  StartCluster(1, 1, With({Write("a.profile", SmallProfile())}));
  proto::ClusterState state = coordinators_[0]->state();
  state.set_policy_version(state.policy_version() + 1);
  proto::PolicyRule* rule = state.add_rules();
  rule->set_tenant("*");
  rule->set_model("*");
  rule->set_ingest_codec("qserve4");
  coordinators_[0]->Publish(state);
  RunFor(std::chrono::milliseconds(10));
  EngineMemory source(*ns_, 2), target(*ns_, 2);
  PutAll(source, MakeChain(*ns_, 2));
  EXPECT_EQ(nodes_[0]->puts.back().codec(), "qserve4");
  EXPECT_EQ(Get(Lookup(MakeChain(*ns_, 2)), target.View()).prefix_ok(), 2u);
}

TEST_F(ClientProfileTest, AnotherNodesFormIsTakenInstead) {
  FakeNode& first = AddNode({.name = "node-0", .ip = "10.0.0.1"});
  StartClient(With({Write("a.profile", SmallProfile())}));
  const TokenChain chain = MakeChain(*ns_, 1);
  EngineMemory source(*ns_, 1), target(*ns_, 1);
  source.Randomize(1);
  ASSERT_EQ(PutAs("qserve4", chain, source).stored(), 1u);
  const auto undecodable = first.blocks;
  first.blocks.clear();
  ASSERT_EQ(PutAs("raw", chain, source).stored(), 1u);
  const auto raw = first.blocks;
  first.blocks = undecodable;
  const Match match = Lookup(chain);
  ASSERT_EQ(match.blocks(), 1u);
  FakeNode& second = AddNode({.name = "node-1", .ip = "10.0.0.2"});
  ExpectWarnings();
  Restart({});
  // A node without the block does not make the reason forgotten.
  const absl::Status missed = Get(match, target.View()).blocks[0];
  EXPECT_EQ(missed.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missed.message()), HasSubstr("profile"));
  EXPECT_EQ(second.gets.size(), 1u);
  second.blocks = raw;
  Match hint = match;
  hint.content_ids.clear();
  const GetResult got = Get(hint, target.View());
  EXPECT_EQ(got.prefix_ok(), 1u) << got.blocks[0];
  EXPECT_EQ(source.values(), target.values());
}

TEST_F(ClientProfileTest, ClientsDoNotStartWithAProfileThatCannotBeUsed) {
  std::string newer = kernels::SerializeProfile(SmallProfile());
  std::string damaged = newer;
  newer[10] = 9;
  damaged[200] = static_cast<char>(damaged[200] ^ 1);
  const absl::Status of_newer = Refused(With({Write("newer.profile", newer)}));
  EXPECT_EQ(of_newer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(of_newer.message()), HasSubstr("newer.profile"));
  const absl::Status of_damaged = Refused(With({Write("damaged.profile", damaged)}));
  EXPECT_EQ(of_damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(of_damaged.message()), HasSubstr("damaged.profile"));
  ClientOptions nowhere;
  nowhere.profiles.directory = directory_ + "/nowhere";
  EXPECT_EQ(Refused(nowhere).code(), absl::StatusCode::kNotFound);
}

TEST(ProfileFits, EveryDifferenceIsNamed) {
  const NamespaceSpec spec = SmallSpec();
  EXPECT_TRUE(CheckProfileFits(SmallProfile(), spec).ok());
  const auto why = [&](auto change) {
    ProfileData data = SmallProfile();
    change(&data);
    const absl::Status status = CheckProfileFits(data, spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(why([](ProfileData* d) { d->model = "m2"; }), HasSubstr("m2"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups.push_back(d->groups[0]); }), HasSubstr("groups"));
  EXPECT_THAT(
      why([](ProfileData* d) { d->groups[0].attention = kernels::ProfileAttention::kSliding; }),
      HasSubstr("attention"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].window = 5; }), HasSubstr("window"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].layers[1].index = 7; }), HasSubstr("layers"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].layers.pop_back(); }), HasSubstr("layers"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].kv_heads = 3; }), HasSubstr("KV heads"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].k_head_dim = 3; }), HasSubstr("head size"));
  EXPECT_THAT(why([](ProfileData* d) { d->groups[0].v_head_dim = 3; }), HasSubstr("head size"));
}

TEST(ProfileFits, KeysBeforeRopeNeedAProfileWithoutRope) {
  NamespaceSpec spec = SmallSpec();
  spec.rope = RopeState::kPre;
  ProfileData data = SmallProfile();
  EXPECT_FALSE(CheckProfileFits(data, spec).ok());
  data.groups[0].rope.kind = kernels::RopeKind::kNone;
  EXPECT_TRUE(CheckProfileFits(data, spec).ok());
}

TEST(ProfileFits, RevisionAdapterAndTypeDoNotMatter) {
  NamespaceSpec spec = SmallSpec();
  spec.model_revision = "r2";
  spec.lora_digest = "l";
  spec.tenant = "t";
  spec.dtype = DType::kBFloat16;
  spec.block_tokens = 32;
  EXPECT_TRUE(CheckProfileFits(SmallProfile(), spec).ok());
}

}  // namespace
}  // namespace tokura
