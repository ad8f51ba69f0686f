// A client process for tests to kill and stop: `client_child NODE MODE`.
//   leases  put blocks, pin them all, then wait
//   puts    put blocks without end
// The test sees by the node's metrics how far it is.

#include <string>

#include <unistd.h>

#include "tests/integration/node_fixture.h"

namespace tokura::integration {
namespace {

constexpr uint32_t kBlocks = 64;

class ChildClient : public NodeTest {
 public:
  [[noreturn]] static void Run(const std::string& node, const std::string& mode) {
    auto client = Connect({node});
    KvMemory memory(kBlocks);
    const auto space = client->OpenNamespace(TestSpace());
    uint64_t seed = 1000;
    if (mode == "leases") {
      // As much as the arena takes; what is pinned is never evicted.
      for (int i = 0; i < 32; ++i) {
        memory.Fill(++seed);
        Put(*client, seed, memory, kBlocks);
        const auto match = client->Lookup(*space, MakeChain(**space, seed, kBlocks));
        if (match.ok()) {
          client->Acquire(*space, *match).IgnoreError();
        }
      }
      pause();
    }
    while (true) {
      memory.Fill(++seed);
      Put(*client, seed, memory, kBlocks);
    }
  }

 private:
  void TestBody() override {}
};

}  // namespace
}  // namespace tokura::integration

int main(int argc, char** argv) {
  if (argc == 3) {
    tokura::integration::ChildClient::Run(argv[1], argv[2]);
  }
  return 2;
}
