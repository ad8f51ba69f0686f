#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client-lib/src/client_metrics.h"
#include "kernels/profile_store.h"
#include "proto/namespace.h"

namespace tokura {

// OK when the profile is of the namespace's model: its name is the namespace's model, whatever
// revision and adapter, and its layer groups are the namespace's: attention, window, layers, KV
// heads and head sizes, one by one. A profile with RoPE is of keys behind RoPE. FAILED_PRECONDITION
// says what differs.
absl::Status CheckProfileFits(const kernels::ProfileData& profile, const NamespaceSpec& spec);

// The model profiles of a client. The store is immutable and looked into by encode and decode jobs;
// everything else is owned by the core's executor.
class ModelProfiles {
 public:
  // `metrics` is borrowed and outlives this.
  ModelProfiles(std::shared_ptr<const kernels::ProfileStore> store, const ClientMetrics& metrics);

  const kernels::ProfileStore& store() const { return *store_; }
  // The profile that blocks of the namespace are encoded with: the first of the store that fits.
  // NOT_FOUND: none does; the message says why those of this model's name do not.
  absl::StatusOr<uint64_t> Choose(const NamespaceSpec& spec) const;
  // A form held by `node` was of no use because `id` is not here: count it, and log it once for
  // every id.
  void CountMissing(uint64_t id, const std::string& node, const absl::Status& why);
  // The policy's codec cannot be used for a namespace of `model`: count it, and log it once for
  // both.
  void CountPolicyUnusable(const std::string& model, const std::string& codec,
                           const absl::Status& why);

 private:
  // Whether `what` was not logged before. What peers make up does not take room without end: then
  // nothing new is logged.
  bool FirstTime(const std::string& what);

  std::shared_ptr<const kernels::ProfileStore> store_;  // owners: this alone
  const ClientMetrics& metrics_;
  std::set<std::string> logged_;
};

}  // namespace tokura
