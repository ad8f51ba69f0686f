#include "common/net/frame.h"

#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura::net {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

FrameHeader EveryFieldSet() {
  FrameHeader header;
  header.op = Op::kGet;
  header.flags = kFrameReply | kFramePayload;
  header.status = 5;
  header.index = 0x01020304;
  header.request_id = 0x1112131415161718;
  header.incarnation = 0x2122232425262728;
  header.deadline_us = 0x31323334;
  header.payload_bytes = 0x4142434445464748;
  header.group = 0x5152;
  header.shard = 0x6162;
  return header;
}

TEST(FrameTest, EveryFieldSurvivesTheRoundTrip) {
  const std::vector<std::byte> body = Bytes("a body");
  std::array<std::byte, kFrameBytes> bytes;
  const FrameHeader in = EveryFieldSet();
  SerializeFrame(in, body, bytes);
  const auto out = ParseFrame(bytes, body);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->magic, kFrameMagic);
  EXPECT_EQ(out->version, kProtocolVersion);
  EXPECT_EQ(out->op, in.op);
  EXPECT_EQ(out->flags, in.flags);
  EXPECT_EQ(out->status, in.status);
  EXPECT_EQ(out->index, in.index);
  EXPECT_EQ(out->request_id, in.request_id);
  EXPECT_EQ(out->incarnation, in.incarnation);
  EXPECT_EQ(out->deadline_us, in.deadline_us);
  EXPECT_EQ(out->body_bytes, body.size());
  EXPECT_EQ(out->payload_bytes, in.payload_bytes);
  EXPECT_EQ(out->group, in.group);
  EXPECT_EQ(out->shard, in.shard);
}

TEST(FrameTest, FieldsLieWhereTheWireDocumentPutsThem) {
  std::array<std::byte, kFrameBytes> bytes;
  SerializeFrame(EveryFieldSet(), Bytes("xyz"), bytes);
  const std::array<uint8_t, 52> expected = {
      'T',  'K',  'R',  'A',                           // magic
      3,    0,    20,   0,    3,    0,    5,    0,     // version, op, flags, status
      0x04, 0x03, 0x02, 0x01,                          // index
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  // request id
      0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,  // incarnation
      0x34, 0x33, 0x32, 0x31,                          // deadline
      3,    0,    0,    0,                             // body bytes
      0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,  // payload bytes
      0x52, 0x51, 0x62, 0x61,                          // group, shard
  };
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(static_cast<uint8_t>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(FrameTest, EveryBitFlipIsDetected) {
  std::vector<std::byte> body = Bytes("the body is covered too");
  std::array<std::byte, kFrameBytes> bytes;
  SerializeFrame(EveryFieldSet(), body, bytes);
  ASSERT_TRUE(ParseFrame(bytes, body).ok());
  for (size_t bit = 0; bit < 8 * (bytes.size() + body.size()); ++bit) {
    std::byte& target = bit / 8 < bytes.size() ? bytes[bit / 8] : body[bit / 8 - bytes.size()];
    target ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(ParseFrame(bytes, body).ok()) << "bit " << bit;
    target ^= static_cast<std::byte>(1 << (bit % 8));
  }
  EXPECT_TRUE(ParseFrame(bytes, body).ok());
}

TEST(FrameTest, EveryTruncationAndExtensionIsRefused) {
  const std::vector<std::byte> body = Bytes("0123456789");
  std::vector<std::byte> bytes(kFrameBytes);
  SerializeFrame(EveryFieldSet(), body, std::span<std::byte, kFrameBytes>(bytes));
  for (size_t size = 0; size < kFrameBytes; ++size) {
    EXPECT_EQ(ParseFrame(std::span(bytes).first(size), body).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (size_t size = 0; size < body.size(); ++size) {
    EXPECT_EQ(ParseFrame(bytes, std::span(body).first(size)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(ParseFrame(longer, body).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, AnotherVersionIsNamedWithBothNumbers) {
  FrameHeader header;
  header.version = 7;
  std::array<std::byte, kFrameBytes> bytes;
  SerializeFrame(header, {}, bytes);
  const absl::Status status = ParseFrame(bytes, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("version 7"));
  EXPECT_THAT(status.message(), HasSubstr("this side 3"));
  // Another version may have another header size; the answer is the same.
  EXPECT_EQ(ParseFrame(std::span(bytes).first(32), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(FrameTest, ErrorsHaveTheirOwnCodes) {
  std::array<std::byte, kFrameBytes> bytes;
  SerializeFrame(FrameHeader{}, {}, bytes);
  bytes[20] ^= std::byte{1};
  EXPECT_EQ(ParseFrame(bytes, {}).status().code(), absl::StatusCode::kDataLoss);
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(ParseFrame(bytes, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, OpsHaveNames) {
  EXPECT_STREQ(OpName(Op::kGet), "get");
  EXPECT_STREQ(OpName(static_cast<Op>(999)), "unknown");
}

}  // namespace
}  // namespace tokura::net
