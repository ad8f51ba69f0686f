#include "tests/quality/quality_codec.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kernels/codec.h"
#include "kernels/part.h"
#include "kernels/profile.h"

namespace tokura {
namespace {

constexpr std::align_val_t kAlignment{kernels::kPartAlignment};

struct Free {
  void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

// Arrays of one direction.
struct Arrays {
  std::byte* k;
  std::byte* v;
};

// The one profile of a call, or none.
class CallProfile final : public kernels::ProfileSource {
 public:
  static absl::StatusOr<CallProfile> Read(const std::string& path) {
    CallProfile result;
    if (!path.empty()) {
      TOKURA_ASSIGN_OR_RETURN(result.profile_, kernels::Profile::Read(path));
    }
    return result;
  }
  uint64_t id() const { return profile_ == nullptr ? 0 : profile_->id(); }
  std::shared_ptr<const kernels::ModelProfile> Find(uint64_t id) const override {
    return id == this->id() ? profile_ : nullptr;
  }

 private:
  std::shared_ptr<const kernels::Profile> profile_;  // owners: this and the call's encoders
};

// What all blocks of a call have in common.
struct Job {
  const TokuraQualityOptions& options;
  Arrays in;
  Arrays out;
  kernels::EncodeOptions encode;  // but for the block's position
};

// The blocks' sums, in an order that threads do not change.
struct BlockResult {
  uint64_t part_bytes = 0;
  uint64_t layer_bytes = 0;
  uint32_t layers_raw = 0;
  uint32_t hash = 0;
};

kernels::KvView ViewOf(const Job& job, const Arrays& arrays, uint32_t sequence) {
  const TokuraQualityOptions& options = job.options;
  const size_t sequence_bytes =
      size_t{options.heads} * options.tokens * options.head_dim * sizeof(uint16_t);
  std::vector<kernels::KvLayer> layers;
  for (uint32_t i = 0; i < options.group_layers; ++i) {
    const size_t at = (size_t{options.layers[i]} * options.sequences + sequence) * sequence_bytes;
    layers.push_back({arrays.k + at, arrays.v + at});
  }
  return kernels::ContiguousView(DType::kFloat16, options.heads, options.head_dim, options.tokens,
                                 std::move(layers));
}

kernels::PartShape ShapeOf(const TokuraQualityOptions& options) {
  kernels::PartShape shape;
  shape.dtype = DType::kFloat16;
  shape.layers = options.group_layers;
  shape.heads = options.heads;
  shape.k_head_dim = options.head_dim;
  shape.v_head_dim = options.head_dim;
  shape.tokens = options.block_tokens;
  return shape;
}

absl::Status Decode(const kernels::PartReader& reader, std::span<const std::byte> part,
                    const kernels::KvView& to, uint32_t first_token, BlockResult* result) {
  const kernels::PartInfo& info = reader.info();
  for (uint32_t layer = 0; layer < info.shape.layers; ++layer) {
    const auto stored = part.subspan(info.layer_offset[layer],
                                     info.layer_offset[layer + 1] - info.layer_offset[layer]);
    TOKURA_RETURN_IF_ERROR(reader.VerifyLayer(layer, stored));
    kernels::PartReader::Target target;
    target.view = &to;
    target.view_layer = layer;
    target.first_token = first_token;
    TOKURA_RETURN_IF_ERROR(reader.DecodeLayer(layer, stored, target));
  }
  const auto layers = part.subspan(info.prefix_bytes);
  result->layer_bytes = layers.size();
  result->hash = Crc32c(layers);
  return absl::OkStatus();
}

absl::StatusOr<BlockResult> RoundTrip(const Job& job, uint32_t sequence, uint32_t block,
                                      std::span<std::byte> buffer) {
  const TokuraQualityOptions& options = job.options;
  const kernels::KvView from = ViewOf(job, job.in, sequence);
  const kernels::KvView to = ViewOf(job, job.out, sequence);
  kernels::PartIdentity identity;
  identity.part.group = static_cast<uint8_t>(options.group);
  kernels::PartEncoder::Source source;
  source.view = &from;
  source.first_token = block * options.block_tokens;
  kernels::EncodeOptions encode = job.encode;
  encode.block_position = options.first_block + block;
  TOKURA_ASSIGN_OR_RETURN(
      kernels::PartEncoder encoder,
      kernels::PartEncoder::Create(identity, ShapeOf(options), source, encode, buffer));
  while (!encoder.done()) {
    encoder.EncodeLayer();
  }
  BlockResult result;
  result.part_bytes = encoder.Finish();
  result.layers_raw = encoder.raw_fallback_layers();
  const auto part = std::span<const std::byte>(buffer).first(result.part_bytes);
  TOKURA_ASSIGN_OR_RETURN(const kernels::PartReader reader,
                          kernels::PartReader::Open(part, job.encode.profiles));
  TOKURA_RETURN_IF_ERROR(Decode(reader, part, to, source.first_token, &result));
  return result;
}

// Takes blocks until none is left. Thread-safe but for `results`, of which each block has its own.
class Worker {
 public:
  Worker(const Job& job, size_t part_bytes_max, std::span<BlockResult> results)
      : job_(job), part_bytes_max_(part_bytes_max), results_(results) {}

  void Run() {
    Buffer buffer(static_cast<std::byte*>(::operator new(part_bytes_max_, kAlignment)));
    const uint32_t blocks = job_.options.tokens / job_.options.block_tokens;
    for (size_t i = next_++; i < results_.size(); i = next_++) {
      auto result = RoundTrip(job_, static_cast<uint32_t>(i / blocks),
                              static_cast<uint32_t>(i % blocks), {buffer.get(), part_bytes_max_});
      if (result.ok()) {
        results_[i] = *result;
      } else {
        const std::lock_guard lock(mutex_);
        status_ = result.status();
      }
    }
  }
  const absl::Status& status() const { return status_; }  // once no thread runs

 private:
  const Job& job_;
  const size_t part_bytes_max_;
  const std::span<BlockResult> results_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  absl::Status status_;
};

kernels::EncodeOptions EncodeOptionsOf(const TokuraQualityOptions& options,
                                       const CallProfile& profile) {
  kernels::EncodeOptions encode;
  encode.codec = options.codec;
  encode.sink_tokens = options.sink_tokens;
  encode.record_queries = 1;  // a record of any number of queries has the same size
  for (uint32_t layer = 0; layer < options.group_layers; ++layer) {
    if (options.edge[layer] != 0) {
      encode.layer_codecs.push_back({layer, options.edge_codec});
    }
  }
  encode.profiles = &profile;
  encode.profile = profile.id();
  return encode;
}

absl::Status RoundTripAll(const Job& job, TokuraQualityResult* result) {
  const TokuraQualityOptions& options = job.options;
  if (options.block_tokens == 0 || options.tokens % options.block_tokens != 0) {
    return absl::InvalidArgumentError("tokens is no multiple of block_tokens");
  }
  TOKURA_ASSIGN_OR_RETURN(const size_t part_bytes_max,
                          kernels::PartBytesMax(ShapeOf(options), job.encode));
  const size_t blocks = size_t{options.sequences} * (options.tokens / options.block_tokens);
  std::vector<BlockResult> results(blocks);
  Worker worker(job, part_bytes_max, results);
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < std::max(1u, options.threads); ++i) {
    threads.emplace_back([&worker] { worker.Run(); });
  }
  worker.Run();
  for (std::thread& thread : threads) {
    thread.join();
  }
  TOKURA_RETURN_IF_ERROR(worker.status());
  for (const BlockResult& block : results) {
    result->part_bytes += block.part_bytes;
    result->layer_bytes += block.layer_bytes;
    result->layers_raw += block.layers_raw;
    result->layers_hash = result->layers_hash * 0x9E3779B97F4A7C15u + block.hash;
  }
  return absl::OkStatus();
}

std::byte* Bytes(const uint16_t* values) {
  return reinterpret_cast<std::byte*>(const_cast<uint16_t*>(values));
}

absl::Status Call(const TokuraQualityOptions& options, const Arrays& in, const Arrays& out,
                  TokuraQualityResult* result) {
  TOKURA_ASSIGN_OR_RETURN(const CallProfile profile, CallProfile::Read(options.profile_path));
  return RoundTripAll(Job{options, in, out, EncodeOptionsOf(options, profile)}, result);
}

}  // namespace
}  // namespace tokura

extern "C" int tokura_quality_round_trip(const TokuraQualityOptions* options, const uint16_t* k,
                                         const uint16_t* v, uint16_t* k_out, uint16_t* v_out,
                                         TokuraQualityResult* result) {
  using namespace tokura;
  std::memset(result, 0, sizeof(*result));
  const absl::Status status =
      Call(*options, {Bytes(k), Bytes(v)}, {Bytes(k_out), Bytes(v_out)}, result);
  std::snprintf(result->message, sizeof(result->message), "%s", status.ToString().c_str());
  return status.ok() ? 0 : -1;
}

extern "C" const char* tokura_quality_presets() {
  static const std::string names = [] {
    std::string all;
    for (const tokura::kernels::CodecPreset& preset : tokura::kernels::CodecPresets()) {
      all += (all.empty() ? "" : " ") + std::string(preset.name);
    }
    return all;
  }();
  return names.c_str();
}
