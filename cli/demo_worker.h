#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/output.h"

namespace tokura::cli {

// What a worker of `tokura demo` reports about its request.
struct DemoRequest {
  std::string name;
  uint64_t tokens = 0;
  uint64_t tokens_hit = 0;
  // By node that gave them.
  std::map<std::string, uint64_t> hits_by_node;
  std::string first_node;      // that holds the first block at the end; empty: none
  uint64_t bytes_logical = 0;  // raw size of the blocks that it stored
  uint64_t bytes_stored = 0;   // what they take at the node
  uint64_t bytes_moved = 0;    // payload over the network, both ways
  uint64_t bytes_private = 0;  // raw size of all complete blocks of the request
  double seconds = 0;          // lookup, get and decode, encode and put
  bool has_queries = false;
  double attention_error = 0;  // mean over layers; meaningless without queries
};
// The fields that CLI.md fixes.
Json ToJson(const DemoRequest& request);

// Between the worker's process and the demo's: one line of JSON.
std::string ToLine(const DemoRequest& request);
// INTERNAL: not such a line.
absl::StatusOr<DemoRequest> ParseDemoRequest(const std::string& line);

// The internal command `tokura demo-worker`: what one prefill or decode worker of an inference
// engine does with the cache, for one request.
int RunDemoWorker(const std::vector<std::string>& args);

}  // namespace tokura::cli
