#include "kernels/codec.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

constexpr CodecSide kRawSide{};
constexpr CodecSide kInt8Token{Number::kInteger, 8, Grouping::kPerToken, 0, Zero::kSymmetric};
constexpr CodecSide kInt4Channel{Number::kInteger, 4, Grouping::kPerChannel, 64, Zero::kAsymmetric};
constexpr CodecSide kInt4Token{Number::kInteger, 4, Grouping::kPerToken, 128, Zero::kAsymmetric};

constexpr CodecPreset kPresets[] = {
    {"raw", kRawSide, kRawSide, "as produced", "as produced"},
    {"int8", kInt8Token, kInt8Token, "8-bit symmetric per token", "8-bit symmetric per token"},
    {"kivi4", kInt4Channel, kInt4Token, "4-bit asymmetric per channel, groups of up to 64 tokens",
     "4-bit asymmetric per token, groups of up to 128 channels"},
};

constexpr uint32_t kSplitGroup = 64;

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
  return std::min<uint32_t>(side.group_max, kSplitGroup);
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
  if (k == v) {
    return *k;
  }
  return CodecPreset{{}, k->k, v->v, k->k_text, v->v_text};
}

absl::StatusOr<std::string> CodecNameOf(const CodecSide& k, const CodecSide& v) {
  const CodecPreset* k_preset = nullptr;
  const CodecPreset* v_preset = nullptr;
  for (const CodecPreset& preset : kPresets) {
    if (preset.k == k && preset.v == v) {
      return std::string(preset.name);
    }
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
  return 8.0 * static_cast<double>(k.codes + k.parameters + v.codes + v.parameters) /
         static_cast<double>(elements);
}

}  // namespace tokura::kernels
