#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tokura/types.h"

namespace tokura {

// Blocks [first, first + count) of a sequence.
struct BlockRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

enum class ViewUse { kRead, kWrite };

// Whether `view` can be the memory of `range` under `ns`: dimensions, shards, layers and tokens
// agree. INVALID_ARGUMENT names the field and the group.
absl::Status CheckSequenceView(const Namespace& ns, const SequenceView& view,
                               const BlockRange& range, ViewUse use);

// Blocks of a chain of `chain_blocks` that a put with `options` names; cut to the chain, and then
// the status is INVALID_ARGUMENT.
struct PutRange {
  BlockRange range;
  absl::Status status;
};
PutRange RangeOfPut(const Namespace& ns, uint64_t chain_blocks, const SequenceView& view,
                    const PutOptions& options);

// Groups of the view that have memory.
uint32_t ViewGroups(const SequenceView& view);
// How many whole blocks, from `first` on, every group of the view that has memory covers.
uint64_t BlocksCovered(const Namespace& ns, const SequenceView& view, uint64_t first);
// The view's parts of a block with groups `group_mask`, group by group.
std::vector<PartId> PartsOf(const SequenceView& view, uint32_t group_mask);
// Where a part of sequence block `block` lies in the view of its group.
uint32_t FirstHead(const Namespace& ns, const SequenceView& view, PartId part);
uint32_t FirstToken(const Namespace& ns, const SequenceView& view, uint64_t block);
// Bytes of `part` as the engine holds it.
uint64_t RawBytes(const kernels::PartShape& shape);

}  // namespace tokura
