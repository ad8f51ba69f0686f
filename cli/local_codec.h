#pragma once

// Encoding and decoding in this process, without a node: to judge a codec, to time it, and to know
// what a lossy get must return.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/model_profile.h"
#include "kernels/part.h"
#include "tokura/types.h"

namespace tokura::cli {

// Uninitialised memory, aligned as parts want it. Movable.
class PartBuffer {
 public:
  explicit PartBuffer(size_t bytes);
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_;
};

// One part of one block of a sequence, all of the namespace's heads in it.
struct BlockPart {
  NamespaceRef ns;
  size_t group = 0;
  uint32_t block = 0;  // in the chain; its tokens are those of the view from block · block_tokens
  BlockKey key;
};

// Encode a part from `from` into `out`; the bytes used. `options.block_position` is set to the
// block's. Statuses of PartEncoder::Create.
absl::StatusOr<size_t> EncodePart(const BlockPart& part, kernels::EncodeOptions options,
                                  const kernels::KvView& from, std::span<std::byte> out);
// Verify and decode a whole part into the same tokens of `to`, with a profile of `maybe_profiles`
// where it needs one. Statuses of PartReader.
absl::StatusOr<kernels::PartInfo> DecodePart(
    const BlockPart& part, std::span<const std::byte> bytes, const kernels::KvView& to,
    const kernels::ProfileSource* maybe_profiles = nullptr);
// Upper bound of the bytes that EncodePart writes.
absl::StatusOr<size_t> EncodedPartBytesMax(const BlockPart& part, const std::string& codec);

}  // namespace tokura::cli
