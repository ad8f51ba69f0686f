#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

namespace tokura {

// A fixed-size opaque identifier. `Tag` keeps the kinds apart; all-zero means "none".
template <typename Tag, size_t kSize>
struct Id {
  static constexpr size_t kBytes = kSize;
  std::array<uint8_t, kSize> bytes{};

  static Id FromBytes(std::span<const std::byte, kSize> in) {
    Id id;
    std::memcpy(id.bytes.data(), in.data(), kSize);
    return id;
  }
  bool empty() const { return *this == Id{}; }
  std::span<const std::byte, kSize> span() const {
    return std::as_bytes(std::span<const uint8_t, kSize>(bytes));
  }
  friend auto operator<=>(const Id&, const Id&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    // All bytes: a peer chooses its ids, and ids that share a part must not share a hash.
    return H::combine_contiguous(std::move(h), id.bytes.data(), kSize);
  }
};

// Names everything that must match for KV to be interchangeable (proto/namespace.h).
using Fingerprint = Id<struct FingerprintTag, 32>;
// Names one block of a chain, and with it the whole prefix before it (proto/block_key.h).
using BlockKey = Id<struct BlockKeyTag, 16>;
// Names one writer's bits of a block; transcodes inherit it. A Get never mixes two of them within a
// block.
using ContentId = Id<struct ContentIdTag, 16>;
// An unguessable token of a lease.
using LeaseToken = Id<struct LeaseTokenTag, 16>;

// One part of a block: a layer group and a head shard of it.
struct PartId {
  uint8_t group = 0;
  uint8_t shard = 0;
  friend auto operator<=>(const PartId&, const PartId&) = default;
};

// Lower-case hexadecimal of the bytes, for logs and reasons.
std::string ToHex(std::span<const std::byte> bytes);

}  // namespace tokura
