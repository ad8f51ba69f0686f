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
#include "cli/block_pages.h"
#include "cli/judge.h"
#include "cli/local_codec.h"
#include "cli/statistics.h"
#include "common/status_macros.h"
#include "common/time.h"
#include "kernels/codec.h"
#include "kernels/float_convert.h"

namespace tokura::cli {
namespace {

// A block as a mid-sized model has it: 2 MiB raw.
constexpr PagesShape kShape{.layers = 8, .heads = 8, .head_dim = 128, .block_tokens = 64};
constexpr size_t kBlockBytes = kShape.BlockBytes();
constexpr size_t kPairsMin = 15;
constexpr size_t kPairsMax = 200;
constexpr size_t kChunkBlocks = 8;  // of one measurement
constexpr Duration kRowTime = std::chrono::seconds(2);
// Without --seconds everything ends within four minutes, slow rows included.
constexpr Duration kTimeMax = std::chrono::seconds(200);

// Blocks per buffer, so that the three buffers together are well beyond the last cache level.
size_t BlocksPerBuffer() {
  constexpr size_t kMin = size_t{128} << 20;
  constexpr size_t kMax = size_t{512} << 20;
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp(static_cast<size_t>(std::max(cache, 0L)), kMin, kMax) / kBlockBytes;
}

// Values as keys have them: every channel with a mean of its own, a few of them large. The sum of
// three uniform numbers stands in for a Gaussian.
void FillBlock(std::span<std::byte> block, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
  const auto uniform = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(state >> 40) / static_cast<float>(1 << 24) - 0.5F;
  };
  for (size_t i = 0; i < block.size() / sizeof(uint16_t); ++i) {
    const size_t channel = i % kShape.head_dim;
    const float mean = channel % 32 == 5 ? 6.0F : 0.25F * static_cast<float>(channel % 7);
    const uint16_t half = kernels::FloatToHalf(mean + 2.0F * (uniform() + uniform() + uniform()));
    std::memcpy(block.data() + i * sizeof(half), &half, sizeof(half));
  }
}

double GigabytesPerSecond(size_t bytes, Duration time) {
  return static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(time.count(), 1));
}

class CodecBench {
 public:
  explicit CodecBench(const BenchOptions& options)
      : options_(options),
        ns_(std::make_shared<const Namespace>(PagesNamespace(kShape, "default", "bench"))),
        blocks_(BlocksPerBuffer()),
        source_(kShape, blocks_),
        target_(kShape, blocks_) {}

  absl::StatusOr<std::vector<BenchRow>> Run() {
    std::vector<std::pair<std::string, std::string>> rows;  // kind, preset
    for (const kernels::CodecPreset& preset : kernels::CodecPresets()) {
      for (const char* kind : {"encode", "decode", "record"}) {
        if (Selected(options_, RowName(kind, std::string(preset.name)))) {
          rows.emplace_back(kind, preset.name);
        }
      }
    }
    if (rows.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no row begins with '", options_.filter,
                       "'; rows are codec/cpu/"
                       "{encode,decode,record}/PRESET (tokura codec list)"));
    }
    row_time_ = std::min(options_.seconds.value_or(kTimeMax) / static_cast<int>(rows.size()),
                         options_.seconds.has_value() ? Duration::max() : kRowTime);
    Fill();
    std::vector<BenchRow> results;
    for (const auto& [kind, preset] : rows) {
      options_.progress(RowName(kind, preset));
      TOKURA_RETURN_IF_ERROR(Prepare(preset));
      TOKURA_ASSIGN_OR_RETURN(BenchRow row, Measure(kind, preset));
      results.push_back(std::move(row));
    }
    return results;
  }

 private:
  static std::string RowName(const std::string& kind, const std::string& preset) {
    return absl::StrCat("codec/cpu/", kind, "/", preset);
  }

  // Every page of the buffers is written, so that none is the kernel's shared zero page.
  void Fill() {
    constexpr size_t kDistinct = 4;
    for (size_t block = 0; block < blocks_; ++block) {
      if (block < kDistinct) {
        FillBlock(source_.Block(block), block);
      } else {
        std::memcpy(source_.Block(block).data(), source_.Block(block % kDistinct).data(),
                    kBlockBytes);
      }
    }
    std::memset(target_.bytes().data(), 0xff, target_.bytes().size());
  }

  BlockPart PartOf(size_t block) const {
    return {ns_, 0, static_cast<uint32_t>(block), BlockKey{}};
  }
  std::span<std::byte> Slot(size_t block) const {
    return slots_->bytes().subspan(block * slot_bytes_, slot_bytes_);
  }

  // Encode the whole source with `preset`, and verify what comes out. Nothing to do when the last
  // row had the same preset.
  absl::Status Prepare(const std::string& preset) {
    if (preset == prepared_) {
      return absl::OkStatus();
    }
    encode_.codec = preset;
    encode_.record = kernels::EncodeOptions::Record::kSkip;
    TOKURA_ASSIGN_OR_RETURN(const size_t bytes_max, EncodedPartBytesMax(PartOf(0), preset));
    slot_bytes_ = bytes_max + kernels::kPartAlignment - 1;
    slot_bytes_ -= slot_bytes_ % kernels::kPartAlignment;
    slots_ = std::make_unique<PartBuffer>(blocks_ * slot_bytes_);
    part_bytes_.resize(blocks_);
    for (size_t block = 0; block < blocks_; ++block) {
      TOKURA_ASSIGN_OR_RETURN(part_bytes_[block],
                              EncodePart(PartOf(block), encode_, source_.view(), Slot(block)));
    }
    prepared_ = preset;
    return Verify(preset);
  }

  absl::Status Verify(const std::string& preset) {
    TOKURA_ASSIGN_OR_RETURN(const kernels::CodecPreset codec, kernels::FindCodec(preset));
    const PartBuffer again(slot_bytes_);
    for (const size_t block : {size_t{0}, blocks_ / 2, blocks_ - 1}) {
      const auto part = Slot(block).first(part_bytes_[block]);
      TOKURA_ASSIGN_OR_RETURN(const size_t bytes,
                              EncodePart(PartOf(block), encode_, source_.view(), again.bytes()));
      if (bytes != part.size() || std::memcmp(again.bytes().data(), part.data(), bytes) != 0) {
        return absl::DataLossError(absl::StrCat(preset, " gave other bytes the second time"));
      }
      TOKURA_RETURN_IF_ERROR(DecodePart(PartOf(block), part, target_.view()).status());
      const double error =
          ValueDifference(Values(source_, block), Values(target_, block)).Relative();
      const int bits = std::min(codec.k.number == kernels::Number::kRaw ? 16 : codec.k.bits,
                                codec.v.number == kernels::Number::kRaw ? 16 : codec.v.bits);
      // Four steps of the coarser side at full scale: far more than a working codec errs.
      const double limit = bits == 16 ? 0 : std::ldexp(4.0, -bits);
      if (!(error <= limit)) {
        return absl::DataLossError(
            absl::StrCat(preset, " decodes with a relative error of ", error));
      }
    }
    return absl::OkStatus();
  }

  static std::span<const uint16_t> Values(const BlockPages& pages, size_t block) {
    const auto bytes = pages.Block(block);
    return {reinterpret_cast<const uint16_t*>(bytes.data()), bytes.size() / sizeof(uint16_t)};
  }

  using Work = std::function<absl::Status(size_t block)>;

  absl::StatusOr<BenchRow> Measure(const std::string& kind, const std::string& preset) {
    kernels::EncodeOptions encode = encode_;
    if (kind == "record") {
      encode.record = kernels::EncodeOptions::Record::kMeasure;
    }
    const Work work =
        kind == "decode"
            ? Work([this](size_t block) {
                return DecodePart(PartOf(block), Slot(block).first(part_bytes_[block]),
                                  target_.view())
                    .status();
              })
            : Work([this, &encode](size_t block) {
                return EncodePart(PartOf(block), encode, source_.view(), Slot(block)).status();
              });
    const Work copy = [this](size_t block) {
      std::memcpy(target_.Block(block).data(), source_.Block(block).data(), kBlockBytes);
      return absl::OkStatus();
    };
    TOKURA_ASSIGN_OR_RETURN(const PairedSamples samples, MeasurePairs(work, copy));
    return samples.Row(RowName(kind, preset), "GB/s", "memcpy of the raw bytes");
  }

  // Work and copy in turn, each on blocks that neither has touched for half a buffer, so that both
  // find their bytes out of cache.
  absl::StatusOr<PairedSamples> MeasurePairs(const Work& work, const Work& copy) {
    PairedSamples samples;
    size_t chunk = kChunkBlocks;
    const TimePoint start = SystemClock().Now();
    TOKURA_ASSIGN_OR_RETURN(const Duration warm_up, TimeChunk(work, 0, 1));
    // A slow row takes smaller chunks, so that its pairs fit into its time.
    while (chunk > 1 && warm_up * static_cast<int64_t>(chunk * kPairsMin) > row_time_) {
      chunk /= 2;
    }
    size_t next = chunk;
    while (samples.size() < kPairsMin ||
           (samples.size() < kPairsMax && SystemClock().Now() - start < row_time_)) {
      const size_t other = (next + blocks_ / 2) % blocks_;
      Duration copy_time{0};
      const bool copy_first = samples.size() % 2 == 1;
      if (copy_first) {
        TOKURA_ASSIGN_OR_RETURN(copy_time, TimeChunk(copy, other, chunk));
      }
      TOKURA_ASSIGN_OR_RETURN(const Duration work_time, TimeChunk(work, next, chunk));
      if (!copy_first) {
        TOKURA_ASSIGN_OR_RETURN(copy_time, TimeChunk(copy, other, chunk));
      }
      samples.Add({.value = GigabytesPerSecond(chunk * kBlockBytes, work_time),
                   .bound = GigabytesPerSecond(chunk * kBlockBytes, copy_time)});
      next = (next + chunk) % blocks_;
    }
    return samples;
  }

  absl::StatusOr<Duration> TimeChunk(const Work& work, size_t first, size_t count) {
    const TimePoint start = SystemClock().Now();
    for (size_t i = 0; i < count; ++i) {
      TOKURA_RETURN_IF_ERROR(work((first + i) % blocks_));
    }
    return SystemClock().Now() - start;
  }

  const BenchOptions& options_;
  const NamespaceRef ns_;
  const size_t blocks_;
  const BlockPages source_;
  const BlockPages target_;
  kernels::EncodeOptions encode_;
  std::string prepared_;
  size_t slot_bytes_ = 0;
  std::unique_ptr<PartBuffer> slots_;
  std::vector<size_t> part_bytes_;
  Duration row_time_{0};
};

}  // namespace

absl::StatusOr<std::vector<BenchRow>> BenchCodec(const BenchOptions& options) {
  return CodecBench(options).Run();
}

}  // namespace tokura::cli
