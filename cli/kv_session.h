#pragma once

// What put, get, stat and rm share: their flags, and a client with the captured sequence that they
// are about.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/kvcap.h"
#include "cli/output.h"
#include "common/config.h"
#include "common/profile_paths.h"
#include "common/time.h"
#include "tokura/client.h"

namespace tokura::cli {

// Flags; valid after a Parse that says run.
struct KvFlags {
  std::vector<std::string> nodes;
  std::vector<std::string> coordinators;
  std::string kv_path;
  std::string prefix_path;
  std::string tenant = "default";
  std::string model;
  std::string codec = "kivi4";
  ProfilePaths profiles;  // flags of put, get and the demo's workers only
  std::string max_error_text;
  bool accept_proxy_error = false;
  int64_t block_tokens = 64;
  Duration timeout = std::chrono::seconds(5);
  std::string json_path;

  enum class Kv { kRequired, kOptional };
  // Add the flags and their checks. The object outlives the table.
  void AddTo(OptionTable* options, Kv kv);
  AcceptOptions accept() const;
};

// The flags --coordinator and --node, of which one is to be given, and their checks; warnings and
// errors alone are logged unless the user asks for more.
void AddServerFlags(OptionTable* options, std::vector<std::string>* nodes,
                    std::vector<std::string>* coordinators);

// A captured sequence as blocks of a namespace.
struct KvSequence {
  Capture capture;
  NamespaceRef ns;
  TokenChain chain;
  // Raw size of one block.
  uint64_t BlockBytes() const;
};
// INVALID_ARGUMENT, NOT_FOUND, DATA_LOSS: as ReadSequence and CaptureNamespace.
absl::StatusOr<KvSequence> OpenSequence(const KvFlags& flags);

// A client that is connected to some node. DEADLINE_EXCEEDED: no node answered within the timeout;
// the message says what was tried and what to do.
absl::StatusOr<std::unique_ptr<Client>> Connect(const KvFlags& flags);

// How many blocks ended in which status, by the status's name.
using StatusCounts = std::map<std::string, uint64_t>;
void Count(const absl::Status& status, StatusCounts* counts, uint64_t blocks = 1);

// Why blocks failed: each reason once, in the order of the blocks, the first kReasonsMax.
inline constexpr size_t kReasonsMax = 8;
std::vector<std::string> ReasonsOf(const std::vector<absl::Status>& blocks);

// What put, get, stat and rm report.
struct KvReport {
  uint64_t blocks = 0;  // asked for
  uint64_t hit = 0;     // of them held before the command
  uint64_t bytes_logical = 0;
  uint64_t bytes_stored = 0;
  StatusCounts status;
  std::vector<std::string> reasons;  // of put and get: ReasonsOf their blocks
};
Json ToJson(const KvReport& report);

}  // namespace tokura::cli
