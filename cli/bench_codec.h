#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"

namespace tokura::cli {

struct CodecBenchOptions {
  std::string dtype = "float16";      // float32, float16 or bfloat16
  std::string layout = "head-major";  // token-major, or channel-major for K (vLLM's CPU backend)
};

// Rows codec/cpu/{encode,decode}/PRESET: raw bytes a second on one core, out of cache, next to
// memcpy of the raw bytes in the same buffers; encoding without the error record, decoding with the
// check of its CRC. Rows codec/cpu/{record,record_hot}/PRESET: encoding with the record, with the
// default number of queries and with that of hot ingest, next to encoding without. Results are
// verified first. Statuses: see Bench.
absl::StatusOr<std::vector<BenchRow>> BenchCodec(const BenchOptions& options,
                                                 const CodecBenchOptions& codec_options);

}  // namespace tokura::cli
