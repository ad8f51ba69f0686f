// Blocks that clients suspect: a node checks them itself, removes what is damaged and nothing else,
// within bounds.

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "cache-node/check_budget.h"
#include "tests/unit/node/server_request_testing.h"

namespace tokura::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr auto kSound = absl::StatusCode::kFailedPrecondition;
constexpr auto kMissing = absl::StatusCode::kNotFound;
constexpr auto kRefused = absl::StatusCode::kResourceExhausted;

constexpr size_t kFromEnd = 20;

class ServerCheckTest : public ServerRequestTest {
 protected:
  static proto::RemoveRequest CheckMessage(const std::string& suspects) {
    proto::RemoveRequest remove;
    remove.set_fingerprint(IdBytes(Space()));
    remove.set_suspects(suspects);
    return remove;
  }
  TestClient::Sent StartCheck(TestClient& client, const Chain& chain,
                              Duration deadline = seconds(5)) {
    return client.Send(net::Op::kRemove, CheckMessage(Keys(chain)), deadline);
  }
  std::vector<absl::StatusCode> CheckCodes(const TestClient::Sent& check) {
    return Codes(Await(check).As<proto::RemoveReply>().statuses());
  }
  std::vector<absl::StatusCode> Check(TestClient& client, const Chain& chain) {
    return CheckCodes(StartCheck(client, chain));
  }
  TestClient& ConnectAnother() {
    TestClient::Options options;
    options.name = "another";
    options.ip = "10.0.0.3";
    return Connect(options);
  }
  // A part with the bit flipped that Damage flips.
  static std::vector<std::byte> Damaged(const Chain& chain, uint32_t block) {
    std::vector<std::byte> part = Part(chain, block, {});
    part[part.size() - kFromEnd] ^= std::byte{4};
    return part;
  }
  // Flip a bit of a stored part, `from_end` bytes before its end.
  void Damage(const Chain& chain, uint32_t block, PartId part = {}, size_t from_end = kFromEnd) {
    const std::span<std::byte> arena = node_transports_.front()->registered().front();
    const std::vector<std::byte> stored = Part(chain, block, part);
    const auto found = std::search(arena.begin(), arena.end(), stored.begin(), stored.end());
    ASSERT_NE(found, arena.end());
    found[static_cast<std::ptrdiff_t>(stored.size() - from_end)] ^= std::byte{4};
  }
  double Suspects(const std::string& result) {
    return Metric("tokura_node_suspect_blocks_total", {{"result", result}});
  }
  double StoredDamage() {
    return Metric("tokura_node_checksum_failures_total", {{"where", "stored"}});
  }
};

TEST_F(ServerCheckTest, RemovesWhatIsDamagedAndNothingElse) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.blocks = 3, .group_mask = 5, .shards = 2};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  Damage(chain, 1, {2, 1});
  Chain asked = chain;
  asked.blocks = 4;
  EXPECT_THAT(Check(client, asked), ElementsAre(kSound, kOk, kSound, kMissing));
  EXPECT_EQ(Lookup(client, chain), 1u);
  EXPECT_THAT(GetCodes(client, GetMessage(chain)), ElementsAre(kOk, kMissing, kOk));
  EXPECT_EQ(StoredDamage(), 1);
  EXPECT_EQ(Suspects("ok"), 1);
  EXPECT_EQ(Suspects("failed_precondition"), 2);
  EXPECT_EQ(Suspects("not_found"), 1);
  EXPECT_EQ(Requests("remove", "ok"), 1);
  // The key is as good as new.
  EXPECT_THAT(Put(client, chain), ElementsAre(kOk, kOk, kOk));
  TestCall& call = Await(client.Send(net::Op::kGet, GetMessage(chain)));
  EXPECT_THAT(Codes(call.As<proto::GetReply>().statuses()), ElementsAre(kOk, kOk, kOk));
  ExpectBytes(call, chain);
  EXPECT_THAT(Check(client, chain), ElementsAre(kSound, kSound, kSound));
  RunFor(seconds(1));  // The next ticks copy the store's numbers.
  EXPECT_EQ(Metric("tokura_evictions_total", {{"tier", "host"}, {"reason", "damaged"}}), 1);
  ExpectIdle();
}

TEST_F(ServerCheckTest, ABitAnywhereIsFound) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  const size_t size = Part(chain, 0, {}).size();
  for (size_t from_end = 1; from_end <= size; from_end += size / 23) {
    ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
    Damage(chain, 0, {}, from_end);
    EXPECT_THAT(Check(client, chain), ElementsAre(kOk)) << from_end;
  }
}

TEST_F(ServerCheckTest, TransfersKeepWhatTheyPinnedAndLeasesServeItNoMore) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  proto::GetRequest get = GetMessage(chain);
  get.set_lease(Acquire(client, chain).lease());
  Damage(chain, 0);
  const TestClient::Sent reading = StartHeldGet(client, get, seconds(5));
  ASSERT_TRUE(RunUntil([&] { return reading.call->payloads().size() == 1; }));
  EXPECT_THAT(Check(client, chain), ElementsAre(kOk));
  EXPECT_EQ(Lookup(client, chain), 0u);
  TestCall::Payload& payload = *reading.call->payloads()[0];
  client.host().loop().Enter([&] { reading.call->Receive(payload); });
  ASSERT_TRUE(RunUntil([&] { return payload.done.has_value(); }));
  EXPECT_TRUE(payload.done->ok()) << *payload.done;
  EXPECT_EQ(payload.bytes, Damaged(chain, 0)) << "the bytes that it began with";
  EXPECT_THAT(GetCodes(client, get), ElementsAre(kMissing)) << "nobody is to pay again";
  EXPECT_THAT(Check(client, chain), ElementsAre(kMissing));
  EXPECT_THAT(Put(client, chain), ElementsAre(kOk));
  EXPECT_EQ(PutParts("stored"), 2);
  TestCall& call = Await(client.Send(net::Op::kGet, get));
  ExpectBytes(call, chain);
  Release(client, get.lease());
  ExpectIdle();
}

TEST_F(ServerCheckTest, OneCheckOfABlockAtATimeAndFewInAll) {
  StartNode(SmallOptions());
  TestClient& one = Connect();
  TestClient& other = ConnectAnother();
  ASSERT_THAT(Put(one, {.blocks = 3}), ElementsAre(kOk, kOk, kOk));
  Damage({}, 0);
  node_host_->pool().Pause();
  const TestClient::Sent first = StartCheck(one, {.first = 1});
  RunFor(milliseconds(50));
  EXPECT_THAT(Check(other, {.first = 1}), ElementsAre(kRefused)) << "the same block";
  const TestClient::Sent second = StartCheck(other, {.first = 2});
  RunFor(milliseconds(50));
  EXPECT_THAT(Check(one, {.first = 3}), ElementsAre(kRefused)) << "two are under way";
  EXPECT_EQ(Suspects("resource_exhausted"), 2);
  node_host_->pool().Continue();
  EXPECT_THAT(CheckCodes(first), ElementsAre(kOk));
  EXPECT_THAT(CheckCodes(second), ElementsAre(kSound));
  EXPECT_THAT(Check(one, {.first = 3}), ElementsAre(kSound));
  ExpectIdle();
}

TEST_F(ServerCheckTest, DamageIsRemovedThoughNobodyWaitsForTheAnswer) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  TestClient& gone = ConnectAnother();
  ASSERT_THAT(Put(client, {.blocks = 3}), ElementsAre(kOk, kOk, kOk));
  Damage({.blocks = 3}, 0);
  Damage({.blocks = 3}, 1);
  node_host_->pool().Pause();
  const TestClient::Sent late = StartCheck(client, {.blocks = 3}, milliseconds(100));
  const TestClient::Sent lost = StartCheck(gone, {.first = 2});
  RunFor(milliseconds(200));
  gone.Close(net::CloseMode::kAbort);
  RunFor(milliseconds(200));
  EXPECT_TRUE(late.call->answered());
  node_host_->pool().Continue();
  RunFor(milliseconds(200));
  EXPECT_EQ(Suspects("deadline_exceeded"), 3);
  EXPECT_EQ(Suspects("unavailable"), 1);
  EXPECT_THAT(GetCodes(client, GetMessage({.blocks = 3})), ElementsAre(kMissing, kMissing, kOk));
  ExpectIdle();
}

TEST_F(ServerCheckTest, TheFormThatWasCheckedGoesAndNoNewerOne) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain;
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  Damage(chain, 0);
  node_host_->pool().Pause();
  const TestClient::Sent check = StartCheck(client, chain);
  RunFor(milliseconds(50));
  // Its block goes and comes again while the check is under way, which has to wait its turn.
  Remove(client, chain);
  const TestClient::Sent put = StartPut(client, chain);
  RunFor(milliseconds(50));
  node_host_->pool().Continue();
  EXPECT_THAT(PutCodes(put), ElementsAre(kOk));
  EXPECT_THAT(CheckCodes(check), ElementsAre(kOk)) << "what was checked is gone";
  EXPECT_EQ(Lookup(client, chain), 1u);
  EXPECT_EQ(StoredDamage(), 0) << "it had been removed before";
  EXPECT_THAT(Check(client, chain), ElementsAre(kSound));
  ExpectIdle();
}

TEST_F(ServerCheckTest, SoundBlocksCannotKeepTheNodeBusy) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  const Chain chain{.heads = 64};
  ASSERT_THAT(Put(client, chain), ElementsAre(kOk));
  const auto size = static_cast<double>(Part(chain, 0, {}).size());
  CheckBudget::Limits limits;
  const TimePoint began = scheduler_.Now();
  double checked = 0;
  while (Suspects("resource_exhausted") == 0) {
    std::string keys;
    for (int i = 0; i < 200; ++i) {
      keys += Keys(chain);
    }
    Await(client.Send(net::Op::kRemove, CheckMessage(keys), seconds(60)));
    checked = size * Suspects("failed_precondition");
    ASSERT_LT(checked, 3.0 * static_cast<double>(limits.burst_bytes));
  }
  const double seconds_passed = std::chrono::duration<double>(scheduler_.Now() - began).count();
  EXPECT_GE(checked, static_cast<double>(limits.burst_bytes));
  EXPECT_LE(checked, static_cast<double>(limits.burst_bytes) + size +
                         seconds_passed * static_cast<double>(limits.sound_bytes_per_second));
}

TEST_F(ServerCheckTest, RefusesWhatMakesNoSense) {
  StartNode(SmallOptions());
  TestClient& client = Connect();
  ASSERT_THAT(Put(client, {}), ElementsAre(kOk));
  proto::RemoveRequest both = CheckMessage(Keys({}));
  both.set_keys(Keys({}));
  EXPECT_EQ(Await(client.Send(net::Op::kRemove, both)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Await(client.Send(net::Op::kRemove, CheckMessage("short"))).status().code(),
            absl::StatusCode::kInvalidArgument);
  proto::RemoveRequest another = CheckMessage(Keys({}));
  another.set_fingerprint(IdBytes(Space(1)));
  EXPECT_THAT(CheckCodes(client.Send(net::Op::kRemove, another)), ElementsAre(kMissing))
      << "of another namespace";
  EXPECT_EQ(Lookup(client, {}), 1u);
  ExpectIdle();
}

TEST_F(ServerCheckTest, PlantedTrustInClientsRemovesSoundBlocks) {
  StartNode(SmallOptions(), {.remove_unchecked = true});
  TestClient& client = Connect();
  ASSERT_THAT(Put(client, {}), ElementsAre(kOk));
  EXPECT_THAT(Check(client, {}), ElementsAre(kOk));
  EXPECT_EQ(Lookup(client, {}), 0u);
}

}  // namespace
}  // namespace tokura::node
