#include "proto/prefix_rule.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace tokura {
namespace {

uint32_t TailBlocks(const NamespaceSpec& spec, const LayerGroup& group) {
  switch (group.kind) {
    case AttentionKind::kSliding:
      return (group.window + spec.block_tokens - 1) / spec.block_tokens;
    case AttentionKind::kRecurrent:
      return 1;  // the state after the last block stands for all before it
    case AttentionKind::kFull:
    case AttentionKind::kLatent:
    case AttentionKind::kOther:
      return 0;
  }
  return 0;
}

}  // namespace

PrefixRule::PrefixRule(const NamespaceSpec& spec) {
  for (size_t group = 0; group < std::min(spec.groups.size(), kGroupsMax); ++group) {
    groups_ |= 1u << group;
    tail_[group] = TailBlocks(spec, spec.groups[group]);
  }
}

absl::StatusOr<PrefixRule> PrefixRule::Read(
    const google::protobuf::RepeatedPtrField<proto::GroupRule>& groups) {
  PrefixRule rule;
  for (const proto::GroupRule& group : groups) {
    if (group.group() >= kGroupsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups names group ", group.group(), "; there are at most ", kGroupsMax));
    }
    if ((rule.groups_ & (1u << group.group())) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("groups names group ", group.group(), " twice"));
    }
    rule.groups_ |= 1u << group.group();
    rule.tail_[group.group()] = group.tail_blocks();
  }
  return rule;
}

void PrefixRule::Write(google::protobuf::RepeatedPtrField<proto::GroupRule>& groups) const {
  for (uint32_t left = groups_; left != 0; left &= left - 1) {
    const auto group = static_cast<uint32_t>(std::countr_zero(left));
    proto::GroupRule& added = *groups.Add();
    added.set_group(group);
    added.set_tail_blocks(tail_[group]);
  }
}

uint32_t PrefixRule::Needed(size_t index, size_t blocks) const {
  uint32_t mask = 0;
  for (uint32_t left = groups_; left != 0; left &= left - 1) {
    const int group = std::countr_zero(left);
    if (tail_[group] == 0 || index + tail_[group] >= blocks) {
      mask |= 1u << group;
    }
  }
  return mask;
}

size_t PrefixRule::MustFollow(uint32_t group_mask) const {
  size_t must_follow = 0;
  for (uint32_t missing = groups_ & ~group_mask; missing != 0; missing &= missing - 1) {
    const uint32_t tail = tail_[std::countr_zero(missing)];
    if (tail == 0) {
      return kNever;
    }
    must_follow = std::max<size_t>(must_follow, tail);
  }
  return must_follow;
}

size_t PrefixRule::UsablePrefix(std::span<const uint32_t> group_masks) const {
  PrefixScan scan;
  for (const uint32_t mask : group_masks) {
    scan.Add(MustFollow(mask));
  }
  return scan.usable();
}

void PrefixScan::Add(size_t must_follow) {
  const size_t index = blocks_++;
  if (must_follow == PrefixRule::kNever) {
    wanted_ = PrefixRule::kNever;
  } else {
    wanted_ = std::max(wanted_, index + 1 + must_follow);
  }
  if (wanted_ <= blocks_) {
    usable_ = blocks_;
  }
}

}  // namespace tokura
