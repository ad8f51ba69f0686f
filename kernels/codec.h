#pragma once

// The codec table: presets are rows; a codec is a K side and a V side that combine freely.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/dtype.h"

namespace tokura::kernels {

enum class Transform : uint8_t { kNone = 0, kSmooth = 1, kHadamard = 2, kProfileBasis = 3 };
enum class Grouping : uint8_t { kNone = 0, kPerToken = 1, kPerChannel = 2 };
enum class Number : uint8_t { kRaw = 0, kInteger = 1, kFloat8 = 2, kLloydMax = 3 };
enum class Zero : uint8_t { kSymmetric = 0, kAsymmetric = 1 };

// How one side (K or V) of a slab is coded. Everything a decoder needs is here and in the slab's
// bytes.
struct CodecSide {
  Number number = Number::kRaw;
  uint8_t bits = 0;  // 0 for raw
  Grouping grouping = Grouping::kNone;
  uint16_t group_max = 0;  // elements per group: min(group_max, extent)
  Zero zero = Zero::kSymmetric;
  Transform transform = Transform::kNone;
  friend bool operator==(const CodecSide&, const CodecSide&) = default;
};

struct CodecPreset {
  std::string_view name;
  CodecSide k;
  CodecSide v;
  std::string_view k_text;  // what `codec list` prints
  std::string_view v_text;
};

// All presets, in the order of the table. Static.
std::span<const CodecPreset> CodecPresets();
// NOT_FOUND lists the known names. Also accepts "K_NAME+V_NAME": the K side of one preset with the
// V side of another.
absl::StatusOr<CodecPreset> FindCodec(std::string_view name);
// Bits per element, metadata included, of a 64-token block with head size `head_dim`.
double BitsPerElement(const CodecPreset& preset, uint32_t head_dim, uint32_t block_tokens,
                      DType dtype);

}  // namespace tokura::kernels
