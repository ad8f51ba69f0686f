// Parts that were damaged, cut, or made by somebody else.

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/crc32c.h"
#include "kernels/format.h"
#include "kernels/part.h"
#include "kv_buffer.h"

namespace tokura::kernels {
namespace {

constexpr size_t kHeaderBytes = 256;  // of a part with one layer and two codecs

std::vector<std::byte> SmallPart(const char* codec) {
  TestRandom random(9);
  KvBuffer source(Layout::kContiguous, {DType::kFloat16, 1, 2, 8, 8, 8, 8});
  source.Randomize(random);
  return Encode(source, {{.codec = codec, .record_queries = 2}, 8, 2});
}

// Verifies and decodes into memory whose bytes are watched.
absl::Status Use(std::span<const std::byte> part) {
  KvBuffer target(Layout::kContiguous, {DType::kFloat32, 1, 2, 8, 8, 8, 8});
  absl::Status status = VerifyPart(part).status();
  if (status.ok()) {
    status = Decode(part, target, 0, 0);
  }
  EXPECT_TRUE(status.ok() || target.CanaryIntact(0, 0, 0, 0));
  return status;
}

template <typename T>
void Patch(std::vector<std::byte>* part, size_t at, T value) {
  std::memcpy(part->data() + at, &value, sizeof(value));
}

template <typename T>
T Peek(const std::vector<std::byte>& part, size_t at) {
  T value;
  std::memcpy(&value, part.data() + at, sizeof(value));
  return value;
}

// Makes the CRC of a section right again, so that the checks behind it are reached.
void Seal(std::vector<std::byte>* part, size_t at, size_t bytes) {
  Patch(part, at + bytes - 4, Crc32c({part->data() + at, bytes - 4}));
}

struct Offsets {
  size_t record;
  size_t table;
  size_t layer;
};

Offsets OffsetsOf(const std::vector<std::byte>& part) {
  const size_t record = Peek<uint32_t>(part, offsetof(format::Header, header_bytes));
  const size_t table = record + Peek<uint32_t>(part, record + offsetof(format::Record, bytes));
  return {record, table, table + Peek<uint32_t>(part, table + offsetof(format::Table, bytes))};
}

void SealLayer(std::vector<std::byte>* part) {
  const Offsets at = OffsetsOf(*part);
  Patch(part, at.table + sizeof(format::Table) + offsetof(format::TableLayer, crc32c),
        Crc32c({part->data() + at.layer, part->size() - at.layer}));
  Seal(part, at.table, at.layer - at.table);
}

TEST(Corruption, EveryFlippedBitIsFound) {
  for (const char* codec : {"raw", "int8", "kivi4"}) {
    std::vector<std::byte> part = SmallPart(codec);
    ASSERT_TRUE(Use(part).ok());
    for (size_t bit = 0; bit < 8 * part.size(); ++bit) {
      part[bit / 8] ^= std::byte{1} << (bit % 8);
      const absl::Status status = VerifyPart(part).status();
      ASSERT_TRUE(status.code() == absl::StatusCode::kDataLoss ||
                  status.code() == absl::StatusCode::kInvalidArgument)
          << codec << " bit " << bit << ": " << status;
      part[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(Corruption, EveryTruncationAndExtensionIsFound) {
  for (const char* codec : {"raw", "int8", "kivi4"}) {
    std::vector<std::byte> part = SmallPart(codec);
    for (size_t bytes = 0; bytes < part.size(); ++bytes) {
      // A copy of its own size, so that a sanitizer sees a read behind it.
      const std::vector<std::byte> cut(part.begin(), part.begin() + static_cast<ptrdiff_t>(bytes));
      ASSERT_EQ(Use(cut).code(), absl::StatusCode::kInvalidArgument) << bytes;
      const bool prefix = bytes >= OffsetsOf(part).layer;
      ASSERT_EQ(PartReader::Open(cut).ok(), prefix) << bytes;
    }
    part.push_back(std::byte{0});
    EXPECT_EQ(Use(part).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Corruption, AnotherRevisionIsRefusedWithBothVersions) {
  std::vector<std::byte> part = SmallPart("kivi4");
  Patch<uint16_t>(&part, offsetof(format::Header, revision), 77);
  Seal(&part, 0, kHeaderBytes);
  const absl::Status status = Use(part);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("0.77"), absl::string_view::npos);
  EXPECT_NE(status.message().find(FormatVersionString()), absl::string_view::npos);
}

// std::vector::insert instead makes GCC 12 see an overflow at -O3 that there is not.
void Append(std::vector<std::byte>* out, std::span<const std::byte> bytes) {
  const size_t at = out->size();
  out->resize(at + bytes.size());
  std::copy(bytes.begin(), bytes.end(), out->begin() + static_cast<ptrdiff_t>(at));
}

// The part with `extensions` behind the layer codecs.
std::vector<std::byte> WithExtensions(const std::vector<std::byte>& extensions) {
  const std::vector<std::byte> part = SmallPart("kivi4");
  const size_t contents = sizeof(format::Header) + 2 * sizeof(format::Codec) + 8;
  std::vector<std::byte> header;
  Append(&header, std::span(part).first(contents));
  Append(&header, extensions);
  header.resize((header.size() + 4 + 63) / 64 * 64);
  Patch(&header, offsetof(format::Header, header_bytes), static_cast<uint32_t>(header.size()));
  Patch(&header, offsetof(format::Header, extension_bytes),
        static_cast<uint32_t>(extensions.size()));
  Seal(&header, 0, header.size());
  Append(&header, std::span(part).subspan(kHeaderBytes));
  return header;
}

std::vector<std::byte> Extension(uint16_t type, uint16_t flags, uint32_t bytes, size_t present) {
  std::vector<std::byte> out(sizeof(format::Extension) + present, std::byte{7});
  const format::Extension extension{type, flags, bytes};
  std::memcpy(out.data(), &extension, sizeof(extension));
  return out;
}

TEST(Corruption, UnknownExtensionsAreSkippedUnlessCritical) {
  EXPECT_TRUE(Use(WithExtensions({})).ok());
  std::vector<std::byte> two = Extension(5, 0, 13, 16);
  Append(&two, Extension(6, 2, 0, 0));
  EXPECT_TRUE(Use(WithExtensions(two)).ok()) << Use(WithExtensions(two));
  const absl::Status status =
      Use(WithExtensions(Extension(99, format::kExtensionCritical, 100, 104)));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("99"), absl::string_view::npos);
  for (const uint32_t bytes : {17u, 0xffffffffu, 0xfffffff8u}) {
    EXPECT_EQ(Use(WithExtensions(Extension(5, 0, bytes, 16))).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// Every aligned word of a section set to values that sizes and counts must not have, with the CRC
// made right: no crash, no write, and a status of the right kind.
void TryValues(size_t from, size_t to, const std::function<void(std::vector<std::byte>*)>& seal) {
  const uint32_t values[] = {0,           1,           2,           0x7fffffffu, 0x80000000u,
                             0xffffffffu, 0xfffffff0u, 0x00010000u, 4096,        0x7f800000u};
  const std::vector<std::byte> part = SmallPart("kivi4");
  for (size_t at = from; at + 4 <= to; at += 4) {
    for (const uint32_t value : values) {
      std::vector<std::byte> changed = part;
      Patch(&changed, at, value);
      seal(&changed);
      const absl::Status status = Use(changed);
      EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kDataLoss ||
                  status.code() == absl::StatusCode::kInvalidArgument ||
                  status.code() == absl::StatusCode::kFailedPrecondition)
          << status;
    }
  }
}

TEST(Corruption, NoSealedHeaderCrashesTheReader) {
  TryValues(0, kHeaderBytes - 4, [](std::vector<std::byte>* part) { Seal(part, 0, kHeaderBytes); });
}

TEST(Corruption, NoSealedRecordOrTableCrashesTheReader) {
  const Offsets at = OffsetsOf(SmallPart("kivi4"));
  TryValues(at.record, at.layer - 4, [&](std::vector<std::byte>* part) {
    Seal(part, at.record, at.table - at.record);
    Seal(part, at.table, at.layer - at.table);
  });
}

TEST(Corruption, NoSealedLayerCrashesTheReader) {
  const std::vector<std::byte> part = SmallPart("kivi4");
  TryValues(OffsetsOf(part).layer, part.size(), SealLayer);
}

TEST(Corruption, LyingLayersAreDataLoss) {
  const std::vector<std::byte> part = SmallPart("kivi4");
  const size_t layer = OffsetsOf(part).layer;
  const size_t slab = layer + 16;
  const auto refused = [&](size_t at, uint32_t value) {
    std::vector<std::byte> changed = part;
    Patch(&changed, at, value);
    SealLayer(&changed);
    EXPECT_TRUE(VerifyPart(changed).ok());
    return Use(changed).code() == absl::StatusCode::kDataLoss;
  };
  EXPECT_TRUE(refused(layer, 1));                                        // slabs
  EXPECT_TRUE(refused(layer + 8, 0));                                    // slab in the header
  EXPECT_TRUE(refused(layer + 12, Peek<uint32_t>(part, layer + 8)));     // the same slab twice
  EXPECT_TRUE(refused(layer + 12, 0xfffffff0u));                         // outside
  EXPECT_TRUE(refused(slab + offsetof(format::Slab, coded_tokens), 5));  // tokens
  EXPECT_TRUE(refused(slab + offsetof(format::Slab, log_weight), 0x3f800000u));
  EXPECT_TRUE(refused(slab + offsetof(format::Slab, v_offset), 0));
  const size_t indices = slab + Peek<uint32_t>(part, slab + offsetof(format::Slab, exact_offset));
  EXPECT_TRUE(refused(indices, 1));       // 1, 1, 2, 3
  EXPECT_TRUE(refused(indices + 12, 8));  // beyond the block
}

TEST(Corruption, ExactTokensMayStandAnywhereInTheBlock) {
  std::vector<std::byte> part = SmallPart("kivi4");
  const size_t slab = OffsetsOf(part).layer + 16;
  const size_t indices = slab + Peek<uint32_t>(part, slab + offsetof(format::Slab, exact_offset));
  KvBuffer before(Layout::kContiguous, {DType::kFloat16, 1, 2, 8, 8, 8, 8});
  ASSERT_TRUE(Decode(part, before, 0, 0).ok());
  constexpr uint32_t kExact[] = {1, 4, 5, 7};
  constexpr uint32_t kCoded[] = {0, 2, 3, 6};
  for (int i = 0; i < 4; ++i) {
    Patch(&part, indices + 4 * i, kExact[i]);
  }
  SealLayer(&part);
  KvBuffer after(Layout::kContiguous, before.shape());
  ASSERT_TRUE(Decode(part, after, 0, 0).ok());
  for (const Side side : {Side::kK, Side::kV}) {
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t c = 0; c < 8; ++c) {
        EXPECT_EQ(after.Bits({side, 0, 0, kExact[i], c}), before.Bits({side, 0, 0, i, c}));
        EXPECT_EQ(after.Bits({side, 0, 0, kCoded[i], c}), before.Bits({side, 0, 0, 4 + i, c}));
      }
    }
  }
}

TEST(Corruption, LossyLayersAreNeverPassedOffAsExact) {
  std::vector<std::byte> part = SmallPart("kivi4");
  Patch<uint8_t>(&part, offsetof(format::Header, fidelity), 1);
  Seal(&part, 0, kHeaderBytes);
  EXPECT_EQ(Use(part).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Corruption, RecordsHoldFiniteSums) {
  const Offsets at = OffsetsOf(SmallPart("kivi4"));
  for (const double value :
       {-1.0, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<std::byte> part = SmallPart("kivi4");
    Patch(&part, at.record + sizeof(format::Record), value);
    Seal(&part, at.record, at.table - at.record);
    EXPECT_EQ(Use(part).code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace tokura::kernels
