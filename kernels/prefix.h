#pragma once

// The prefix of a part (header, error record, table) as values, written and parsed. Internal to
// kernels/.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/format.h"
#include "kernels/layout.h"
#include "kernels/part.h"

namespace tokura::kernels {

struct Prefix {
  PartIdentity identity;
  PartShape shape;
  Fidelity fidelity = Fidelity::kExact;
  std::vector<CodecPair> codecs;     // entry 0 is the part's codec
  std::vector<uint8_t> layer_codec;  // index into codecs, one per layer
  uint64_t codec_profile = 0;        // 0: none
  ErrorRecord error;                 // layers may be empty: not measured, or exact
  std::vector<format::TableLayer> table;
};

struct PrefixSizes {
  uint64_t header = 0;
  uint64_t record = 0;
  uint64_t table = 0;
  uint64_t total() const { return header + record + table; }
};

enum class RecordKind : uint8_t { kAbsent, kPresent };

// Sizes of the sections of a prefix without extensions.
PrefixSizes PrefixSizesOf(uint32_t layers, uint32_t codecs, RecordKind record);

// Refuses shapes outside format.h's limits: INVALID_ARGUMENT names the field.
absl::Status CheckShape(const PartShape& shape);

// Write the three sections to `out`, PrefixSizesOf(…).total() bytes.
void WritePrefix(const Prefix& prefix, RecordKind record, std::byte* out);

struct ParsedPrefix {
  Prefix prefix;
  PrefixSizes sizes;
};

// Statuses as PartReader::Open.
absl::StatusOr<ParsedPrefix> ParsePrefix(std::span<const std::byte> bytes);

}  // namespace tokura::kernels
