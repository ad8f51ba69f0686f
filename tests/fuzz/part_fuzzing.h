#pragma once

// What the fuzz targets of parts share.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "kernels/format.h"
#include "kernels/part.h"
#include "tests/unit/kernels/test_profile.h"

namespace tokura::kernels {

// Makes the CRCs of the three sections right where they lie inside of `bytes`, so that the fuzzer
// gets behind them.
inline void SealSections(std::vector<std::byte>* bytes) {
  size_t at = 0;
  for (const size_t length_at : {offsetof(format::Header, header_bytes),
                                 offsetof(format::Record, bytes), offsetof(format::Table, bytes)}) {
    uint32_t length;
    if (at + length_at + sizeof(length) > bytes->size()) {
      return;
    }
    std::memcpy(&length, bytes->data() + at + length_at, sizeof(length));
    if (length < format::kSectionAlignment || length > bytes->size() - at) {
      return;
    }
    const uint32_t crc = Crc32c({bytes->data() + at, length - sizeof(crc)});
    std::memcpy(bytes->data() + at + length - sizeof(crc), &crc, sizeof(crc));
    at += length;
  }
}

// Decodes every layer that lies inside of `bytes` to a view of its shape, checksums aside.
inline void DecodeAll(const PartReader& reader, const std::vector<std::byte>& bytes) {
  const PartInfo& info = reader.info();
  const PartShape& shape = info.shape;
  const uint64_t elements = uint64_t{shape.heads} * shape.tokens * shape.k_head_dim;
  if (shape.k_head_dim != shape.v_head_dim || elements > (1u << 16)) {
    return;
  }
  std::vector<std::byte> memory(2 * elements * DTypeBytes(shape.dtype));
  const KvView view = ContiguousView(shape.dtype, shape.heads, shape.k_head_dim, shape.tokens,
                                     {{memory.data(), memory.data() + memory.size() / 2}});
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    if (info.layer_offset[layer + 1] > bytes.size()) {
      return;
    }
    const std::vector<std::byte> copy(
        bytes.begin() + static_cast<ptrdiff_t>(info.layer_offset[layer]),
        bytes.begin() + static_cast<ptrdiff_t>(info.layer_offset[layer + 1]));
    const std::vector<std::byte> before = memory;
    if (!reader.DecodeLayer(layer, copy, {&view, 0, 0, 0}).ok()) {
      TOKURA_CHECK(memory == before);  // nothing is written on an error
    }
  }
}

// The part of a `shape` of one layer, from the beginning of `view`.
inline std::vector<std::byte> EncodeOneLayer(const PartShape& shape, const KvView& view,
                                             const EncodeOptions& options) {
  std::vector<std::byte> storage(*PartBytesMax(shape, options.codec) + kPartAlignment);
  const size_t skew = reinterpret_cast<uintptr_t>(storage.data()) % kPartAlignment;
  const std::span<std::byte> out =
      std::span<std::byte>(storage).subspan(kPartAlignment - skew, storage.size() - kPartAlignment);
  auto encoder = PartEncoder::Create({}, shape, {&view, 0, 0}, options, out);
  TOKURA_CHECK(encoder.ok());
  encoder->EncodeLayer();
  const size_t used = encoder->Finish();
  return {out.begin(), out.begin() + static_cast<ptrdiff_t>(used)};
}

// One input of a decode target: the first byte chooses the shape, the rest overwrites the layer of
// a part that was made with `codec`.
inline void DecodeFuzzed(const std::string& codec, const uint8_t* data, size_t size) {
  if (size < 2) {
    return;
  }
  constexpr uint32_t kDims[] = {5, 8, 80, 136};
  const uint32_t dim = kDims[data[0] % 4];
  const uint32_t tokens = 1 + data[0] / 4 % 16;
  const DType dtype = static_cast<DType>(1 + data[1] % 3);
  std::vector<std::byte> memory(size_t{4} * tokens * dim * DTypeBytes(dtype));
  const KvView view =
      ContiguousView(dtype, 2, dim, tokens, {{memory.data(), memory.data() + memory.size() / 2}});
  const PartShape shape{dtype, 1, 2, dim, dim, tokens};
  const TestProfiles profiles(dim, dim);
  EncodeOptions options;
  options.codec = codec;
  options.record = EncodeOptions::Record::kSkip;
  options.profiles = &profiles;
  options.profile = TestProfile::kId;
  std::vector<std::byte> part = EncodeOneLayer(shape, view, options);
  const auto reader = PartReader::Open(part, &profiles);
  TOKURA_CHECK(reader.ok());
  // Bytes as XOR, so that zeros keep a structure that took the encoder many fields to make.
  const size_t layer_at = reader->info().layer_offset[0];
  for (size_t i = 2; i < size && layer_at + i - 2 < part.size(); ++i) {
    part[layer_at + i - 2] ^= static_cast<std::byte>(data[i]);
  }
  DecodeAll(*reader, part);
}

// The other direction: `data` as the elements of a block. What comes back is within the bounds of
// the codec or, where it fell back, the same bits.
inline void EncodeFuzzed(const std::string& codec, const uint8_t* data, size_t size) {
  if (size < 2) {
    return;
  }
  const DType dtype = static_cast<DType>(1 + data[0] % 3);
  const uint32_t dim = 1 + data[1] % 24;
  const size_t token_bytes = 2 * size_t{dim} * DTypeBytes(dtype);
  const auto tokens = static_cast<uint32_t>(std::min<size_t>((size - 2) / token_bytes, 40));
  if (tokens == 0) {
    return;
  }
  std::vector<std::byte> memory(tokens * token_bytes);
  std::memcpy(memory.data(), data + 2, memory.size());
  const KvView view =
      ContiguousView(dtype, 1, dim, tokens, {{memory.data(), memory.data() + memory.size() / 2}});
  const PartShape shape{dtype, 1, 1, dim, dim, tokens};
  const TestProfiles profiles(dim, dim);
  EncodeOptions options;
  options.codec = codec;
  options.profiles = &profiles;
  options.profile = TestProfile::kId;
  const std::vector<std::byte> part = EncodeOneLayer(shape, view, options);
  TOKURA_CHECK(VerifyPart(part).ok());
  const auto reader = PartReader::Open(part, &profiles);
  std::vector<std::byte> decoded(memory.size());
  const KvView target = ContiguousView(dtype, 1, dim, tokens,
                                       {{decoded.data(), decoded.data() + decoded.size() / 2}});
  const auto layer = std::span<const std::byte>(part).subspan(reader->info().layer_offset[0]);
  TOKURA_CHECK(reader->DecodeLayer(0, layer, {&target, 0, 0, 0}).ok());
  if (reader->info().fidelity == Fidelity::kExact) {
    TOKURA_CHECK(decoded == memory);
  }
}

}  // namespace tokura::kernels
