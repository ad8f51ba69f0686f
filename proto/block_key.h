#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"

namespace tokura {

// What changes KV without changing token ids: multimodal item hashes, prompt embeddings. An item
// names itself once, in the block that holds its first token; the blocks after that one inherit it
// through their parent.
struct KeyExtra {
  uint8_t kind = 0;     // 1 multimodal hash, 2 prompt embedding hash, 128…255 private
  std::string bytes;    // the whole hash, never truncated
  uint32_t offset = 0;  // of the item's first token in its block: placeholders look alike, and the
                        // same items at other places give other KV
};

// First 16 bytes of SHA-256("tokura-block-v1" ‖ fingerprint ‖ parent key ‖ u32 token count ‖ u32
// tokens… ‖ u32 extra count ‖ (kind u8, length u32, u32 offset ‖ hash bytes)…), little-endian; the
// length counts the offset. `parent` is empty (zero) at the root. Extras count in the order given:
// that of their tokens. Thread-safe.
BlockKey ComputeBlockKey(const Fingerprint& fingerprint, const BlockKey& parent,
                         std::span<const uint32_t> tokens, std::span<const KeyExtra> extras = {});

// Key of a block that an engine names by its own stable hash: first 16 bytes of
// SHA-256("engine-key" ‖ fingerprint ‖ hash).
BlockKey EngineBlockKey(const Fingerprint& fingerprint, std::span<const std::byte> engine_hash);

// The keys of a growing sequence, computed once per block. Thread-compatible. Copying is cheap
// enough to fork a sequence.
class TokenChain {
 public:
  TokenChain(const Fingerprint& fingerprint, uint32_t block_tokens);
  // A chain of keys made elsewhere (engine keys); Append is not allowed on it.
  static TokenChain FromKeys(const Fingerprint& fingerprint, uint32_t block_tokens,
                             std::vector<BlockKey> keys);

  // Append tokens; completed blocks get keys. `extras` are of the item that begins with the first
  // of `tokens` and go into the key of the block that holds it, with its offset there (`offset` as
  // given is ignored). So: one Append per item and one for the text between; how text is cut into
  // Appends changes nothing. Extras without tokens go to the token that is appended next. An open
  // tail has no key, so its extras show once the block is complete.
  void Append(std::span<const uint32_t> tokens, std::span<const KeyExtra> extras = {});

  const Fingerprint& fingerprint() const { return fingerprint_; }
  uint32_t block_tokens() const { return block_tokens_; }
  size_t tokens() const { return tokens_; }       // all, the open tail included
  size_t blocks() const { return keys_.size(); }  // complete ones
  std::span<const BlockKey> keys() const { return keys_; }
  // The parent of block `index`; empty for the first.
  BlockKey parent(size_t index) const { return index == 0 ? BlockKey{} : keys_[index - 1]; }

 private:
  enum class Origin : uint8_t { kTokens, kKeys };

  Fingerprint fingerprint_;
  uint32_t block_tokens_;
  Origin origin_ = Origin::kTokens;
  size_t tokens_ = 0;
  std::vector<uint32_t> tail_;
  std::vector<KeyExtra> tail_extras_;
  std::vector<BlockKey> keys_;
};

}  // namespace tokura
