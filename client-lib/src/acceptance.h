#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/part.h"
#include "proto/namespace.h"
#include "proto/tokura.pb.h"
#include "tokura/types.h"

namespace tokura {

// What an operation accepts once caller, client and policy have had their say.
struct Acceptance {
  std::optional<double> max_error;  // unset: any; 0: exact
  bool allow_summary = false;
  bool accept_proxy_error = false;
};

// The same as the wire says it.
proto::Accept MakeAccept(const Acceptance& acceptance);

// Adds up the error records of the parts of one block: heads of a shard join their layer, layers of
// groups follow one another. Thread-compatible.
class BlockFidelity {
 public:
  void Add(const kernels::PartInfo& info);
  // Mean over layers of sqrt(error / size); 0 for exact forms, +infinity for lossy ones whose error
  // nobody measured or whose record is no number: it is never taken for exact.
  double Mean() const;
  bool proxy() const { return proxy_; }
  // Whether an operation that accepts so much may have this block: the client's own check, whatever
  // the node judged.
  bool Acceptable(const Acceptance& acceptance) const;

 private:
  std::vector<std::vector<kernels::ErrorRecord::Layer>> groups_;  // by group, then layer
  kernels::Fidelity worst_ = kernels::Fidelity::kExact;
  bool proxy_ = false;
  bool measured_ = true;
};

// How many of the last blocks of a prefix need the group; 0: all blocks of the prefix do.
uint32_t TailBlocksNeeded(const NamespaceSpec& spec, const LayerGroup& group);
// Groups that block `index` of a prefix of `blocks` blocks must have: every group that is needed in
// all blocks, and those needed at the tail when the block is near enough to it.
uint32_t GroupsNeeded(const NamespaceSpec& spec, size_t index, size_t blocks);
// The longest prefix, at most group_masks.size() blocks, in which every block has the groups it
// needs. group_masks[i]: groups that block i has.
size_t UsablePrefix(const NamespaceSpec& spec, std::span<const uint32_t> group_masks);

}  // namespace tokura
