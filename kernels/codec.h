#pragma once

// The codec table: presets are rows; a codec is a K side and a V side that combine freely.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/dtype.h"

namespace tokura::kernels {

// The numbers are part of FORMAT.md.
enum class Transform : uint8_t { kNone = 0, kSmooth = 1, kHadamard = 2, kProfileBasis = 3 };
enum class Grouping : uint8_t { kNone = 0, kPerToken = 1, kPerChannel = 2 };
enum class Number : uint8_t { kRaw = 0, kInteger = 1, kFloat8 = 2, kLloydMax = 3 };
enum class Zero : uint8_t { kSymmetric = 0, kAsymmetric = 1 };
// How an encoder chooses among codes; decoders need not know.
enum class Rounding : uint8_t { kNearest = 0, kGuidedByChannel = 1, kGuidedByToken = 2 };

// How one side (K or V) of a slab is coded. With the profile where UsesProfile says so, everything
// a decoder needs is here and in the slab's bytes.
struct CodecSide {
  Number number = Number::kRaw;
  uint8_t bits = 0;  // 0 for raw
  Grouping grouping = Grouping::kNone;
  // A group has group_split elements where its axis has more than group_max; see GroupElements.
  uint16_t group_max = 0;
  uint16_t group_split = 0;
  Zero zero = Zero::kSymmetric;
  Transform transform = Transform::kNone;
  Rounding rounding = Rounding::kNearest;
  uint8_t outliers =
      0;             // channels that the profile names, per 128 channels begun, kept as they are
  uint8_t tail = 0;  // last channels kept as they are
  bool raw() const { return number == Number::kRaw; }
  // Whether decoding gives back an element of `dtype` bit for bit.
  bool exact(DType dtype) const;
  friend bool operator==(const CodecSide&, const CodecSide&) = default;
};

// Elements of one group along an axis of `extent` elements (channels of a per-token side, coded
// tokens of a per-channel side): the whole extent when group_max is 0 or not smaller, else
// group_split; the last group of an axis may be shorter. `extent` 0 gives 0.
uint32_t GroupElements(const CodecSide& side, uint32_t extent);

// How many of `dim` channels the profile names as outliers of the side: an even number, at most
// what the tail leaves.
uint32_t OutlierChannels(const CodecSide& side, uint32_t dim);

enum class ProfileUse : uint8_t {
  kNone,
  kOptional,  // Hadamard: signs of its own; a reader needs the profile that the writer had
  kToEncode,  // guided rounding; a reader does not need it
  kToDecode,  // λ, outliers: nothing works without it
};
ProfileUse UsesProfile(const CodecSide& side);

struct CodecPreset {
  std::string_view name;
  CodecSide k;
  CodecSide v;
  std::string_view k_text;  // what `codec list` prints
  std::string_view v_text;
};

// All presets, in the order of the table. Static.
std::span<const CodecPreset> CodecPresets();

// Find a codec by name. Also accepts "K_NAME+V_NAME": the K side of one preset with the V side of
// another; what is a preset's pair of sides is that preset ("X+X" is X). NOT_FOUND lists the known
// names. Thread-safe. The returned texts point into static tables, except that the `name` of a
// combination is empty: CodecNameOf gives it.
absl::StatusOr<CodecPreset> FindCodec(std::string_view name);

// The name FindCodec accepts for these two sides: a preset's, or "K+V". NOT_FOUND: a side that is
// in no row of this build's table.
absl::StatusOr<std::string> CodecNameOf(const CodecSide& k, const CodecSide& v);

// Bits per element, coding parameters included (headers and alignment are not), of a block of
// `block_tokens` tokens with K and V of head size `head_dim`. Zero sizes give 0.
double BitsPerElement(const CodecPreset& preset, uint32_t head_dim, uint32_t block_tokens,
                      DType dtype);

}  // namespace tokura::kernels
