#pragma once

// Which layer groups the blocks of a prefix must have, and so how much of a chain is usable: one
// definition for the client that attends over the blocks and the coordinator that finds them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "proto/cluster.pb.h"
#include "proto/namespace.h"

namespace tokura {

// How far back each layer group is needed: in every block of a prefix, or in its last few. A value;
// without groups any block will do.
class PrefixRule {
 public:
  static constexpr size_t kGroupsMax = 8;
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  PrefixRule() = default;
  // As the groups of a valid namespace are attended to: full, latent and other groups everywhere, a
  // sliding one as far as its window reaches, a recurrent one in the last block.
  explicit PrefixRule(const NamespaceSpec& spec);
  // INVALID_ARGUMENT: a group out of range or named twice.
  static absl::StatusOr<PrefixRule> Read(
      const google::protobuf::RepeatedPtrField<proto::GroupRule>& groups);
  // The same rule as a message.
  void Write(google::protobuf::RepeatedPtrField<proto::GroupRule>& groups) const;

  // The groups that block `index` of a prefix of `blocks` blocks must have; index < blocks.
  uint32_t Needed(size_t index, size_t blocks) const;

  // How many blocks must follow a block with the groups of `group_mask` for it to be of use: 0, it
  // may be the last; kNever, it lacks a group that every block needs.
  size_t MustFollow(uint32_t group_mask) const;

  // The longest prefix, at most group_masks.size() blocks, in which every block has the groups it
  // needs. group_masks[i]: groups of block i.
  size_t UsablePrefix(std::span<const uint32_t> group_masks) const;

 private:
  uint32_t groups_ = 0;                      // bit per group of the rule
  std::array<uint32_t, kGroupsMax> tail_{};  // blocks; 0: all
};

// Finds the longest usable prefix of a chain, block by block from its root. Thread-compatible.
class PrefixScan {
 public:
  // The next block: MustFollow of the best that is held of it. Once one is kNever nothing after it
  // counts.
  void Add(size_t must_follow);
  // Blocks of the longest usable prefix of what was added.
  size_t usable() const { return usable_; }

 private:
  size_t blocks_ = 0;
  size_t wanted_ = 0;  // no prefix beyond usable_ is usable before it has so many blocks
  size_t usable_ = 0;
};

}  // namespace tokura
