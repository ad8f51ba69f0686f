// Clients whose codec work is held while their operations end: what the caller's memory may see.

#include <future>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/integration/node_fixture.h"
#include "tests/integration/paused_client.h"

namespace tokura::integration {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum class End { kDeadline, kCancel, kFinish };

template <typename T>
bool IsReady(const std::future<T>& future) {
  return future.wait_for(seconds(0)) == std::future_status::ready;
}

// What became of the blocks of many operations.
using Outcomes = std::map<absl::StatusCode, size_t>;

// One get whose decoding is held after `steps` steps and let go when the get has returned.
void HoldOneGet(PausedClient& client, const Match& match, const KvMemory& source, End end,
                size_t steps, Outcomes* outcomes) {
  const auto blocks = static_cast<uint32_t>(match.blocks());
  const auto space = std::make_shared<const Namespace>(TestSpace());
  KvMemory target(blocks);
  target.Clear();
  GetOptions options;
  options.deadline = end == End::kDeadline ? Scaled(milliseconds(60)) : Scaled(seconds(20));
  client.pool().PauseAfter(steps);
  auto get = client.StartGet(space, match, target.View(), options);
  ASSERT_TRUE(WaitFor([&] { return client.pool().paused() || IsReady(get.got); }));
  if (end == End::kCancel) {
    client.Cancel(get.id);
  } else if (end == End::kFinish) {
    client.pool().Resume();
  }
  ASSERT_TRUE(WaitFor([&] { return IsReady(get.got); })) << "the get hangs";
  const GetResult result = get.got.get();
  target.Freeze();  // Every write from here on is a crash.
  for (uint32_t i = 0; i < blocks; ++i) {
    ++(*outcomes)[result.blocks[i].code()];
    EXPECT_TRUE(!result.blocks[i].ok() || target.SameData(source, i, 1)) << "block " << i;
  }
  const uint32_t checksum = target.Checksum();
  client.pool().Resume();
  ASSERT_TRUE(WaitFor([&] { return client.pool().idle(); }));
  EXPECT_EQ(target.Checksum(), checksum) << "the view changed after the get had returned";
  EXPECT_TRUE(target.CanariesIntact());
}

TEST_F(NodeTest, DecodeHeldBeyondTheEndOfItsGetChangesNothing) {
  NodeUnderTest node;
  auto writer = Connect({node.data()});
  PausedClient client(Options({node.data()}));
  const auto space = *writer->OpenNamespace(TestSpace());
  Outcomes outcomes;
  for (const uint32_t blocks : {1u, 8u, 64u}) {
    KvMemory source(blocks);
    source.Fill(blocks);
    ASSERT_EQ(Put(*writer, blocks, source, blocks), blocks);
    const Match match = Held(*writer, blocks, blocks);
    for (const End end : {End::kDeadline, End::kCancel, End::kFinish}) {
      for (const size_t steps : {0u, 1u, 3u, 6u, 40u}) {
        HoldOneGet(client, match, source, end, steps, &outcomes);
      }
    }
  }
  EXPECT_GT(outcomes[absl::StatusCode::kOk], 0u);
  EXPECT_GT(outcomes[absl::StatusCode::kDeadlineExceeded], 0u);
  EXPECT_GT(outcomes[absl::StatusCode::kCancelled], 0u);
}

TEST_F(NodeTest, CancelledPutIsNeverVisible) {
  constexpr uint32_t kBlocks = 16;
  NodeUnderTest node;
  PausedClient client(Options({node.data()}));
  const auto space = std::make_shared<const Namespace>(TestSpace());
  KvMemory source(kBlocks);
  size_t stored = 0, cancelled = 0, unknown = 0;
  uint64_t seed = 0;
  for (const size_t steps : {0u, 1u, 5u, 9u, 20u, 35u, 50u, 70u}) {
    source.Fill(++seed);
    client.pool().PauseAfter(steps);
    PutOptions options;
    options.deadline = Scaled(seconds(20));
    auto put = client.StartPut(space, MakeChain(*space, seed, kBlocks), source.View(), options);
    ASSERT_TRUE(WaitFor([&] { return client.pool().paused() || IsReady(put.put); }));
    client.Cancel(put.id);
    client.pool().Resume();
    ASSERT_TRUE(WaitFor([&] { return IsReady(put.put); })) << "the put hangs";
    for (const absl::Status& status : put.put.get().blocks) {
      stored += status.ok() ? 1 : 0;
      cancelled += absl::IsCancelled(status) ? 1 : 0;
      unknown += !status.ok() && !absl::IsCancelled(status) ? 1 : 0;
    }
    ASSERT_TRUE(WaitFor([&] { return client.pool().idle(); }));
  }
  EXPECT_GT(cancelled, 0u);
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_tier_reserved_bytes{tier=\"host\"}") == 0 &&
           node.Metric("tokura_tier_incomplete_blocks{tier=\"host\"}") == 0 &&
           node.Metric("tokura_node_inflight_requests") == 0;
  }));
  // Of blocks whose payload had been offered the client says that it does not know.
  const double visible = node.Metric("tokura_tier_blocks{tier=\"host\"}");
  EXPECT_GE(visible, static_cast<double>(stored));
  EXPECT_LE(visible, static_cast<double>(stored + unknown)) << cancelled << " were cancelled";
}

// One put whose encoding is held after `steps` steps until its deadline has passed; then the engine
// uses the pages for something else (`overwrite`), or nobody may touch them.
enum class Pages { kOverwritten, kForbidden };
void HoldOnePut(NodeUnderTest& node, PausedClient& client, Client& reader, Pages pages,
                size_t steps) {
  static uint64_t seed = 0;
  ++seed;
  constexpr uint32_t kBlocks = 8;
  const auto space = std::make_shared<const Namespace>(TestSpace());
  KvMemory source(kBlocks), original(kBlocks), found(kBlocks);
  source.Fill(seed);
  original.Fill(seed);
  client.pool().PauseAfter(steps);
  PutOptions options;
  options.deadline = Scaled(milliseconds(60));
  auto put = client.StartPut(space, MakeChain(*space, seed, kBlocks), source.View(), options);
  ASSERT_TRUE(WaitFor([&] { return IsReady(put.released); })) << "the source is never released";
  if (pages == Pages::kOverwritten) {
    source.Fill(seed + 1000);
  } else {
    source.Forbid();
  }
  client.pool().Resume();
  ASSERT_TRUE(WaitFor([&] { return IsReady(put.put) && client.pool().idle(); }));
  ASSERT_TRUE(WaitFor([&] {
    return node.Metric("tokura_tier_reserved_bytes{tier=\"host\"}") == 0 &&
           node.Metric("tokura_node_inflight_requests") == 0;
  }));
  const auto match = reader.Lookup(space, MakeChain(*space, seed, kBlocks));
  ASSERT_TRUE(match.ok());
  if (match->blocks() > 0) {
    GetOptions get;
    get.deadline = Scaled(seconds(10));
    const size_t got = reader.Get(space, *match, found.View(), get).prefix_ok();
    EXPECT_TRUE(found.SameData(original, 0, static_cast<uint32_t>(got)))
        << "what is stored is not what was put";
  }
}

TEST_F(NodeTest, SourceUsedOtherwiseAfterTheDeadlineIsNotStored) {
  NodeUnderTest node;
  PausedClient client(Options({node.data()}));
  auto reader = Connect({node.data()});
  for (const Pages pages : {Pages::kOverwritten, Pages::kForbidden}) {
    for (const size_t steps : {0u, 1u, 2u, 7u, 23u, 1000u}) {
      HoldOnePut(node, client, *reader, pages, steps);
    }
  }
}

}  // namespace
}  // namespace tokura::integration
