#include "proto/block_key.h"

#include <utility>

#include "common/check.h"
#include "common/sha256.h"

namespace tokura {
namespace {

constexpr char kBlockDomain[] = "tokura-block-v1";
constexpr char kEngineDomain[] = "engine-key";

BlockKey Truncate(const Sha256Writer::Digest& digest) {
  return BlockKey::FromBytes(std::span(digest).first<BlockKey::kBytes>());
}

// Where a block hangs.
struct Link {
  const Fingerprint& fingerprint;
  const BlockKey& parent;
};

BlockKey HashBlock(const Link& link, std::span<const uint32_t> tokens,
                   std::span<const KeyExtra> extras, Sha256Writer* hash) {
  hash->Raw(kBlockDomain);
  hash->Raw(link.fingerprint.span());
  hash->Raw(link.parent.span());
  hash->U32(static_cast<uint32_t>(tokens.size()));
  hash->U32s(tokens);
  hash->U32(static_cast<uint32_t>(extras.size()));
  for (const KeyExtra& extra : extras) {
    hash->U8(extra.kind);
    hash->U32(static_cast<uint32_t>(sizeof(extra.offset) + extra.bytes.size()));
    hash->U32(extra.offset);
    hash->Raw(extra.bytes);
  }
  return Truncate(hash->Finish());
}

}  // namespace

BlockKey ComputeBlockKey(const Fingerprint& fingerprint, const BlockKey& parent,
                         std::span<const uint32_t> tokens, std::span<const KeyExtra> extras) {
  Sha256Writer hash;
  return HashBlock({fingerprint, parent}, tokens, extras, &hash);
}

BlockKey EngineBlockKey(const Fingerprint& fingerprint, std::span<const std::byte> engine_hash) {
  Sha256Writer hash;
  hash.Raw(kEngineDomain);
  hash.Raw(fingerprint.span());
  hash.Raw(engine_hash);
  return Truncate(hash.Finish());
}

TokenChain::TokenChain(const Fingerprint& fingerprint, uint32_t block_tokens)
    : fingerprint_(fingerprint), block_tokens_(block_tokens) {
  TOKURA_CHECK(block_tokens > 0);
}

TokenChain TokenChain::FromKeys(const Fingerprint& fingerprint, uint32_t block_tokens,
                                std::vector<BlockKey> keys) {
  TokenChain chain(fingerprint, block_tokens);
  chain.tokens_ = keys.size() * block_tokens;
  chain.keys_ = std::move(keys);
  chain.origin_ = Origin::kKeys;
  return chain;
}

void TokenChain::Append(std::span<const uint32_t> tokens, std::span<const KeyExtra> extras) {
  TOKURA_CHECK(origin_ == Origin::kTokens);
  for (const KeyExtra& extra : extras) {
    tail_extras_.push_back(extra);
    tail_extras_.back().offset = static_cast<uint32_t>(tail_.size());
  }
  tokens_ += tokens.size();
  Sha256Writer hash;
  while (tail_.size() + tokens.size() >= block_tokens_) {
    const size_t taken = block_tokens_ - tail_.size();
    std::span<const uint32_t> block = tokens.first(taken);
    if (!tail_.empty()) {
      tail_.insert(tail_.end(), block.begin(), block.end());
      block = tail_;
    }
    keys_.push_back(HashBlock({fingerprint_, parent(keys_.size())}, block, tail_extras_, &hash));
    tail_.clear();
    tail_extras_.clear();
    tokens = tokens.subspan(taken);
  }
  tail_.insert(tail_.end(), tokens.begin(), tokens.end());
}

}  // namespace tokura
