#include "kernels/codec.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

constexpr CodecSide Integer(uint8_t bits, Grouping grouping, uint16_t group_max,
                            uint16_t group_split, Zero zero) {
  CodecSide side;
  side.number = Number::kInteger;
  side.bits = bits;
  side.grouping = grouping;
  side.group_max = group_max;
  side.group_split = group_split;
  side.zero = zero;
  return side;
}

// Per token, one group of all channels.
constexpr CodecSide Symmetric(uint8_t bits) {
  return Integer(bits, Grouping::kPerToken, 0, 0, Zero::kSymmetric);
}
// K of the kivi family: groups of tokens of a channel.
constexpr CodecSide Channels(uint8_t bits, uint16_t group) {
  return Integer(bits, Grouping::kPerChannel, group, group, Zero::kAsymmetric);
}
// V of most codecs: groups of channels of a token.
constexpr CodecSide Tokens(uint8_t bits, uint16_t group_max, uint16_t group_split) {
  return Integer(bits, Grouping::kPerToken, group_max, group_split, Zero::kAsymmetric);
}

constexpr CodecSide Float8(Grouping grouping, uint16_t group, uint8_t tail) {
  CodecSide side;
  side.number = Number::kFloat8;
  side.bits = 8;
  side.grouping = grouping;
  side.group_max = group;
  side.group_split = group;
  side.tail = tail;
  return side;
}

constexpr CodecSide LloydMax(uint8_t bits) {
  CodecSide side;
  side.number = Number::kLloydMax;
  side.bits = bits;
  side.grouping = Grouping::kPerToken;
  side.transform = Transform::kHadamard;
  return side;
}

constexpr CodecSide WithOutliers(CodecSide side, uint8_t outliers) {
  side.outliers = outliers;
  return side;
}
constexpr CodecSide Smooth(CodecSide side) {
  side.transform = Transform::kSmooth;
  return side;
}
constexpr CodecSide Guided(CodecSide side, Rounding rounding) {
  side.rounding = rounding;
  return side;
}

constexpr CodecSide kRawSide{};
constexpr CodecSide kFloat8Side = Float8(Grouping::kNone, 0, 0);
constexpr CodecSide kLatentSide = Float8(Grouping::kPerToken, 128, 64);
constexpr CodecSide kToken4 = Tokens(4, 128, 64);
constexpr CodecSide kToken3 = Tokens(3, 128, 64);
constexpr CodecSide kToken2 = Tokens(2, 32, 32);
constexpr CodecSide kChannel4 = Channels(4, 64);
constexpr CodecSide kChannel3 = Channels(3, 64);
constexpr CodecSide kChannel2 = Channels(2, 32);

constexpr std::string_view kChannelText4 =
    "4-bit asymmetric per channel, groups of up to 64 tokens";
constexpr std::string_view kChannelText3 =
    "3-bit asymmetric per channel, groups of up to 64 tokens";
constexpr std::string_view kChannelText2 =
    "2-bit asymmetric per channel, groups of up to 32 tokens";
constexpr std::string_view kTokenText4 = "4-bit asymmetric per token, groups of up to 128 channels";
constexpr std::string_view kTokenText3 = "3-bit asymmetric per token, groups of up to 128 channels";
constexpr std::string_view kTokenText2 = "2-bit asymmetric per token, groups of up to 32 channels";

constexpr CodecPreset kPresets[] = {
    {"raw", kRawSide, kRawSide, "as produced", "as produced"},
    {"fp8", kFloat8Side, kFloat8Side, "float8 e4m3, one scale", "float8 e4m3, one scale"},
    {"int8", Symmetric(8), Symmetric(8), "8-bit symmetric per token", "8-bit symmetric per token"},
    {"int4", Symmetric(4), Symmetric(4), "4-bit symmetric per token", "4-bit symmetric per token"},
    {"kivi4", kChannel4, kToken4, kChannelText4, kTokenText4},
    {"kivi2", kChannel2, kToken2, kChannelText2, kTokenText2},
    {"kivi_k2v4", kChannel2, kToken4, kChannelText2, kTokenText4},
    {"kivi_k4v2", kChannel4, kToken2, kChannelText4, kTokenText2},
    {"k8v4", Symmetric(8), kToken4, "8-bit symmetric per token", kTokenText4},
    {"atom4", WithOutliers(kToken4, 2), WithOutliers(kToken4, 2),
     "4-bit asymmetric per token, outlier channels as produced (profile)",
     "4-bit asymmetric per token, outlier channels as produced (profile)"},
    {"qserve4", Smooth(kToken4), kToken4, "4-bit asymmetric per token behind smoothing (profile)",
     kTokenText4},
    {"turbo4", LloydMax(4), kToken4, "4-bit Lloyd-Max behind Hadamard, length corrected",
     kTokenText4},
    {"turbo3", LloydMax(3), kToken3, "3-bit Lloyd-Max behind Hadamard, length corrected",
     kTokenText3},
    {"kivi4r", Guided(kChannel4, Rounding::kGuidedByChannel), kToken4,
     "4-bit asymmetric per channel, rounding guided (profile)", kTokenText4},
    {"kivi3r", Guided(kChannel3, Rounding::kGuidedByChannel), kToken3,
     "3-bit asymmetric per channel, rounding guided (profile)", kTokenText3},
    {"kivi4rv", Guided(kChannel4, Rounding::kGuidedByChannel),
     Guided(kToken4, Rounding::kGuidedByToken),
     "4-bit asymmetric per channel, rounding guided (profile)",
     "4-bit asymmetric per token, rounding guided (profile)"},
    {"kivi3rv", Guided(kChannel3, Rounding::kGuidedByChannel),
     Guided(kToken3, Rounding::kGuidedByToken),
     "3-bit asymmetric per channel, rounding guided (profile)",
     "3-bit asymmetric per token, rounding guided (profile)"},
    {"mla_fp8", kLatentSide, kRawSide,
     "float8 e4m3, groups of 128 channels; the last 64 channels as produced", "as produced"},
    {"kivi3", kChannel3, kToken3, kChannelText3, kTokenText3},
};

constexpr uint32_t kOutlierSpan = 128;

const CodecPreset* FindSides(const CodecSide& k, const CodecSide& v) {
  for (const CodecPreset& preset : kPresets) {
    if (preset.k == k && preset.v == v) {
      return &preset;
    }
  }
  return nullptr;
}

const CodecPreset* FindPreset(std::string_view name) {
  for (const CodecPreset& preset : kPresets) {
    if (preset.name == name) {
      return &preset;
    }
  }
  return nullptr;
}

absl::Status Unknown(std::string_view name) {
  std::string known;
  for (const CodecPreset& preset : kPresets) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(preset.name));
  }
  return absl::NotFoundError(absl::StrCat("unknown codec '", std::string(name), "'; known: ", known,
                                          ", and K+V of two of them"));
}

}  // namespace

uint32_t GroupElements(const CodecSide& side, uint32_t extent) {
  if (side.group_max == 0 || extent <= side.group_max) {
    return extent;
  }
  return side.group_split;
}

uint32_t OutlierChannels(const CodecSide& side, uint32_t dim) {
  const uint32_t left = dim - std::min<uint32_t>(side.tail, dim);
  const uint32_t wanted = side.outliers * ((left + kOutlierSpan - 1) / kOutlierSpan);
  return std::min(wanted, left) / 2 * 2;
}

bool CodecSide::exact(DType dtype) const {
  return raw() || (number == Number::kFloat8 && dtype == DType::kFloat8E4M3 &&
                   transform == Transform::kNone);
}

ProfileUse UsesProfile(const CodecSide& side) {
  if (side.transform == Transform::kSmooth || side.transform == Transform::kProfileBasis ||
      side.outliers != 0) {
    return ProfileUse::kToDecode;
  }
  if (side.rounding != Rounding::kNearest) {
    return ProfileUse::kToEncode;
  }
  return side.transform == Transform::kHadamard ? ProfileUse::kOptional : ProfileUse::kNone;
}

std::span<const CodecPreset> CodecPresets() {
  return kPresets;
}

absl::StatusOr<CodecPreset> FindCodec(std::string_view name) {
  if (const CodecPreset* preset = FindPreset(name)) {
    return *preset;
  }
  const size_t plus = name.find('+');
  if (plus == std::string_view::npos) {
    return Unknown(name);
  }
  const CodecPreset* k = FindPreset(name.substr(0, plus));
  const CodecPreset* v = FindPreset(name.substr(plus + 1));
  if (k == nullptr || v == nullptr) {
    return Unknown(name);
  }
  if (const CodecPreset* preset = FindSides(k->k, v->v)) {
    return *preset;
  }
  return CodecPreset{{}, k->k, v->v, k->k_text, v->v_text};
}

absl::StatusOr<std::string> CodecNameOf(const CodecSide& k, const CodecSide& v) {
  const CodecPreset* k_preset = nullptr;
  const CodecPreset* v_preset = nullptr;
  if (const CodecPreset* preset = FindSides(k, v)) {
    return std::string(preset->name);
  }
  for (const CodecPreset& preset : kPresets) {
    if (k_preset == nullptr && preset.k == k) {
      k_preset = &preset;
    }
    if (v_preset == nullptr && preset.v == v) {
      v_preset = &preset;
    }
  }
  if (k_preset == nullptr || v_preset == nullptr) {
    return absl::NotFoundError("a side of the codec is not in this build's table");
  }
  return std::string(k_preset->name) + "+" + std::string(v_preset->name);
}

double BitsPerElement(const CodecPreset& preset, uint32_t head_dim, uint32_t block_tokens,
                      DType dtype) {
  const uint64_t elements = uint64_t{2} * head_dim * block_tokens;
  if (elements == 0) {
    return 0;
  }
  const SideShape shape{block_tokens, head_dim, dtype};
  const SideBytes k = SideBytesOf(preset.k, shape);
  const SideBytes v = SideBytesOf(preset.v, shape);
  const uint64_t bytes = k.codes + k.parameters + k.exact + v.codes + v.parameters + v.exact;
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

}  // namespace tokura::kernels
