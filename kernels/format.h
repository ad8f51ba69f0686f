#pragma once

// The bytes of a part, for host and device code alike: plain fixed-size little-endian structs and
// constants, no functions that need a library. FORMAT.md explains them; a change here changes
// FORMAT.md, the golden files and kFormatRevision in the same commit.

#include <cstddef>
#include <cstdint>

namespace tokura::kernels::format {

inline constexpr uint16_t kMajor = 0;
inline constexpr uint16_t kRevision = 3;  // raised with every change of bytes

// "TOKURAKV" as eight bytes.
inline constexpr uint8_t kMagic[8] = {'T', 'O', 'K', 'U', 'R', 'A', 'K', 'V'};
inline constexpr uint32_t kRecordTag = 0x43455245u;  // "EREC"
inline constexpr uint32_t kTableTag = 0x4c424154u;   // "TABL"

// Sections of the prefix and layers are multiples of this; so are their offsets.
inline constexpr uint32_t kSectionAlignment = 64;
// Slabs, their code arrays and their parameter arrays begin at multiples of this.
inline constexpr uint32_t kSlabAlignment = 16;
inline constexpr uint32_t kCrcBytes = 4;  // the last bytes of every section of the prefix

// Limits that every writer keeps and every reader enforces before it computes a size.
inline constexpr uint32_t kLayersMax = 4096;
inline constexpr uint32_t kHeadsMax = 4096;
inline constexpr uint32_t kHeadDimMax = 8192;
inline constexpr uint32_t kTokensMax = 65536;
inline constexpr uint32_t kCodecsMax = 16;
inline constexpr uint32_t kHeaderBytesMax = 65536;
inline constexpr uint64_t kLayerBytesMax = 0xffffffc0u;

// How one side (K or V) is coded. Values: kernels/codec.h.
struct Side {
  uint8_t number;
  uint8_t bits;
  uint8_t grouping;
  uint8_t zero;
  uint8_t transform;
  uint8_t rounding;
  uint8_t outliers;
  uint8_t tail;
  uint16_t group_max;
  uint16_t group_split;
  uint32_t reserved;
};
static_assert(sizeof(Side) == 16 && alignof(Side) == 4);

struct Codec {
  Side k;
  Side v;
};
static_assert(sizeof(Codec) == 32);

// The header's fixed part. The first 16 bytes and the position of the section's CRC keep their
// meaning in every revision, so that another revision is recognised and not taken for damage.
struct Header {
  uint8_t magic[8];
  uint16_t major;
  uint16_t revision;
  uint32_t header_bytes;  // the whole section: multiple of kSectionAlignment, CRC included
  uint8_t fingerprint[32];
  uint8_t key[16];
  uint8_t content_id[16];
  uint8_t group;
  uint8_t shard;
  uint8_t dtype;     // of the engine's KV, of raw data and of coding parameters
  uint8_t fidelity;  // 1 exact, 2 quantized, 3 summary
  uint32_t layers;
  uint32_t heads;
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  uint32_t tokens;
  uint32_t codecs;           // entries of the codec list; entry 0 is the part's codec
  uint32_t extension_bytes;  // all extensions together, multiple of 8
  uint32_t reserved_0[2];
  uint64_t codec_profile;  // model profile that the codes were made with; 0: none
  uint64_t reserved_1;
};
static_assert(sizeof(Header) == 136 && alignof(Header) == 8);
static_assert(offsetof(Header, header_bytes) == 12);
static_assert(offsetof(Header, fingerprint) == 16);
static_assert(offsetof(Header, group) == 80);
static_assert(offsetof(Header, layers) == 84);
static_assert(offsetof(Header, codec_profile) == 120);
// Then: Codec[codecs]; uint8_t layer_codec[layers], padded with zeros to 8; extensions; zeros; CRC.

struct Extension {
  uint16_t type;
  uint16_t flags;  // bit 0: critical
  uint32_t bytes;  // of the data that follows, which is padded with zeros to a multiple of 8
};
static_assert(sizeof(Extension) == 8);
inline constexpr uint16_t kExtensionCritical = 1;

struct Record {
  uint32_t tag;
  uint32_t bytes;  // the whole section
  uint32_t flags;
  uint32_t layers;  // 0 when nothing was measured
  uint32_t queries;
  uint32_t reserved;
  uint64_t profile;  // 0: the block's own keys were the queries
};
static_assert(sizeof(Record) == 32);
inline constexpr uint32_t kRecordMeasured = 1;
inline constexpr uint32_t kRecordComposed = 2;

struct RecordLayer {
  double error;
  double size;
};
static_assert(sizeof(RecordLayer) == 16);

struct Table {
  uint32_t tag;
  uint32_t bytes;  // the whole section
  uint32_t layers;
  uint32_t reserved;
};
static_assert(sizeof(Table) == 16);

struct TableLayer {
  uint64_t offset;  // from the end of the prefix; multiple of kSectionAlignment
  uint32_t bytes;   // multiple of kSectionAlignment
  uint32_t crc32c;  // of those bytes
};
static_assert(sizeof(TableLayer) == 16);

// A layer: this, uint32_t slab_offset[slabs] from the layer's first byte, zeros to
// kSlabAlignment, the slabs, zeros to kSectionAlignment.
struct Layer {
  uint32_t slabs;  // one per head
  uint32_t reserved;
};
static_assert(sizeof(Layer) == 8);

// A slab; offsets are from the slab's first byte.
struct Slab {
  uint32_t bytes;         // multiple of kSlabAlignment
  uint32_t coded_tokens;  // coded_tokens + exact_tokens == tokens
  uint32_t exact_tokens;
  float log_weight;  // of every coded token; 0 unless a summary
  uint32_t k_offset;
  uint32_t v_offset;
  uint32_t exact_offset;
  uint32_t reserved;
};
static_assert(sizeof(Slab) == 32);

}  // namespace tokura::kernels::format
