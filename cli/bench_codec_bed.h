#pragma once

// What bench codec measures with: memory of an engine, values as models have them, and a model
// profile that serves every preset.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/local_codec.h"
#include "common/dtype.h"
#include "kernels/guided_rounding.h"
#include "kernels/kv_view.h"
#include "kernels/model_profile.h"
#include "kernels/part.h"

namespace tokura::cli {

// Where a block's elements lie; a page is a block, so that its raw bytes lie together.
enum class BedLayout {
  kHeadMajor,     // K [head][token][channel], then V
  kTokenMajor,    // K [token][head][channel], then V
  kChannelMajor,  // by head: K [channel][token], V [token][channel] (vLLM's CPU backend)
};

// Bytes of one block: all of its layers.
size_t BedBlockBytes(const kernels::PartShape& shape);

// Movable; the view borrows it and stays valid. Thread-compatible.
class BedPages {
 public:
  BedPages(const kernels::PartShape& shape, BedLayout layout, size_t blocks);
  std::span<std::byte> bytes() const { return buffer_.bytes(); }
  std::span<std::byte> Block(size_t block) const;
  // Block i of a sequence is page i.
  const kernels::KvView& view() const { return view_; }
  // Values as keys have them, of the block's own `seed`: every channel with a mean of its own, a
  // few of them large.
  void FillBlock(size_t block, uint64_t seed);
  // K, then V, as floats: [layer][head][token][channel].
  std::vector<float> Values(size_t block) const;

 private:
  kernels::PartShape shape_;
  PartBuffer buffer_;
  kernels::KvView view_;
};

// Made up, the same for every layer and head, of any model. Has everything that a codec asks for,
// in the sizes of one head.
class BedProfile : public kernels::ModelProfile, public kernels::ProfileSource {
 public:
  BedProfile(uint32_t k_dim, uint32_t v_dim);
  uint64_t id() const override { return 1; }
  absl::Status CheckPart(PartId part, const kernels::PartShape& shape,
                         const Needs& needs) const override;
  kernels::HeadProfile Head(const kernels::ProfileSlot& slot) const override;
  kernels::Exemplars ExemplarsOf(const kernels::ProfileSlot& slot, uint32_t count) const override;
  // Finds itself. The pointer does not own: the profile outlives who looks it up.
  std::shared_ptr<const kernels::ModelProfile> Find(uint64_t id) const override;

 private:
  uint32_t k_dim_;
  uint32_t v_dim_;
  std::vector<float> smooth_;
  std::vector<uint16_t> k_outliers_;
  std::vector<uint16_t> v_outliers_;
  kernels::GuideArrays guide_;
  std::vector<float> exemplars_;
};

}  // namespace tokura::cli
