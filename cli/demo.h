#pragma once

#include <string>
#include <vector>

#include "cli/demo_worker.h"
#include "cli/output.h"

namespace tokura::cli {

// One round of the demo: the requests that were served, the prefill first, and how many failed.
struct DemoRound {
  std::vector<DemoRequest> requests;
  uint64_t errors = 0;
};
struct DemoResult {
  DemoRound shared;
  DemoRound after_node_loss;
  DemoRound after_node_return;
  DemoRound after_coordinator_restart;
};
// The object that `tokura demo --json` writes.
Json ToJson(const DemoResult& result);

// `tokura demo`: worker processes share the KV of a real model's prompts through two cache nodes;
// then a node is lost and comes back, and the coordinator is lost and comes back. `args` are what
// follows the command; the exit status is returned.
int RunDemo(const std::vector<std::string>& args);

}  // namespace tokura::cli
