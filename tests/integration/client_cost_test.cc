// What a client costs itself and its nodes: one deadline for a stopped node, nothing for probing,
// no memory that grows.

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

using std::chrono::seconds;

Duration Since(TimePoint start) {
  return SystemClock().Now() - start;
}

TEST_F(NodeTest, StoppedNodeCostsAProcessOneDeadline) {
  constexpr size_t kThreads = 8;
  constexpr size_t kOperations = 50;
  constexpr Duration kDeadline = seconds(1);  // of each lookup
  NodeUnderTest node({}, NodeLogs::kErrors);
  ClientOptions options = Options({node.data()});
  options.progress_timeout = kDeadline;
  auto client = *Client::Create(std::move(options));
  ASSERT_TRUE(client->WaitReady(Scaled(seconds(20))).ok());
  KvMemory source(4), target(4);
  source.Fill(1);
  ASSERT_EQ(Put(*client, 1, source, 4), 4u);
  node.process().Stop();
  const auto space = *client->OpenNamespace(TestSpace());
  const TokenChain chain = MakeChain(*space, 1, 4);
  std::atomic<size_t> next{0}, slow{0}, hits{0};
  const TimePoint start = SystemClock().Now();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      while (next.fetch_add(1) < kOperations) {
        const TimePoint begun = SystemClock().Now();
        const auto match = client->Lookup(space, chain);
        hits += match.ok() ? match->blocks() : 1;
        slow += Since(begun) > kDeadline / 2 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_LE(slow, kThreads) << "operations that began after the node was found silent";
  EXPECT_EQ(hits, 0u);
  EXPECT_LT(Since(start), kDeadline * 3) << "50 operations, 8 at a time";
  node.process().Signal(SIGCONT);
  EXPECT_TRUE(WaitFor([&] { return Get(*client, 1, target, 4, seconds(1)) == 4; }));
  EXPECT_TRUE(target.SameData(source, 0, 4));
}

TEST_F(NodeTest, ProbingAMillionKeysPinsAndRenewsNothing) {
  constexpr uint32_t kBlocks = 8;
  constexpr uint32_t kKeys = 16384;  // as many as a node takes in one request
  const Duration lease_age = Scaled(seconds(2));
  NodeUnderTest node({"--lease-age", std::to_string(lease_age / seconds(1)) + "s"});
  auto holder = Connect({node.data()});
  auto prober = Connect({node.data()});
  const auto space = *holder->OpenNamespace(TestSpace());
  KvMemory source(kBlocks);
  source.Fill(1);
  ASSERT_EQ(Put(*holder, 1, source, kBlocks), kBlocks);
  const Match match = Held(*holder, 1, kBlocks);
  const TokenChain chain = MakeChain(*space, 1, kKeys);
  const TimePoint acquired = SystemClock().Now();
  ASSERT_EQ(holder->Acquire(space, match)->blocks(), kBlocks);
  const auto expired = [&] { return node.Metric("tokura_node_leases_expired_total") == 1; };
  LookupOptions options;
  options.deadline = Scaled(seconds(5));
  Duration lease_held{};
  for (uint32_t keys = 0; keys < 1'000'000 || lease_held == Duration::zero(); keys += kKeys) {
    const auto probed = prober->Lookup(space, chain, options);
    ASSERT_TRUE(probed.ok()) << probed.status();
    ASSERT_EQ(probed->blocks(), kBlocks);
    ASSERT_FALSE(probed->held());
    if (lease_held == Duration::zero() && expired()) {
      lease_held = Since(acquired);
    }
    ASSERT_LT(Since(acquired), lease_age + Scaled(seconds(20))) << "probing keeps the lease";
  }
  EXPECT_LT(lease_held, lease_age + Scaled(seconds(3)));
  EXPECT_TRUE(WaitFor([&] {
    return node.Metric("tokura_tier_pinned_bytes{tier=\"host\"}") == 0 &&
           node.Metric("tokura_node_leases") == 0;
  }));
  EXPECT_EQ(node.Metric("tokura_tier_blocks{tier=\"host\"}"), kBlocks);
}

// Blocks of 4 KiB in buffers that are new in every round, as engines' pages are.
class SmallBlocks {
 public:
  static constexpr uint32_t kBlocks = 64;  // of each round, one operation each

  explicit SmallBlocks(Client& client) : client_(client) {
    NamespaceSpec spec = TestSpace("small");
    spec.groups[0].layers = {0};
    spec.groups[0].kv_heads = 1;
    space_ = *client.OpenNamespace(std::move(spec));
  }

  // Put 64 blocks one by one, and get those that are held one by one; how many were got right.
  // `round` decides the content, the buffers' place, and the keys, which come back after a while.
  size_t Round(uint64_t round) {
    std::vector<std::vector<uint16_t>> sources, targets;
    std::vector<TokenChain> chains;
    std::vector<std::unique_ptr<PutHandle>> puts;
    std::vector<std::unique_ptr<GetHandle>> gets;
    for (uint32_t i = 0; i < kBlocks; ++i) {
      sources.emplace_back(kElements + 64 * (round % 7), static_cast<uint16_t>(0x3000 + round % 9));
      targets.emplace_back(kElements + 64 * (round % 5));
      chains.push_back(MakeChain(*space_, round % 397 * kBlocks + i, 1));
    }
    for (uint32_t i = 0; i < kBlocks; ++i) {
      puts.push_back(client_.StartPut(space_, chains[i], View(sources[i]), PutOptions{}));
    }
    for (const auto& put : puts) {
      put->Wait();
    }
    LookupOptions patient;
    patient.deadline = Scaled(seconds(5));
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const auto match = client_.Lookup(space_, chains[i], patient);
      if (match.ok() && match->blocks() == 1) {
        gets.push_back(client_.StartGet(space_, *match, View(targets[i]), GetOptions{}));
      }
    }
    size_t right = 0;
    for (const auto& get : gets) {
      right += get->Wait().prefix_ok();
    }
    return right;
  }

 private:
  static constexpr size_t kElements = size_t{kBlockTokens} * 64 * 2;

  static SequenceView View(std::vector<uint16_t>& buffer) {
    auto* base = reinterpret_cast<std::byte*>(buffer.data());
    SequenceView view;
    view.groups.push_back(
        kernels::ContiguousView(DType::kFloat16, 1, 64, kBlockTokens, {{base, base + kElements}}));
    return view;
  }

  Client& client_;
  NamespaceRef space_;
};

uint64_t OwnResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(NodeTest, MemoryStaysFlatOverAHundredThousandPutsAndGets) {
  constexpr uint64_t kRounds = 100'000 / (2 * SmallBlocks::kBlocks) / TOKURA_TIME_SCALE;
  constexpr uint64_t kWarmUp = kRounds / 5;
  constexpr uint64_t kGrowthMax = uint64_t{8} << 20;
  NodeUnderTest node;  // full before the warm-up ends
  auto client = Connect({node.data()});
  SmallBlocks blocks(*client);
  size_t right = 0;
  uint64_t client_before = 0, node_before = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    right += blocks.Round(round);
    if (round == kWarmUp) {
      client_before = OwnResidentBytes();
      node_before = node.process().ResidentBytes();
    }
  }
  EXPECT_GT(right, kRounds * SmallBlocks::kBlocks * 9 / 10);
  EXPECT_LT(OwnResidentBytes(), client_before + kGrowthMax + kKeptBySanitizerBytes);
  EXPECT_LT(node.process().ResidentBytes(), node_before + kGrowthMax + kKeptBySanitizerBytes);
}

}  // namespace
}  // namespace tokura::integration
