#include "cli/bench_codec.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/bench_codec_bed.h"
#include "cli/statistics.h"
#include "common/status_macros.h"
#include "common/time.h"
#include "kernels/codec.h"

namespace tokura::cli {
namespace {

constexpr size_t kPairsMin = 15;
constexpr size_t kPairsMax = 200;
constexpr size_t kChunkBlocks = 8;  // of one measurement
// Blocks of a buffer that differ, and are encoded one by one; the others are copies. The first of a
// sequence has sinks.
constexpr size_t kDistinct = 4;
constexpr Duration kRowTime = std::chrono::seconds(2);
// Without --seconds everything ends within four minutes, slow rows included.
constexpr Duration kTimeMax = std::chrono::seconds(200);

enum class Kind { kEncode, kDecode, kRecord, kHotRecord };
constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::kEncode, "encode"},
                                                   {Kind::kDecode, "decode"},
                                                   {Kind::kRecord, "record"},
                                                   {Kind::kHotRecord, "record_hot"}};

std::string RowName(const char* kind, std::string_view preset) {
  return absl::StrCat("codec/cpu/", kind, "/", std::string(preset));
}

// A block as a mid-sized model has it, 2 MiB raw in 16 bits; where the last channels of K are kept
// apart, as a model with a latent instead of K and V has it.
kernels::PartShape ShapeFor(const kernels::CodecPreset& preset, DType dtype) {
  kernels::PartShape shape;
  shape.dtype = dtype;
  shape.tokens = 64;
  shape.layers = preset.k.tail != 0 ? 32 : 8;
  shape.heads = preset.k.tail != 0 ? 1 : 8;
  shape.k_head_dim = preset.k.tail != 0 ? 512 + preset.k.tail : 128;
  shape.v_head_dim = preset.k.tail != 0 ? 0 : 128;
  return shape;
}

// Blocks per buffer, so that the three buffers together are well beyond the last cache level.
size_t BlocksPerBuffer(const kernels::PartShape& shape) {
  constexpr size_t kMin = size_t{128} << 20;
  constexpr size_t kMax = size_t{512} << 20;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp(static_cast<size_t>(std::max(cache, 0L)), kMin, kMax) / BedBlockBytes(shape);
}

double GigabytesPerSecond(size_t bytes, Duration time) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(time.count(), 1));
}

// ‖b − a‖ / ‖a‖
double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(b[i]) - a[i]) * (static_cast<double>(b[i]) - a[i]);
    size += static_cast<double>(a[i]) * a[i];
  }
  return std::sqrt(difference / size);
}

// Far more than a working codec errs: four steps of its coarser side at full scale.
double ErrorLimit(const kernels::CodecPreset& preset) {
  double limit = 0;
  for (const kernels::CodecSide& side : {preset.k, preset.v}) {
    const double here = side.raw()                                ? 0
                        : side.number == kernels::Number::kFloat8 ? 0.06
                                                                  : std::ldexp(4.0, -side.bits);
    limit = std::max(limit, here);
  }
  return limit;
}

using Work = std::function<absl::Status(size_t block)>;

// What blocks of one shape are measured in.
struct Bed {
  Bed(const kernels::PartShape& shape, BedLayout layout)
      : shape(shape),
        blocks(BlocksPerBuffer(shape)),
        source(shape, layout, blocks),
        target(shape, layout, blocks),
        profile(shape.k_head_dim, shape.v_head_dim) {
    // Every page of the buffers is written, so that none is the system's shared zero page.
    for (size_t block = 0; block < blocks; ++block) {
      if (block < kDistinct) {
        source.FillBlock(block, block);
      } else {
        std::memcpy(source.Block(block).data(), source.Block(block % kDistinct).data(),
                    BedBlockBytes(shape));
      }
    }
    std::memset(target.bytes().data(), 0x11, target.bytes().size());
  }
  kernels::PartShape shape;
  size_t blocks;
  BedPages source;
  BedPages target;
  BedProfile profile;
};

// One preset: its encoded blocks, and the work that is measured.
class PresetBench {
 public:
  PresetBench(const Bed& bed, const kernels::CodecPreset& preset) : bed_(bed), preset_(preset) {
    encode_.codec = std::string(preset.name);
    encode_.record = kernels::EncodeOptions::Record::kSkip;
    encode_.profiles = &bed.profile;
    encode_.profile = bed.profile.id();
  }

  // Encode the whole source, and verify what comes out.
  absl::Status Prepare() {
    TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, kernels::PartBytesMax(bed_.shape, encode_));
    slot_bytes_ = bytes_max + kernels::kPartAlignment - 1;
    slot_bytes_ -= slot_bytes_ % kernels::kPartAlignment;
    slots_ = std::make_unique<PartBuffer>(bed_.blocks * slot_bytes_);
    part_bytes_.resize(bed_.blocks);
    for (size_t block = 0; block < bed_.blocks; ++block) {
      if (block < 2 * kDistinct) {
        TOKURA_ASSIGN_OR_RETURN(part_bytes_[block], Encode(block, encode_, Slot(block)));
        continue;
      }
      const size_t like = kDistinct + block % kDistinct;
      std::memcpy(Slot(block).data(), Slot(like).data(), slot_bytes_);
      part_bytes_[block] = part_bytes_[like];
    }
    return Verify();
  }

  Work WorkOf(Kind kind) const {
    if (kind == Kind::kDecode) {
      return [this](size_t block) { return Decode(block); };
    }
    kernels::EncodeOptions options = encode_;
    if (kind != Kind::kEncode) {
      options.record = kernels::EncodeOptions::Record::kMeasure;
      options.record_queries = kind == Kind::kRecord ? 0 : kernels::kHotRecordQueries;
    }
    return [this, options](size_t block) { return Encode(block, options, Slot(block)).status(); };
  }
  Work BoundOf(Kind kind) const {
    if (kind == Kind::kRecord || kind == Kind::kHotRecord) {
      return WorkOf(Kind::kEncode);
    }
    return [this](size_t block) {
      std::memcpy(bed_.target.Block(block).data(), bed_.source.Block(block).data(),
                  BedBlockBytes(bed_.shape));
      return absl::OkStatus();
    };
  }

 private:
  std::span<std::byte> Slot(size_t block) const {
    return slots_->bytes().subspan(block * slot_bytes_, slot_bytes_);
  }

  absl::StatusOr<size_t> Encode(size_t block, kernels::EncodeOptions options,
                                std::span<std::byte> out) const {
    options.block_position = static_cast<uint32_t>(block);
    kernels::PartEncoder::Source source;
    source.view = &bed_.source.view();
    source.first_token = static_cast<uint32_t>(block) * bed_.shape.tokens;
    TOKURA_ASSIGN_OR_RETURN(
        kernels::PartEncoder encoder,
        kernels::PartEncoder::Create(kernels::PartIdentity{}, bed_.shape, source, options, out));
    while (!encoder.done()) {
      encoder.EncodeLayer();
    }
    if (encoder.raw_fallback_layers() != 0) {
      return absl::DataLossError(absl::StrCat(encode_.codec, " stored layers raw"));
    }
    return encoder.Finish();
  }

  absl::Status Decode(size_t block) const {
    const auto part = Slot(block).first(part_bytes_[block]);
    TOKURA_ASSIGN_OR_RETURN(const kernels::PartReader reader,
                            kernels::PartReader::Open(part, &bed_.profile));
    const kernels::PartInfo& info = reader.info();
    for (uint32_t layer = 0; layer < info.shape.layers; ++layer) {
      const auto stored = part.subspan(info.layer_offset[layer],
                                       info.layer_offset[layer + 1] - info.layer_offset[layer]);
      TOKURA_RETURN_IF_ERROR(reader.VerifyLayer(layer, stored));
      kernels::PartReader::Target target;
      target.view = &bed_.target.view();
      target.view_layer = layer;
      target.first_token = static_cast<uint32_t>(block) * bed_.shape.tokens;
      TOKURA_RETURN_IF_ERROR(reader.DecodeLayer(layer, stored, target));
    }
    return absl::OkStatus();
  }

  absl::Status Verify() const {
    const PartBuffer again(slot_bytes_);
    for (const size_t block : {size_t{0}, 2 * kDistinct - 1}) {
      const auto part = Slot(block).first(part_bytes_[block]);
      TOKURA_ASSIGN_OR_RETURN(const size_t bytes, Encode(block, encode_, again.bytes()));
      if (bytes != part.size() || std::memcmp(again.bytes().data(), part.data(), bytes) != 0) {
        return absl::DataLossError(absl::StrCat(encode_.codec, " gave other bytes a second time"));
      }
      TOKURA_RETURN_IF_ERROR(Decode(block));
      const double error = RelativeDifference(bed_.source.Values(block), bed_.target.Values(block));
      if (!(error <= ErrorLimit(preset_))) {
        return absl::DataLossError(
            absl::StrCat(encode_.codec, " decodes with a relative error of ", error));
      }
    }
    return absl::OkStatus();
  }

  const Bed& bed_;
  const kernels::CodecPreset& preset_;
  kernels::EncodeOptions encode_;
  size_t slot_bytes_ = 0;
  std::unique_ptr<PartBuffer> slots_;
  std::vector<size_t> part_bytes_;
};

absl::StatusOr<Duration> TimeChunk(const Work& work, size_t first, size_t count, size_t blocks) {
  const TimePoint start = SystemClock().Now();
  for (size_t i = 0; i < count; ++i) {
    TOKURA_RETURN_IF_ERROR(work((first + i) % blocks));
  }
  return SystemClock().Now() - start;
}

// Work and bound in turn, each on blocks that neither has touched for half a buffer, so that both
// find their bytes out of cache.
absl::StatusOr<PairedSamples> MeasurePairs(const Bed& bed, const Work& work, const Work& bound,
                                           Duration row_time) {
  PairedSamples samples;
  size_t chunk = kChunkBlocks;
  const TimePoint start = SystemClock().Now();
  TOKURA_ASSIGN_OR_RETURN(const Duration warm_up, TimeChunk(work, 0, 1, bed.blocks));
  // A slow row takes smaller chunks, so that its pairs fit into its time.
  while (chunk > 1 && warm_up * static_cast<int64_t>(chunk * kPairsMin) > row_time) {
    chunk /= 2;
  }
  const size_t bytes = chunk * BedBlockBytes(bed.shape);
  size_t next = chunk;
  while (samples.size() < kPairsMin ||
         (samples.size() < kPairsMax && SystemClock().Now() - start < row_time)) {
    const size_t other = (next + bed.blocks / 2) % bed.blocks;
    Duration bound_time{0};
    const bool bound_first = samples.size() % 2 == 1;
    if (bound_first) {
      TOKURA_ASSIGN_OR_RETURN(bound_time, TimeChunk(bound, other, chunk, bed.blocks));
    }
    TOKURA_ASSIGN_OR_RETURN(const Duration work_time, TimeChunk(work, next, chunk, bed.blocks));
    if (!bound_first) {
      TOKURA_ASSIGN_OR_RETURN(bound_time, TimeChunk(bound, other, chunk, bed.blocks));
    }
    samples.Add({.value = GigabytesPerSecond(bytes, work_time),
                 .bound = GigabytesPerSecond(bytes, bound_time)});
    next = (next + chunk) % bed.blocks;
  }
  return samples;
}

struct PresetRows {
  const kernels::CodecPreset* preset;
  std::vector<std::pair<Kind, std::string>> rows;
};

// The rows asked for, by preset. A preset whose decoding gives back what was there has no error.
std::vector<PresetRows> SelectRows(const BenchOptions& options, DType dtype) {
  std::vector<PresetRows> selected;
  for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
    PresetRows rows{&preset, {}};
    const bool exact = preset.k.exact(dtype) && preset.v.exact(dtype);
    for (const auto& [kind, name] : kKinds) {
      const bool record = kind == Kind::kRecord || kind == Kind::kHotRecord;
      if (!(record && exact) && Selected(options, RowName(name, preset.name))) {
        rows.rows.emplace_back(kind, RowName(name, preset.name));
      }
    }
    if (!rows.rows.empty()) {
      selected.push_back(std::move(rows));
    }
  }
  return selected;
}

}  // namespace

absl::StatusOr<std::vector<BenchRow>> BenchCodec(const BenchOptions& options,
                                                 const CodecBenchOptions& codec_options) {
  const DType dtype = codec_options.dtype == "float32"    ? DType::kFloat32
                      : codec_options.dtype == "bfloat16" ? DType::kBFloat16
                                                          : DType::kFloat16;
  const BedLayout layout = codec_options.layout == "token-major"     ? BedLayout::kTokenMajor
                           : codec_options.layout == "channel-major" ? BedLayout::kChannelMajor
                                                                     : BedLayout::kHeadMajor;
  const std::vector<PresetRows> selected = SelectRows(options, dtype);
  int rows = 0;
  for (const PresetRows& of_preset : selected) {
    rows += static_cast<int>(of_preset.rows.size());
  }
  if (rows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no row begins with '", options.filter,
        "'; rows are codec/cpu/{encode,decode,record,record_hot}/PRESET (tokura codec list)"));
  }
  const Duration row_time = std::min(options.seconds.value_or(kTimeMax) / rows,
                                     options.seconds.has_value() ? Duration::max() : kRowTime);
  std::unique_ptr<Bed> bed;
  std::vector<BenchRow> results;
  for (const PresetRows& of_preset : selected) {
    const kernels::PartShape shape = ShapeFor(*of_preset.preset, dtype);
    options.progress(of_preset.rows.front().second);
    if (bed == nullptr || bed->shape != shape) {
      bed.reset();
      bed = std::make_unique<Bed>(shape, layout);
    }
    PresetBench bench(*bed, *of_preset.preset);
    TOKURA_RETURN_IF_ERROR(bench.Prepare());
    for (const auto& [kind, name] : of_preset.rows) {
      options.progress(name);
      TOKURA_ASSIGN_OR_RETURN(
          const PairedSamples samples,
          MeasurePairs(*bed, bench.WorkOf(kind), bench.BoundOf(kind), row_time));
      const bool record = kind == Kind::kRecord || kind == Kind::kHotRecord;
      results.push_back(samples.Row(
          name, "GB/s", record ? "encoding without the record" : "memcpy of the raw bytes"));
    }
  }
  return results;
}

}  // namespace tokura::cli
