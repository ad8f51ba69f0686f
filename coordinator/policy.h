#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {

inline constexpr size_t kPolicyRulesMax = 256;
inline constexpr size_t kPolicyTextBytesMax = size_t{1} << 16;

// The rules of a policy file (deploy/policy.yaml explains every key):
//
//   rules:
//     - tenant: chat          # a name, a prefix that ends with *, or * (the default)
//       model: llama-3*       # the same
//       ingest_codec: kivi4   # default: the client's own
//       max_error: 0.12       # default: none
//       accept_proxy_error: true  # default: false
//       ttl: 24h              # default: none
//
// The first rule that matches a namespace holds (proto/policy_match.h).
struct Policy {
  std::string text;  // as read; what the metadata store keeps
  std::vector<proto::PolicyRule> rules;
};

// Read the text of a policy (untrusted); an empty one has no rules. INVALID_ARGUMENT is
// "FILE:LINE: what is wrong and what to write instead"; `file_name` is for that only.
absl::StatusOr<Policy> ParsePolicy(std::string_view text, const std::string& file_name);

// As ParsePolicy, of a file. NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE: it could not be read.
// Blocks; for the start of a process.
absl::StatusOr<Policy> ReadPolicyFile(const std::string& path);

}  // namespace tokura::coordinator
