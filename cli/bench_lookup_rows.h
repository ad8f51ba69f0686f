#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench.h"
#include "cli/statistics.h"
#include "common/time.h"

namespace tokura::cli {

// Indexes of these many blocks are measured.
inline constexpr uint64_t kLookupIndexes[] = {100'000, 1'000'000, 10'000'000};
// And the memory of these, on the way.
inline constexpr uint64_t kMemoryIndexes[] = {100'000,   200'000,   500'000,   1'000'000,
                                              2'000'000, 5'000'000, 10'000'000};
inline constexpr uint32_t kLookupKeys[] = {64, 1024, 16384};
// Redis is compared with up to this many keys.
inline constexpr uint64_t kRedisBlocksMax = 1'000'000;
// What the memory of an index is judged by, per block.
inline constexpr double kIndexBytesPerBlockMax = 100;

// "index1e6"; `blocks` is a digit with zeros.
std::string IndexName(uint64_t blocks);

// Turns lookups of so many keys in an index of so many blocks into rows. Thread-compatible.
class LookupRows {
 public:
  LookupRows(uint32_t keys, uint64_t blocks) : keys_(keys), blocks_(blocks) {}
  // "lookup/1024/index1e6"
  std::string name() const;

  // One lookup, and beside it what Redis took for the same keys; zero: there is no Redis.
  void Add(Duration lookup, Duration redis);
  // What the coordinator counted itself of some lookups: seconds of all, and how many.
  void AddServerTime(double seconds, double requests);
  size_t size() const { return pairs_.size() + alone_us_.size(); }
  // NAME in us; NAME/server in us and NAME/server/key in ns, as the coordinator counts.
  std::vector<BenchRow> Rows() const;

 private:
  const uint32_t keys_;
  const uint64_t blocks_;
  PairedSamples pairs_;
  std::vector<double> alone_us_;
  std::vector<double> server_us_;
};

// Give the rows …/server/key of larger indexes that of the smallest one among `rows` as a bound.
void CompareServerTimes(std::vector<BenchRow>* rows);

// lookup/memory/indexN, by the index's own account, and …/resident, by which the process has grown:
// with its buffers, which show where the index is small.
struct IndexMemory {
  double index_bytes = 0;
  double resident_bytes = 0;
};
std::vector<BenchRow> MemoryRows(uint64_t blocks, const IndexMemory& memory);

// What people read besides the table: memory over the sizes as a plot, and how to get the bounds
// that are missing.
std::string LookupText(const std::vector<BenchRow>& rows);

}  // namespace tokura::cli
