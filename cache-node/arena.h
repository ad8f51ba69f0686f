#pragma once

// The memory of the host tier: one mapping, cut into extents that each begin with a header, so that
// the arena can be walked and read again without any index.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"

namespace tokura::node {

// When the system gives the arena its pages: each at its first touch, which makes the first put
// into it several times slower, or all before Create returns.
enum class Prefault { kNo, kYes };

enum class ExtentState : uint8_t { kFree = 0, kReserved = 1, kStored = 2 };

// First bytes of every extent, host byte order (little-endian). Offsets and ids only, no pointers.
struct ExtentHeader {
  static constexpr uint32_t kMagic = 0x54584b54;  // "TKXT"
  static constexpr uint16_t kVersion = 1;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  ExtentState state = ExtentState::kFree;
  PartId part;  // group, shard
  uint8_t padding[7] = {};
  uint64_t extent_bytes = 0;  // header included: the next extent begins here
  uint64_t payload_bytes = 0;
  uint32_t group_mask = 0;  // of the block's form
  uint32_t shards = 0;
  Fingerprint fingerprint;
  BlockKey key;
  BlockKey parent;
  ContentId content_id;
  uint32_t position = 0;
  uint32_t crc = 0;  // CRC-32C of the header with this field 0
};
static_assert(sizeof(ExtentHeader) == 128);

inline constexpr uint64_t kExtentHeaderBytes = sizeof(ExtentHeader);
// Extents begin and end at multiples of this, so payloads are 64-byte aligned and any remainder has
// room for a header.
inline constexpr uint64_t kExtentGranule = 128;

struct Extent {
  uint64_t offset = 0;
  ExtentHeader header;
};

// Thread-compatible: the owner serialises headers; payload bytes belong to whoever holds the
// extent.
class Arena {
 public:
  // Map `bytes` (rounded down to the granule) of anonymous zero memory: on huge pages when the
  // system has enough of them free, else with a hint to use transparent ones. RESOURCE_EXHAUSTED:
  // the system refuses (the message has the size and why), or, with kYes, the pages would exceed
  // what this process may have (CheckMemoryLimit under `system_root`); INVALID_ARGUMENT: under
  // 16 KiB. With kYes it blocks for up to seconds per GiB, as the system is fast; an old kernel
  // that cannot do it is no error.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(uint64_t bytes,
                                                       Prefault prefault = Prefault::kNo,
                                                       const std::string& system_root = "");
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  bool huge_pages() const { return huge_pages_; }

  // Write the header at `offset`, its CRC included.
  void WriteHeader(uint64_t offset, ExtentHeader header);
  // The header at `offset`. DATA_LOSS: magic, version, CRC or size is wrong.
  absl::StatusOr<ExtentHeader> ReadHeader(uint64_t offset) const;
  std::span<std::byte> Payload(uint64_t offset, uint64_t payload_bytes) const {
    return bytes_.subspan(offset + kExtentHeaderBytes, payload_bytes);
  }
  // All extents in address order, from the headers alone. DATA_LOSS as for ReadHeader.
  absl::StatusOr<std::vector<Extent>> Walk() const;

 private:
  Arena(std::span<std::byte> bytes, uint64_t mapped_bytes, bool huge_pages)
      : bytes_(bytes), mapped_bytes_(mapped_bytes), huge_pages_(huge_pages) {}

  const std::span<std::byte> bytes_;
  const uint64_t mapped_bytes_;
  const bool huge_pages_;
};

}  // namespace tokura::node
