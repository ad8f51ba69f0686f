#include "kernels/prefix.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kernels/quantize.h"
#include "kernels/side_codec.h"

namespace tokura::kernels {
namespace {

using Bytes = std::span<const std::byte>;

uint64_t SectionBytes(uint64_t content) {
  return AlignUp(content + format::kCrcBytes, format::kSectionAlignment);
}

uint64_t HeaderContent(uint32_t layers, uint32_t codecs, uint32_t extension_bytes) {
  return sizeof(format::Header) + uint64_t{codecs} * sizeof(format::Codec) + AlignUp(layers, 8) +
         extension_bytes;
}

uint64_t RecordContent(uint32_t layers) {
  return sizeof(format::Record) + uint64_t{layers} * sizeof(format::RecordLayer);
}

uint64_t TableContent(uint32_t layers) {
  return sizeof(format::Table) + uint64_t{layers} * sizeof(format::TableLayer);
}

format::Side ToFormat(const CodecSide& side) {
  return {static_cast<uint8_t>(side.number),
          side.bits,
          static_cast<uint8_t>(side.grouping),
          static_cast<uint8_t>(side.zero),
          static_cast<uint8_t>(side.transform),
          static_cast<uint8_t>(side.rounding),
          side.outliers,
          side.tail,
          side.group_max,
          side.group_split,
          0};
}

// Enumerators this build does not know stay what they are: no table row equals them.
CodecSide FromFormat(const format::Side& side) {
  CodecSide out;
  out.number = static_cast<Number>(side.number);
  out.bits = side.bits;
  out.grouping = static_cast<Grouping>(side.grouping);
  out.zero = static_cast<Zero>(side.zero);
  out.transform = static_cast<Transform>(side.transform);
  out.rounding = static_cast<Rounding>(side.rounding);
  out.outliers = side.outliers;
  out.tail = side.tail;
  out.group_max = side.group_max;
  out.group_split = side.group_split;
  return out;
}

// Writes one section: contents in order, then zeros, then the CRC of all before it.
class SectionWriter {
 public:
  SectionWriter(std::byte* out, uint64_t bytes) : out_(out), bytes_(bytes) {
    std::memset(out, 0, bytes);
  }
  void Append(const void* data, size_t bytes) {
    std::memcpy(out_ + at_, data, bytes);
    at_ += bytes;
  }
  void Finish() {
    const uint64_t covered = bytes_ - format::kCrcBytes;
    const uint32_t crc = Crc32c({out_, covered});
    std::memcpy(out_ + covered, &crc, sizeof(crc));
  }

 private:
  std::byte* out_;
  uint64_t bytes_;
  uint64_t at_ = 0;
};

void WriteHeader(const Prefix& prefix, uint64_t bytes, std::byte* out) {
  format::Header header{};
  std::memcpy(header.magic, format::kMagic, sizeof(header.magic));
  header.major = format::kMajor;
  header.revision = format::kRevision;
  header.header_bytes = static_cast<uint32_t>(bytes);
  std::memcpy(header.fingerprint, prefix.identity.fingerprint.bytes.data(), Fingerprint::kBytes);
  std::memcpy(header.key, prefix.identity.key.bytes.data(), BlockKey::kBytes);
  std::memcpy(header.content_id, prefix.identity.content_id.bytes.data(), ContentId::kBytes);
  header.group = prefix.identity.part.group;
  header.shard = prefix.identity.part.shard;
  header.dtype = static_cast<uint8_t>(prefix.shape.dtype);
  header.fidelity = static_cast<uint8_t>(prefix.fidelity);
  header.layers = prefix.shape.layers;
  header.heads = prefix.shape.heads;
  header.k_head_dim = prefix.shape.k_head_dim;
  header.v_head_dim = prefix.shape.v_head_dim;
  header.tokens = prefix.shape.tokens;
  header.codecs = static_cast<uint32_t>(prefix.codecs.size());
  header.codec_profile = prefix.codec_profile;
  SectionWriter writer(out, bytes);
  writer.Append(&header, sizeof(header));
  for (const CodecPair& codec : prefix.codecs) {
    const format::Codec entry{ToFormat(codec.k), ToFormat(codec.v)};
    writer.Append(&entry, sizeof(entry));
  }
  writer.Append(prefix.layer_codec.data(), prefix.layer_codec.size());
  writer.Finish();
}

void WriteRecord(const Prefix& prefix, RecordKind kind, uint64_t bytes, std::byte* out) {
  format::Record record{};
  record.tag = format::kRecordTag;
  record.bytes = static_cast<uint32_t>(bytes);
  SectionWriter writer(out, bytes);
  if (kind == RecordKind::kPresent) {
    record.flags = format::kRecordMeasured | (prefix.error.composed ? format::kRecordComposed : 0u);
    record.layers = prefix.shape.layers;
    record.queries = prefix.error.queries;
    record.profile = prefix.error.profile;
    writer.Append(&record, sizeof(record));
    for (const ErrorRecord::Layer& layer : prefix.error.layers) {
      const format::RecordLayer entry{layer.error, layer.size};
      writer.Append(&entry, sizeof(entry));
    }
  } else {
    writer.Append(&record, sizeof(record));
  }
  writer.Finish();
}

void WriteTable(const Prefix& prefix, uint64_t bytes, std::byte* out) {
  format::Table table{};
  table.tag = format::kTableTag;
  table.bytes = static_cast<uint32_t>(bytes);
  table.layers = prefix.shape.layers;
  SectionWriter writer(out, bytes);
  writer.Append(&table, sizeof(table));
  writer.Append(prefix.table.data(), prefix.table.size() * sizeof(format::TableLayer));
  writer.Finish();
}

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("part: ", what));
}

// `section` without its CRC, or DATA_LOSS.
absl::Status CheckCrc(Bytes section, const std::string& name) {
  uint32_t stored;
  std::memcpy(&stored, section.data() + section.size() - format::kCrcBytes, sizeof(stored));
  if (stored != Crc32c(section.first(section.size() - format::kCrcBytes))) {
    return absl::DataLossError(absl::StrCat("part: checksum of the ", name, " does not match"));
  }
  return absl::OkStatus();
}

// The header section of `bytes` after magic, length, checksum and version.
absl::StatusOr<Bytes> HeaderSection(Bytes bytes) {
  if (bytes.size() < sizeof(format::Header)) {
    return Malformed("shorter than a header");
  }
  format::Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, format::kMagic, sizeof(header.magic)) != 0) {
    return Malformed("no magic number");
  }
  if (header.header_bytes % format::kSectionAlignment != 0 ||
      header.header_bytes < format::kSectionAlignment ||
      header.header_bytes > format::kHeaderBytesMax) {
    return Malformed("impossible header length");
  }
  if (bytes.size() < header.header_bytes) {
    return Malformed("truncated in the header");
  }
  const Bytes section = bytes.first(header.header_bytes);
  TOKURA_RETURN_IF_ERROR(CheckCrc(section, "header"));
  if (header.major != format::kMajor || header.revision != format::kRevision) {
    return absl::FailedPreconditionError(absl::StrCat("part: format ", header.major, ".",
                                                      header.revision, ", this build reads ",
                                                      FormatVersionString()));
  }
  if (section.size() < sizeof(header) + format::kCrcBytes) {
    return Malformed("header too short");
  }
  return section;
}

absl::Status ParseExtensions(Bytes bytes) {
  while (!bytes.empty()) {
    format::Extension extension;
    if (bytes.size() < sizeof(extension)) {
      return Malformed("truncated extension");
    }
    std::memcpy(&extension, bytes.data(), sizeof(extension));
    bytes = bytes.subspan(sizeof(extension));
    const uint64_t padded = AlignUp(extension.bytes, 8);
    if (padded > bytes.size()) {
      return Malformed("extension longer than the header");
    }
    // This revision defines no extensions: others are skipped, critical ones are not for us.
    if ((extension.flags & format::kExtensionCritical) != 0) {
      return absl::FailedPreconditionError(absl::StrCat("part: critical extension ", extension.type,
                                                        " is unknown to format ",
                                                        FormatVersionString(), " of this build"));
    }
    bytes = bytes.subspan(padded);
  }
  return absl::OkStatus();
}

bool NeedsProfile(const CodecSide& side) {
  const ProfileUse use = UsesProfile(side);
  return use == ProfileUse::kToEncode || use == ProfileUse::kToDecode;
}

absl::Status ParseCodecs(const format::Header& header, Bytes section, Prefix* out) {
  size_t at = sizeof(header);
  for (uint32_t i = 0; i < header.codecs; ++i) {
    format::Codec entry;
    std::memcpy(&entry, section.data() + at, sizeof(entry));
    at += sizeof(entry);
    const CodecPair codec{FromFormat(entry.k), FromFormat(entry.v)};
    absl::Status status = CodecNameOf(codec.k, codec.v).status();
    if (!status.ok()) {
      return absl::FailedPreconditionError("part: coded by a codec that this build does not know");
    }
    status = CheckSide(codec.k, out->shape.dtype);
    status.Update(CheckSide(codec.v, out->shape.dtype));
    if (!status.ok()) {
      return Malformed(std::string(status.message()));
    }
    if (header.codec_profile == 0 && (NeedsProfile(codec.k) || NeedsProfile(codec.v))) {
      return Malformed("its codec needs a model profile, and none is named");
    }
    out->codecs.push_back(codec);
  }
  out->codec_profile = header.codec_profile;
  bool exact = true;
  for (uint32_t layer = 0; layer < header.layers; ++layer) {
    const uint8_t index = static_cast<uint8_t>(section[at + layer]);
    if (index >= header.codecs) {
      return Malformed("codec of a layer is not in the list");
    }
    out->layer_codec.push_back(index);
    exact = exact && out->codecs[index].exact(out->shape.dtype);
  }
  if (exact != (out->fidelity == Fidelity::kExact)) {
    return Malformed("fidelity does not agree with the codecs");
  }
  return ParseExtensions(section.subspan(at + AlignUp(header.layers, 8), header.extension_bytes));
}

absl::Status ParseHeader(Bytes section, Prefix* out) {
  format::Header header;
  std::memcpy(&header, section.data(), sizeof(header));
  std::memcpy(out->identity.fingerprint.bytes.data(), header.fingerprint, Fingerprint::kBytes);
  std::memcpy(out->identity.key.bytes.data(), header.key, BlockKey::kBytes);
  std::memcpy(out->identity.content_id.bytes.data(), header.content_id, ContentId::kBytes);
  out->identity.part = {header.group, header.shard};
  out->shape.dtype = static_cast<DType>(header.dtype);
  out->shape.layers = header.layers;
  out->shape.heads = header.heads;
  out->shape.k_head_dim = header.k_head_dim;
  out->shape.v_head_dim = header.v_head_dim;
  out->shape.tokens = header.tokens;
  TOKURA_RETURN_IF_ERROR(CheckShape(out->shape));
  out->fidelity = static_cast<Fidelity>(header.fidelity);
  if (out->fidelity == Fidelity::kSummary) {
    return absl::FailedPreconditionError("part: summaries are unknown to this build");
  }
  if (out->fidelity != Fidelity::kExact && out->fidelity != Fidelity::kQuantized) {
    return Malformed("unknown fidelity");
  }
  if (header.codecs == 0 || header.codecs > format::kCodecsMax) {
    return Malformed("impossible number of codecs");
  }
  if (header.extension_bytes > format::kHeaderBytesMax || header.extension_bytes % 8 != 0 ||
      SectionBytes(HeaderContent(header.layers, header.codecs, header.extension_bytes)) !=
          section.size()) {
    return Malformed("header length does not agree with its contents");
  }
  return ParseCodecs(header, section, out);
}

// The record at the start of `bytes`; sets its size.
absl::Status ParseRecord(Bytes bytes, Prefix* out, uint64_t* section_bytes) {
  format::Record record;
  if (bytes.size() < sizeof(record)) {
    return Malformed("truncated in the error record");
  }
  std::memcpy(&record, bytes.data(), sizeof(record));
  const bool measured = (record.flags & format::kRecordMeasured) != 0;
  const uint32_t layers = measured ? out->shape.layers : 0;
  *section_bytes = SectionBytes(RecordContent(layers));
  if (record.tag != format::kRecordTag || record.bytes != *section_bytes ||
      record.layers != layers) {
    return absl::DataLossError("part: error record does not agree with the header");
  }
  if (bytes.size() < *section_bytes) {
    return Malformed("truncated in the error record");
  }
  TOKURA_RETURN_IF_ERROR(CheckCrc(bytes.first(*section_bytes), "error record"));
  out->error.queries = record.queries;
  out->error.profile = record.profile;
  out->error.composed = (record.flags & format::kRecordComposed) != 0;
  out->error.measured = measured || out->fidelity == Fidelity::kExact;
  out->error.layers.resize(out->shape.layers);
  for (uint32_t i = 0; i < layers; ++i) {
    format::RecordLayer entry;
    std::memcpy(&entry, bytes.data() + sizeof(record) + i * sizeof(entry), sizeof(entry));
    if (!(entry.error >= 0 && entry.size >= 0 && std::isfinite(entry.size))) {
      return absl::DataLossError("part: error record holds an impossible sum");
    }
    out->error.layers[i] = {entry.error, entry.size};
  }
  return absl::OkStatus();
}

absl::Status ParseTable(Bytes bytes, Prefix* out, uint64_t* section_bytes) {
  format::Table table;
  *section_bytes = SectionBytes(TableContent(out->shape.layers));
  if (bytes.size() < *section_bytes) {
    return Malformed("truncated in the table");
  }
  std::memcpy(&table, bytes.data(), sizeof(table));
  if (table.tag != format::kTableTag || table.bytes != *section_bytes ||
      table.layers != out->shape.layers) {
    return absl::DataLossError("part: table does not agree with the header");
  }
  TOKURA_RETURN_IF_ERROR(CheckCrc(bytes.first(*section_bytes), "table"));
  out->table.resize(table.layers);
  std::memcpy(out->table.data(), bytes.data() + sizeof(table),
              out->table.size() * sizeof(format::TableLayer));
  uint64_t offset = 0;
  for (const format::TableLayer& layer : out->table) {
    if (layer.offset != offset || layer.bytes % format::kSectionAlignment != 0 ||
        layer.bytes < LayerHeaderBytes(out->shape.heads)) {
      return Malformed("impossible layer offset or size");
    }
    offset += layer.bytes;  // at most kLayersMax · 2^32
  }
  return absl::OkStatus();
}

}  // namespace

PrefixSizes PrefixSizesOf(uint32_t layers, uint32_t codecs, RecordKind record) {
  return {SectionBytes(HeaderContent(layers, codecs, 0)),
          SectionBytes(RecordContent(record == RecordKind::kPresent ? layers : 0)),
          SectionBytes(TableContent(layers))};
}

absl::Status CheckShape(const PartShape& shape) {
  const auto bad = [](const char* field, uint64_t value) {
    return absl::InvalidArgumentError(absl::StrCat("part: ", field, " is ", value));
  };
  if (DTypeBytes(shape.dtype) == 0) {
    return bad("dtype", static_cast<uint64_t>(shape.dtype));
  }
  if (shape.layers == 0 || shape.layers > format::kLayersMax) {
    return bad("layers", shape.layers);
  }
  if (shape.heads == 0 || shape.heads > format::kHeadsMax) {
    return bad("heads", shape.heads);
  }
  if (shape.k_head_dim == 0 || shape.k_head_dim > format::kHeadDimMax) {
    return bad("k_head_dim", shape.k_head_dim);
  }
  if (shape.v_head_dim > format::kHeadDimMax) {
    return bad("v_head_dim", shape.v_head_dim);
  }
  if (shape.tokens == 0 || shape.tokens > format::kTokensMax) {
    return bad("tokens", shape.tokens);
  }
  return absl::OkStatus();
}

void WritePrefix(const Prefix& prefix, RecordKind record, std::byte* out) {
  const PrefixSizes sizes =
      PrefixSizesOf(prefix.shape.layers, static_cast<uint32_t>(prefix.codecs.size()), record);
  WriteHeader(prefix, sizes.header, out);
  WriteRecord(prefix, record, sizes.record, out + sizes.header);
  WriteTable(prefix, sizes.table, out + sizes.header + sizes.record);
}

absl::StatusOr<ParsedPrefix> ParsePrefix(std::span<const std::byte> bytes) {
  ParsedPrefix parsed;
  TOKURA_ASSIGN_OR_RETURN(const Bytes header, HeaderSection(bytes));
  parsed.sizes.header = header.size();
  TOKURA_RETURN_IF_ERROR(ParseHeader(header, &parsed.prefix));
  bytes = bytes.subspan(header.size());
  TOKURA_RETURN_IF_ERROR(ParseRecord(bytes, &parsed.prefix, &parsed.sizes.record));
  bytes = bytes.subspan(parsed.sizes.record);
  TOKURA_RETURN_IF_ERROR(ParseTable(bytes, &parsed.prefix, &parsed.sizes.table));
  return parsed;
}

}  // namespace tokura::kernels
