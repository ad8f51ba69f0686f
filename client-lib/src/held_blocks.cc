#include "client-lib/src/held_blocks.h"

#include <algorithm>
#include <span>

#include "kernels/codec.h"

namespace tokura {
namespace {
constexpr size_t kCodecNameBytesMax = 64;
}  // namespace

bool KnownCodec(const std::string& codec) {
  return codec.size() <= kCodecNameBytesMax && kernels::FindCodec(codec).ok();
}

std::optional<std::vector<HeldBlock>> ReadHeldBlocks(const proto::LookupReply& reply,
                                                     size_t asked) {
  const size_t count = reply.prefix_blocks();
  const bool known = std::all_of(reply.forms().begin(), reply.forms().end(),
                                 [](const proto::Form& form) { return KnownCodec(form.codec()); });
  if (!known || count > asked || static_cast<size_t>(reply.form_of_block_size()) < count ||
      reply.content_ids().size() < count * ContentId::kBytes) {
    return std::nullopt;
  }
  const auto ids = std::as_bytes(std::span(reply.content_ids()));
  std::vector<HeldBlock> blocks;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t index = reply.form_of_block(static_cast<int>(i));
    if (index >= static_cast<uint32_t>(reply.forms_size())) {
      return std::nullopt;
    }
    const proto::Form& form = reply.forms(static_cast<int>(index));
    blocks.push_back(
        {ContentId::FromBytes(ids.subspan(i * ContentId::kBytes).first<ContentId::kBytes>()),
         form.stored_bytes(), form.codec(), form.group_mask()});
  }
  return blocks;
}

void AppendBlock(const BlockKey& key, const HeldBlock& block, Match* match) {
  match->keys.push_back(key);
  match->content_ids.push_back(block.content_id);
  match->stored_bytes.push_back(block.stored_bytes);
  match->codecs.push_back(block.codec);
}

}  // namespace tokura
