#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/tokura.pb.h"
#include "tokura/types.h"

namespace tokura {

// What a node says of one block that it holds.
struct HeldBlock {
  ContentId content_id;
  uint64_t stored_bytes = 0;
  std::string codec;
  uint32_t group_mask = 0;
};

// The leading blocks of `asked` keys that a node holds; nothing when its reply contradicts itself.
std::optional<std::vector<HeldBlock>> ReadHeldBlocks(const proto::LookupReply& reply, size_t asked);

// Whether this software can read a form of this codec. A match repeats the name for every block, so
// a long one would multiply.
bool KnownCodec(const std::string& codec);

// Add the next block to `match`.
void AppendBlock(const BlockKey& key, const HeldBlock& block, Match* match);

}  // namespace tokura
