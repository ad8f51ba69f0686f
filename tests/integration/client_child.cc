// A client process for tests to kill, to stop and to damage: `client_child NODE MODE`.
//   put     put one chain, print the code of each block's status, and end
//   leases  put blocks, pin them all, then wait
//   puts    put blocks without end
//   rival   put the keys of WriterSeed with bits of its own, without end
//   shard   put head shard 1 of sharded blocks without end
// The test sees by the node's metrics how far it is.

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "tests/integration/node_fixture.h"
#include "tests/integration/writers.h"

namespace tokura::integration {
namespace {

constexpr uint32_t kBlocks = 64;

class ChildClient : public NodeTest {
 public:
  // The exit status of a mode with an end; 2: not a mode.
  static int Run(const std::string& node, const std::string& mode) {
    auto client = Connect({node});
    if (mode == "put") {
      PutOnce(*client);
      return 0;
    } else if (mode == "leases") {
      HoldLeases(*client);
    } else if (mode == "puts") {
      PutForEver(*client);
    } else if (mode == "rival") {
      RivalForEver(*client);
    } else if (mode == "shard") {
      ShardForEver(*client);
    }
    return 2;
  }

 private:
  static void PutOnce(Client& client) {
    KvMemory memory(kOnceBlocks);
    memory.Fill(kOnceChain);
    const auto space = *client.OpenNamespace(TestSpace());
    PutOptions options;
    options.deadline = Scaled(std::chrono::seconds(10));
    const PutResult result =
        client.Put(space, MakeChain(*space, kOnceChain, kOnceBlocks), memory.View(), options);
    for (const absl::Status& status : result.blocks) {
      std::printf("%d\n", status.raw_code());
    }
  }

  // As much as the arena takes; what is pinned is never evicted. Renews until it is stopped, so
  // that the arena stays full however slow the machine is.
  [[noreturn]] static void HoldLeases(Client& client) {
    KvMemory memory(kBlocks);
    const auto space = client.OpenNamespace(TestSpace());
    std::vector<Match> held;
    const auto renew = [&] {
      for (const Match& match : held) {
        client.Renew(match);
      }
    };
    for (uint64_t seed = 1001;; ++seed) {
      memory.Fill(seed);
      Put(client, seed, memory, kBlocks);
      const auto match = client.Lookup(*space, MakeChain(**space, seed, kBlocks));
      if (match.ok() && match->blocks() > 0) {
        if (auto lease = client.Acquire(*space, *match); lease.ok()) {
          held.push_back(*std::move(lease));
        }
      } else {
        poll(nullptr, 0, 100);  // full: nothing more can be pinned for now
      }
      renew();
    }
  }

  [[noreturn]] static void PutForEver(Client& client) {
    KvMemory memory(kBlocks);
    for (uint64_t seed = 1001;; ++seed) {
      memory.Fill(seed);
      Put(client, seed, memory, kBlocks);
    }
  }

  [[noreturn]] static void RivalForEver(Client& client) {
    const auto space = *client.OpenNamespace(ShardedSpace());
    KvMemory memory(kRivalBlocks);
    for (uint64_t round = 0;; ++round) {
      PutAsWriter(client, space, Writer::kRival, round % kRivalChains, memory);
    }
  }

  [[noreturn]] static void ShardForEver(Client& client) {
    const auto space = *client.OpenNamespace(ShardedSpace());
    KvMemory memory(kRivalBlocks);
    for (uint64_t seed = 1;; ++seed) {
      PutShard(client, space, 1, seed, memory);
    }
  }

  void TestBody() override {}
};

}  // namespace
}  // namespace tokura::integration

int main(int argc, char** argv) {
  if (argc == 3) {
    return tokura::integration::ChildClient::Run(argv[1], argv[2]);
  }
  return 2;
}
