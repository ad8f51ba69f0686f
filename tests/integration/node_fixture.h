#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/kv_memory.h"
#include "tests/integration/process.h"
#include "tests/integration/server_under_test.h"
#include "tokura/client.h"

namespace tokura::integration {

enum class NodeLogs { kWarnings, kErrors };

// A tokura-node process.
class NodeUnderTest : public ServerUnderTest {
 public:
  // Started and ready, or the test has failed. `flags` come after the usual ones. `log_path`: a
  // file for its log lines. `launcher`: words before the program's path, of a program that becomes
  // the node.
  explicit NodeUnderTest(const std::vector<std::string>& flags = {},
                         NodeLogs logs = NodeLogs::kWarnings, const std::string& log_path = "",
                         const std::vector<std::string>& launcher = {});
};

// A client connected to nodes, with patient deadlines.
class NodeTest : public ::testing::Test {
 protected:
  static ClientOptions Options(const std::vector<std::string>& nodes);
  static std::unique_ptr<Client> Connect(const std::vector<std::string>& nodes);
  // Put `memory` as the chain named by `seed`; how many blocks were stored.
  static size_t Put(Client& client, uint64_t seed, KvMemory& memory, uint32_t blocks,
                    Duration deadline = std::chrono::seconds(10));
  // The whole chain, of which every block must be held.
  static Match Held(Client& client, uint64_t seed, uint32_t blocks);
  // Look up and get the chain; how many leading blocks are there. Their data is in `memory`.
  static size_t Get(Client& client, uint64_t seed, KvMemory& memory, uint32_t blocks,
                    Duration deadline = std::chrono::seconds(10));
};

}  // namespace tokura::integration
