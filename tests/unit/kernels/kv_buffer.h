#pragma once

// Test helper: an engine's memory in one of several layouts, with canary bytes everywhere but in
// the elements, and helpers that encode and decode whole parts.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/kv_view.h"
#include "kernels/part.h"

namespace tokura::kernels {

using TestRandom = std::mt19937_64;

enum class Layout {
  kContiguous,  // [heads, tokens, dim]
  kTokenMajor,  // pages of [tokens, heads, dim]
  kVllmCpu,     // pages of [heads, (K [dim, tokens], V [tokens, dim])]
  kOdd,         // pages with gaps between all axes, at an odd address
};
inline constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kTokenMajor, Layout::kVllmCpu,
                                      Layout::kOdd};

enum class Side { kK, kV };

// Where an element is.
struct At {
  Side side = Side::kK;
  uint32_t layer = 0;
  uint32_t head = 0;
  uint32_t token = 0;
  uint32_t channel = 0;
};

struct BufferShape {
  DType dtype = DType::kFloat16;
  uint32_t layers = 1;
  uint32_t heads = 1;
  uint32_t k_dim = 64;
  uint32_t v_dim = 64;
  uint32_t tokens = 64;
  uint32_t page_tokens = 128;
};

class KvBuffer {
 public:
  KvBuffer(Layout layout, const BufferShape& shape);
  const KvView& view() const { return view_; }
  const BufferShape& shape() const { return shape_; }

  // Bits of an element, in the low bytes.
  uint32_t Bits(const At& at) const;
  void SetBits(const At& at, uint32_t bits);
  float Value(const At& at) const;
  void Set(const At& at, float value);

  // Calls visit for every element of K, then of V.
  void ForEach(const std::function<void(const At&)>& visit) const;
  // Standard normal values, some channels of K with an offset as real keys have.
  void Randomize(TestRandom& random);
  void FillCanary();
  // True while every byte outside of the elements of tokens [first, first + count) of heads
  // [first_head, first_head + heads) has the value it had after FillCanary.
  bool CanaryIntact(uint32_t first_head, uint32_t heads, uint32_t first, uint32_t count) const;
  std::vector<std::byte> Snapshot() const { return memory_; }

 private:
  std::byte* Address(const At& at) const;
  BufferShape shape_;
  std::vector<std::byte> memory_;
  KvView view_;
};

// A standard normal number.
float Normal(TestRandom& random);

PartIdentity TestIdentity();
PartShape ShapeOf(const BufferShape& shape, uint32_t tokens, uint32_t heads);

// Aligned bytes of one part, canary bytes behind them; `at` is the first byte.
class PartBytes {
 public:
  explicit PartBytes(size_t bytes);
  std::span<std::byte> out() { return {begin_, bytes_}; }
  std::span<const std::byte> part() const { return {begin_, used_}; }
  void set_used(size_t used) { used_ = used; }
  bool CanaryIntact() const;

 private:
  std::vector<std::byte> memory_;
  std::byte* begin_;
  size_t bytes_;
  size_t used_ = 0;
};

struct EncodeArguments {
  EncodeOptions options;
  uint32_t tokens = 64;
  uint32_t heads = 1;
  uint32_t first_head = 0;
  uint32_t first_token = 0;
};

// Encodes all layers; fails the test on an error or a written canary.
std::vector<std::byte> Encode(const KvBuffer& buffer, const EncodeArguments& arguments,
                              uint32_t* fallbacks = nullptr);

// Verifies and decodes all layers into `buffer`.
absl::Status Decode(std::span<const std::byte> part, const KvBuffer& buffer, uint32_t first_head,
                    uint32_t first_token, const ProfileSource* profiles = nullptr);

}  // namespace tokura::kernels
