#include "common/net/ucx_wire.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace tokura::net {
namespace {

using ControlBytes = std::array<std::byte, kControlBytes>;
using ChunkHeader = std::array<std::byte, kChunkHeaderBytes>;

ControlBytes Serialized(UcxControl control) {
  ControlBytes bytes;
  SerializeControl(control, bytes);
  return bytes;
}

TEST(UcxWireTest, EveryControlMessageSurvivesTheRoundTrip) {
  for (const UcxControlOp op :
       {UcxControlOp::kOpen, UcxControlOp::kReject, UcxControlOp::kRejectSeen, UcxControlOp::kFin,
        UcxControlOp::kFinSeen}) {
    const auto parsed = ParseControl(Serialized({op, 0x1112131415161718}));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->op, op);
    EXPECT_EQ(parsed->argument, 0x1112131415161718u);
  }
}

TEST(UcxWireTest, UnknownAndCutControlMessagesAreRefused) {
  EXPECT_FALSE(ParseControl(Serialized({static_cast<UcxControlOp>(0), 1})).has_value());
  EXPECT_FALSE(ParseControl(Serialized({static_cast<UcxControlOp>(6), 1})).has_value());
  const ControlBytes whole = Serialized({UcxControlOp::kReject, 1});
  EXPECT_FALSE(ParseControl(std::span(whole).first(kControlBytes - 1)).has_value());
  std::vector<std::byte> longer(whole.begin(), whole.end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(ParseControl(longer).has_value());
}

TEST(UcxWireTest, EveryBitFlipInAControlMessageIsDetected) {
  // One bit makes a rejection of its answer, and of one payload's number another's.
  const ControlBytes whole = Serialized({UcxControlOp::kReject, 7});
  for (size_t bit = 0; bit < 8 * kControlBytes; ++bit) {
    ControlBytes flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(ParseControl(flipped).has_value()) << "bit " << bit;
  }
}

TEST(UcxWireTest, ChunkHeaderSurvivesTheRoundTripAndEveryBitFlipIsDetected) {
  ChunkHeader whole;
  SerializeChunk({.payload_id = 0x1112131415161718, .offset = 0x2122232425, .total = 0x3132333435},
                 whole);
  const auto parsed = ParseChunk(whole);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->payload_id, 0x1112131415161718u);
  EXPECT_EQ(parsed->offset, 0x2122232425u);
  EXPECT_EQ(parsed->total, 0x3132333435u);
  for (size_t bit = 0; bit < 8 * kChunkHeaderBytes; ++bit) {
    ChunkHeader flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(ParseChunk(flipped).has_value()) << "bit " << bit;
  }
}

TEST(UcxWireTest, ChunksCoverAPayloadAndOnlyTheLastMayBeSmall) {
  for (const size_t total : {size_t{0}, size_t{1}, kChunkBytesMin, 2 * kChunkBytesMin - 1,
                             2 * kChunkBytesMin, 2 * kChunkBytesMin + 1, 4 * kChunkBytesMin + 1,
                             5 * kChunkBytesMin - 1, size_t{64} << 20, (size_t{64} << 20) + 17}) {
    const size_t chunk = ChunkBytes(total);
    if (total < 2 * kChunkBytesMin) {
      EXPECT_EQ(chunk, total);
      continue;
    }
    EXPECT_GE(chunk, kChunkBytesMin) << total;
    EXPECT_LT(chunk, 2 * kChunkBytesMin) << total;
    const size_t last = total - (total - 1) / chunk * chunk;
    EXPECT_GE(last, kChunkBytesMin / 2) << "a crumb at the end of " << total;
  }
}

}  // namespace
}  // namespace tokura::net
