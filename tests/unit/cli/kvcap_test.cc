#include "cli/kvcap.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isa-l/crc.h>

#include "cli/paths.h"
#include "tests/unit/cli/small_capture.h"

namespace tokura::cli {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Capture> Parse(const std::string& bytes) {
  return ParseCapture(std::as_bytes(std::span(bytes)));
}

// Change a 32-bit field of the header, or a word of the layer table, and make the checksum right
// again, so that the field itself is what is refused.
std::string WithWord(std::string bytes, size_t offset, uint32_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const uint32_t crc = crc32_gzip_refl(
      0, reinterpret_cast<const unsigned char*>(bytes.data()) + 160, bytes.size() - 160);
  std::memcpy(bytes.data() + 152, &crc, sizeof(crc));
  return bytes;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void ExpectEqual(const Capture& a, const Capture& b) {
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.model_layers, b.model_layers);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.q_heads, b.q_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.first_position, b.first_position);
  EXPECT_EQ(a.queries, b.queries);
  EXPECT_EQ(a.first_query_position, b.first_query_position);
  EXPECT_EQ(a.context_tokens, b.context_tokens);
  EXPECT_EQ(a.softmax_scale, b.softmax_scale);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_TRUE(a.layers == b.layers);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.v, b.v);
  EXPECT_EQ(a.q, b.q);
}

TEST(KvcapTest, WhatIsWrittenReadsBackEqual) {
  const Capture capture = SmallCapture();
  const auto read = Parse(SerializeCapture(capture));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectEqual(*read, capture);
}

TEST(KvcapTest, ReadsAFileThatAnotherProgramWroteAndWritesTheSameBytes) {
  const std::string path = *DemoDataDirectory("") + "/request_1.kvcap";
  const auto capture = ReadCapture(path);
  ASSERT_TRUE(capture.ok()) << capture.status();
  EXPECT_EQ(capture->model, "SmolLM2-135M-Instruct");
  EXPECT_EQ(capture->layers.size(), 30u);
  EXPECT_EQ(capture->tokens, 72u);
  EXPECT_EQ(capture->first_position, 256u);
  EXPECT_EQ(capture->queries, 24u);
  EXPECT_EQ(capture->first_query_position, 304u);

  const std::string copy = ::testing::TempDir() + "/kvcap_test_copy.kvcap";
  ASSERT_TRUE(WriteCapture(copy, *capture).ok());
  const auto again = ReadCapture(copy);
  ASSERT_TRUE(again.ok()) << again.status();
  ExpectEqual(*again, *capture);
  // Byte for byte, the checksum included, which zlib computed for the original.
  EXPECT_EQ(Contents(copy), Contents(path));
  std::remove(copy.c_str());
}

TEST(KvcapTest, EveryFlippedBitIsRefused) {
  const std::string good = SerializeCapture(SmallCapture({.layers = 2, .tokens = 4, .queries = 1}));
  for (size_t i = 0; i < good.size(); ++i) {
    // The checksum covers what follows the header. Of the header itself, positions, scale, flags
    // and name can take any plausible value.
    const bool free_field = (i >= 36 && i < 40) || (i >= 44 && i < 52) || (i >= 60 && i < 104);
    if (free_field || (i >= 156 && i < 160)) {
      continue;
    }
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_FALSE(Parse(bad).ok()) << "byte " << i;
  }
}

TEST(KvcapTest, EveryTruncationIsRefused) {
  const std::string good = SerializeCapture(SmallCapture({.layers = 1, .tokens = 2, .queries = 1}));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Parse(good.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(Parse(good + '\0').ok());
}

TEST(KvcapTest, RefusesHeadersThatContradictThemselvesDespiteARightChecksum) {
  const std::string good = SerializeCapture(SmallCapture());
  struct Case {
    size_t offset;
    uint32_t value;
    const char* why;
  };
  constexpr Case kCases[] = {
      {8, 2, "version"},
      {12, 164, "version"},
      {16, 0, "dimension"},           // no layers
      {16, 4096, "more layers"},      // more than the model
      {20, 3, "multiple"},            // 4 query heads over 3
      {24, 5, "multiple"},            // 5 query heads over 2
      {28, 0, "dimension"},           // no channels
      {28, 65536, "outside"},         // more than the file holds
      {32, 1u << 30, "outside"},      // many tokens
      {36, 0xffffffff, "dimension"},  // position beyond 2^30
      {40, 1u << 29, "beyond"},       // queries beyond the positions
      {48, 13, "beyond"},             // context beyond the positions
      {52, 2, "dtype"},
      {56, 2, "RoPE"},
      {60, 0x7fc00000, "softmax"},  // NaN
      {60, 0xbf800000, "softmax"},  // -1
      {104, 193, "outside"},        // not aligned
      {104, 0, "outside"},          // inside the header
      {120, 0xffffffc0, "outside"},
      {124, 0xffffffff, "outside"},  // upper half of k_offset: near 2^64
      {136, 0xffffffc0, "outside"},
      {192, 7, "ascend"},  // first layer's index
      {196, 9, "kind"},
      {200, 4, "window"},  // a full layer with a window
  };
  for (const Case& c : kCases) {
    const auto read = Parse(WithWord(good, c.offset, c.value));
    ASSERT_FALSE(read.ok()) << c.offset << " = " << c.value;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.why)) << c.offset;
  }
}

TEST(KvcapTest, SaysDamagedWhenOnlyTheChecksumDiffers) {
  std::string bytes = SerializeCapture(SmallCapture());
  bytes.back() = 1;
  EXPECT_EQ(Parse(bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(KvcapTest, NamesTheFileThatIsMissing) {
  const auto read = ReadCapture("/nonexistent/x.kvcap");
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("/nonexistent/x.kvcap"));
}

TEST(KvcapTest, JoinPutsThePrefixInFrontOfEveryHead) {
  const Capture prefix = SmallCapture({.tokens = 5, .queries = 0});
  const Capture rest = SmallCapture({.tokens = 3, .first_position = 5, .queries = 2});
  const auto joined = JoinCaptures(prefix, rest);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->tokens, 8u);
  EXPECT_EQ(joined->first_position, 0u);
  EXPECT_EQ(joined->first_query_position, 6u);
  EXPECT_EQ(joined->token_ids.front(), prefix.token_ids.front());
  EXPECT_EQ(joined->token_ids.back(), rest.token_ids.back());
  for (size_t layer = 0; layer < 3; ++layer) {
    for (size_t head = 0; head < 2; ++head) {
      const auto k = joined->K(layer, head);
      const auto v = joined->V(layer, head);
      ASSERT_EQ(k.size(), 8u * 8u);
      EXPECT_TRUE(std::equal(k.begin(), k.begin() + 40, prefix.K(layer, head).begin()));
      EXPECT_TRUE(std::equal(k.begin() + 40, k.end(), rest.K(layer, head).begin()));
      EXPECT_TRUE(std::equal(v.begin(), v.begin() + 40, prefix.V(layer, head).begin()));
      EXPECT_TRUE(std::equal(v.begin() + 40, v.end(), rest.V(layer, head).begin()));
    }
  }
  EXPECT_TRUE(Parse(SerializeCapture(*joined)).ok());
}

TEST(KvcapTest, JoinRefusesAnotherLengthOrModel) {
  const Capture prefix = SmallCapture({.tokens = 5, .queries = 0});
  Capture rest = SmallCapture({.tokens = 3, .first_position = 6, .queries = 1});
  EXPECT_EQ(JoinCaptures(prefix, rest).status().code(), absl::StatusCode::kInvalidArgument);
  rest = SmallCapture({.tokens = 3, .first_position = 5, .queries = 1});
  rest.model = "other";
  EXPECT_EQ(JoinCaptures(prefix, rest).status().code(), absl::StatusCode::kInvalidArgument);
  rest.model = prefix.model;
  rest.layers[0].rope_theta = 5;
  EXPECT_EQ(JoinCaptures(prefix, rest).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KvcapTest, AContinuationAloneAsksForItsPrefix) {
  const std::string request = *DemoDataDirectory("") + "/request_1.kvcap";
  const auto alone = ReadSequence(request, "");
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("--prefix"));
  const auto joined = ReadSequence(request, *DemoDataDirectory("") + "/prefix.kvcap");
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->tokens, 328u);
}

}  // namespace
}  // namespace tokura::cli
