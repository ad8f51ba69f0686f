#include "common/net/ucx_wire.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace tokura::net {
namespace {

using ControlBytes = std::array<std::byte, kControlBytes>;
using PayloadIdBytes = std::array<std::byte, kPayloadIdBytes>;

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

TEST(UcxWireTest, PayloadIdSurvivesTheRoundTripAndEveryBitFlipIsDetected) {
  PayloadIdBytes whole;
  SerializePayloadId(0x1112131415161718, whole);
  EXPECT_EQ(ParsePayloadId(whole), 0x1112131415161718u);
  for (size_t bit = 0; bit < 8 * kPayloadIdBytes; ++bit) {
    PayloadIdBytes flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(ParsePayloadId(flipped).has_value()) << "bit " << bit;
  }
}

}  // namespace
}  // namespace tokura::net
