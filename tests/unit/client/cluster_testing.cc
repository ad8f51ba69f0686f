#include "tests/unit/client/cluster_testing.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura {

OtherClient::OtherClient(sim::SimNetwork& network, const std::string& ip)
    : network_(network),
      host_(network.scheduler(), {.name = absl::StrCat("client-", ip), .ip = ip}),
      transport_(network, host_.loop()) {}

void OtherClient::Start(ClientOptions options) {
  OnLoop([&] {
    auto core =
        ClientCore::Create({transport_, host_.pool(), host_.random(), nullptr}, std::move(options));
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = std::move(*core);
  });
}

void OtherClient::Die() {
  network_.Kill(host_, sim::SimNetwork::Death::kProcess);
  Stop();
}

void OtherClient::Stop() {
  if (!core_) {
    return;
  }
  bool stopped = false;
  OnLoop([&] { core_->Shutdown([&] { stopped = true; }); });
  for (int i = 0; i < 500 && !stopped; ++i) {
    network_.scheduler().RunFor(std::chrono::milliseconds(10));
  }
  ASSERT_TRUE(stopped);
  OnLoop([&] { core_.reset(); });
}

ClusterTest::~ClusterTest() {
  for (const auto& other : others_) {
    other->Stop();
  }
  StopClient();
  // While the machines of the other clients, to which they have connections, are still there.
  coordinators_.clear();
  nodes_.clear();
}

FakeCoordinator& ClusterTest::AddCoordinator() {
  const size_t index = coordinators_.size();
  coordinators_.push_back(std::make_unique<FakeCoordinator>(
      network_, FakeCoordinator::Options{absl::StrCat("coordinator-", index),
                                         absl::StrCat("10.0.2.", index + 1), 1024}));
  return *coordinators_.back();
}

FakeNode& ClusterTest::AddMember(FakeNode::Options options) {
  if (options.name == "node-0") {
    options.name = absl::StrCat("node-", nodes_.size());
    options.ip = absl::StrCat("10.0.0.", nodes_.size() + 1);
  }
  FakeNode& node = AddNode(std::move(options));
  for (const auto& coordinator : coordinators_) {
    coordinator->AddMember(node);
  }
  return node;
}

ClientOptions ClusterTest::WithCoordinators(ClientOptions options) const {
  for (const auto& coordinator : coordinators_) {
    options.coordinators.push_back(coordinator->address());
  }
  options.ingest_codec = options.ingest_codec == "kivi4" ? "raw" : options.ingest_codec;
  return options;
}

void ClusterTest::StartClusterClient(ClientOptions options) {
  OnLoop([&] {
    auto core = ClientCore::Create({transport_, host_.pool(), host_.random(), registry_},
                                   WithCoordinators(std::move(options)));
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = std::move(*core);
  });
  RunUntil([&] { return core_->ready(); });
  RunFor(std::chrono::milliseconds(20));
}

void ClusterTest::StartCluster(size_t coordinators, size_t nodes, ClientOptions options) {
  for (size_t i = 0; i < coordinators; ++i) {
    AddCoordinator();
  }
  for (size_t i = 0; i < nodes; ++i) {
    AddMember();
  }
  StartClusterClient(std::move(options));
}

OtherClient& ClusterTest::AddOtherClient() {
  others_.push_back(
      std::make_unique<OtherClient>(network_, absl::StrCat("10.0.3.", others_.size() + 1)));
  OtherClient& other = *others_.back();
  other.Start(WithCoordinators());
  RunUntil([&] { return other.core().ready(); });
  RunFor(std::chrono::milliseconds(20));
  return other;
}

GetResult ClusterTest::GetBy(OtherClient& client, const Match& match, SequenceView view,
                             GetOptions options) {
  std::optional<GetResult> result;
  client.OnLoop([&] {
    client.core().Get(ns_, match, std::move(view), std::move(options),
                      [&](GetResult r) { result = std::move(r); });
  });
  RunUntil([&] { return result.has_value(); });
  return result ? *result : GetResult{};
}

void ClusterTest::PutAll(EngineMemory& source, const TokenChain& chain) {
  source.Randomize(77);
  const PutResult put = Put(chain, source.View());
  for (const absl::Status& status : put.blocks) {
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(put.stored(), chain.blocks());
}

void ClusterTest::ExpectSameBlocks(const EngineMemory& a, const EngineMemory& b, uint32_t first,
                                   uint32_t count) {
  for (uint32_t block = first; block < first + count; ++block) {
    EXPECT_EQ(a.Block(0, block), b.Block(0, block)) << "block " << block;
  }
}

}  // namespace tokura
