// Processes of an engine for tests to kill:
//   cluster_child schedule COORDINATORS FILE    look the sharded chain up, acquire it, write the
//                                               match's bytes to FILE, and renew the lease until
//                                               the end
//   cluster_child work COORDINATORS FILE SHARD TIMES
//                                               get one head shard of that match so many times (0:
//                                               without end), a line after each; exit status 1:
//                                               some data was missing or wrong
// COORDINATORS are comma-separated.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include "absl/strings/str_split.h"
#include "common/check.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/integration/sharded_chain.h"

namespace tokura::integration {
namespace {

class EngineProcess : public ClusterTest {
 public:
  explicit EngineProcess(const std::string& coordinators)
      : client_(ConnectVia(absl::StrSplit(coordinators, ','))),
        space_(*client_->OpenNamespace(ShardedSpace())) {}

  int Schedule(const std::string& path) {
    LookupOptions options;
    options.deadline = deadline();
    const auto found =
        client_->Lookup(space_, MakeChain(*space_, kShardedChain, kShardedBlocks), options);
    TOKURA_CHECK(found.ok());
    const auto held = client_->Acquire(space_, *found);
    TOKURA_CHECK(held.ok() && held->held());
    std::ofstream(path + ".new", std::ios::binary) << held->Serialize();
    std::filesystem::rename(path + ".new", path);
    for (;;) {
      client_->Renew(*held);
      poll(nullptr, 0, 500);
    }
  }

  int Work(const std::string& path, uint32_t shard, uint64_t times) {
    const auto match = Match::Parse(ReadText(path));
    TOKURA_CHECK(match.ok());
    KvMemory expected(kShardedBlocks), got(kShardedBlocks);
    expected.Fill(kShardedChain);
    for (uint64_t i = 0; times == 0 || i < times; ++i) {
      got.Clear();
      GetOptions options;
      options.deadline = Scaled(std::chrono::seconds(2));
      const GetResult result = client_->Get(space_, *match, got.ShardView(shard), options);
      if (result.prefix_ok() != kShardedBlocks || !SameShard(got, expected, shard) ||
          !got.CanariesIntact()) {
        return 1;
      }
      std::puts("right");
      std::fflush(stdout);
    }
    return 0;
  }

 private:
  void TestBody() override {}

  const std::unique_ptr<Client> client_;
  const NamespaceRef space_;
};

}  // namespace
}  // namespace tokura::integration

int main(int argc, char** argv) {
  using tokura::integration::EngineProcess;
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc == 4 && arguments[1] == "schedule") {
    return EngineProcess(arguments[2]).Schedule(arguments[3]);
  }
  if (argc == 6 && arguments[1] == "work") {
    return EngineProcess(arguments[2])
        .Work(arguments[3], static_cast<uint32_t>(std::stoul(arguments[4])),
              std::stoull(arguments[5]));
  }
  return 2;
}
