#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"

namespace tokura::coordinator {

// What must outlive a coordinator's process. Nothing per block.
struct Metadata {
  uint64_t epoch = 0;                            // of the members published last; 0: none yet
  std::map<std::string, uint64_t> incarnations;  // last one granted, by node
  std::string policy;                            // text of the rules in force (policy.h)

  friend bool operator==(const Metadata&, const Metadata&) = default;
};

// Where it is kept. Asynchronous; callbacks run on the executor that the store was made with, each
// exactly once, never inline, in the order of the calls. Thread-compatible: called on that
// executor.
class MetadataStore {
 public:
  using Loaded = absl::AnyInvocable<void(absl::StatusOr<Metadata>)>;
  using Stored = absl::AnyInvocable<void(absl::Status)>;

  // Callbacks that are still due are destroyed unrun with the store.
  virtual ~MetadataStore() = default;
  // What is kept; an empty Metadata when there is nothing. UNAVAILABLE: out of reach, try again.
  virtual void Load(Loaded done) = 0;
  // Replace what is kept by `next`, if its epoch is still `expected_epoch`. ABORTED: it is not;
  // somebody else holds the membership, load and go on above. UNAVAILABLE: out of reach; it may or
  // may not have been stored.
  virtual void Store(uint64_t expected_epoch, Metadata next, Stored done) = 0;
};

// Keeps it in the process: what nodes and followers name stands in for it after a restart.
class MemoryMetadataStore final : public MetadataStore {
 public:
  // `executor` is borrowed and outlives the store.
  explicit MemoryMetadataStore(Executor& executor) : executor_(executor) {}

  void Load(Loaded done) override;
  void Store(uint64_t expected_epoch, Metadata next, Stored done) override;

 private:
  void Post(Task task);

  Executor& executor_;
  Metadata kept_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // posted callbacks end with the store
};

}  // namespace tokura::coordinator
