#include "cli/bench_lookup.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_bed.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/bench_lookup_growth.h"
#include "cli/bench_lookup_inventory.h"
#include "cli/bench_lookup_rate.h"
#include "cli/bench_lookup_redis.h"
#include "cli/bench_lookup_rows.h"
#include "cli/cpu_pin.h"
#include "cli/statistics.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

// For all rows, what filling the indexes takes included.
constexpr Duration kTimeMax = std::chrono::seconds(200);
constexpr uint32_t kPairsMin = 15;
constexpr uint32_t kPairsMax = 200;
constexpr uint32_t kPairsPerScrape = 3;
constexpr uint32_t kKeysPerSample = 4096;  // short lookups are repeated: their median is a sample
constexpr uint64_t kRateBlocks = 1'000'000;
constexpr Duration kRateTimeMax = std::chrono::seconds(5);
constexpr uint64_t kInventoryBlocks = 100'000;  // that lookups find meanwhile

// Whether the filter asks for a row of this name, or for one that is printed below it.
bool Wanted(const BenchOptions& options, const std::string& name) {
  return Selected(options, name) || options.filter.starts_with(name + "/");
}

std::string MemoryName(uint64_t blocks) {
  return absl::StrCat("lookup/memory/", IndexName(blocks));
}

class LookupBench {
 public:
  explicit LookupBench(const BenchOptions& options)
      : options_(options), end_(SystemClock().Now() + options.seconds.value_or(kTimeMax)) {
    for (const uint64_t blocks : kLookupIndexes) {
      for (const uint32_t keys : kLookupKeys) {
        rows_left_ += Wanted(options, LookupRows(keys, blocks).name()) ? 1 : 0;
      }
    }
    rows_left_ += Wanted(options, kLookupRateName) ? 1 : 0;
  }

  absl::StatusOr<std::vector<BenchRow>> Run() {
    // First: what it takes, the lookups' rows have less.
    TOKURA_RETURN_IF_ERROR(MeasureIndexGrowth());
    for (const uint64_t blocks : kMemoryIndexes) {
      const auto* const end = std::end(kLookupIndexes);
      if (std::find(std::begin(kLookupIndexes), end, blocks) != end) {
        TOKURA_RETURN_IF_ERROR(MeasureIndex(blocks));
      }
      TOKURA_RETURN_IF_ERROR(MeasureMemory(blocks));
    }
    bed_.reset();
    redis_.reset();
    TOKURA_RETURN_IF_ERROR(MeasureInventory());
    CompareServerTimes(&rows_);
    if (rows_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no row begins with '", options_.filter,
                       "'; rows are lookup/{64,1024,16384}/index{1e5,1e6,1e7}, ", kLookupRateName,
                       ", ", kLookupInventoryName, ", ", kLookupGrowthName,
                       " and lookup/memory/index{1e5,2e5,5e5,1e6,2e6,5e6,1e7}"));
    }
    std::vector<BenchRow> asked;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(asked),
                 [this](const BenchRow& row) { return Selected(options_, row.name); });
    return asked;
  }

 private:
  // A row's share of the time that is left, so that a slow one shortens the others.
  Duration RowTime() { return (end_ - SystemClock().Now()) / static_cast<int64_t>(rows_left_--); }
  void Add(std::vector<BenchRow> rows) {
    std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
  }

  // The lookups that are measured in an index of so many blocks.
  absl::Status MeasureIndex(uint64_t blocks) {
    for (const uint32_t keys : kLookupKeys) {
      if (Wanted(options_, LookupRows(keys, blocks).name())) {
        TOKURA_RETURN_IF_ERROR(MeasureLookups(keys, blocks));
      }
    }
    if (blocks == kRateBlocks && Wanted(options_, kLookupRateName)) {
      TOKURA_RETURN_IF_ERROR(GrowIndex(blocks));
      options_.progress(kLookupRateName);
      TOKURA_ASSIGN_OR_RETURN(auto rows,
                              MeasureLookupRate(*bed_, std::min(RowTime(), kRateTimeMax)));
      Add(std::move(rows));
    }
    return absl::OkStatus();
  }

  absl::Status MeasureMemory(uint64_t blocks) {
    if (Wanted(options_, MemoryName(blocks))) {
      TOKURA_RETURN_IF_ERROR(GrowIndex(blocks));
      TOKURA_ASSIGN_OR_RETURN(const LookupBed::Memory memory, bed_->memory());
      Add(MemoryRows(blocks, {.index_bytes = memory.index_bytes,
                              .resident_bytes =
                                  memory.resident_bytes - bed_->memory_at_start().resident_bytes}));
    }
    return absl::OkStatus();
  }

  absl::Status GrowIndex(uint64_t blocks) {
    if (bed_ == nullptr) {
      TOKURA_ASSIGN_OR_RETURN(bed_, LookupBed::Start());
    }
    if (bed_->blocks() < blocks) {
      options_.progress(absl::StrCat("filling ", IndexName(blocks)));
    }
    return bed_->Grow(blocks);
  }

  // Null where it is not installed, or not compared with.
  absl::StatusOr<RedisPeer*> Redis(uint64_t blocks) {
    if (blocks > kRedisBlocksMax) {
      redis_.reset();  // It would only take memory and processor time.
      return nullptr;
    }
    if (redis_ == nullptr) {
      auto started = RedisPeer::Start();
      if (absl::IsNotFound(started.status())) {
        return nullptr;
      }
      TOKURA_ASSIGN_OR_RETURN(redis_, std::move(started));
    }
    options_.progress(absl::StrCat("filling Redis for ", IndexName(blocks)));
    TOKURA_RETURN_IF_ERROR(redis_->Grow(blocks));
    return redis_.get();
  }

  absl::Status MeasureLookups(uint32_t keys, uint64_t blocks) {
    TOKURA_RETURN_IF_ERROR(GrowIndex(blocks));
    TOKURA_ASSIGN_OR_RETURN(RedisPeer * maybe_redis, Redis(blocks));
    TOKURA_ASSIGN_OR_RETURN(const auto split, SplitCpus(maybe_redis));
    LookupRows rows(keys, blocks);
    const TimePoint end = SystemClock().Now() + RowTime();
    TOKURA_RETURN_IF_ERROR(OnePair(keys, 0, maybe_redis, nullptr));  // caches are warm from here on
    TOKURA_ASSIGN_OR_RETURN(LookupBed::ServerTime counted, bed_->server_time());
    for (uint32_t pair = 0; pair < kPairsMin || (pair < kPairsMax && SystemClock().Now() < end);
         ++pair) {
      options_.progress(rows.name());
      TOKURA_RETURN_IF_ERROR(OnePair(keys, pair, maybe_redis, &rows));
      if (pair % kPairsPerScrape == kPairsPerScrape - 1) {
        TOKURA_ASSIGN_OR_RETURN(const LookupBed::ServerTime now, bed_->server_time());
        rows.AddServerTime(now.seconds - counted.seconds, now.requests - counted.requests);
        counted = now;
      }
    }
    Add(rows.Rows());
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<CpuSplit>> SplitCpus(const RedisPeer* maybe_redis) const {
    std::vector<pid_t> servers = {bed_->coordinator_pid()};
    if (maybe_redis != nullptr) {
      servers.push_back(maybe_redis->pid());
    }
    return CpuSplit::Create(servers);
  }

  // The same lookups by the coordinator and by Redis, one after the other: whoever comes first in
  // one pair comes last in the next.
  absl::Status OnePair(uint32_t keys, uint32_t pair, RedisPeer* maybe_redis,
                       LookupRows* maybe_rows) {
    const uint32_t times = std::max<uint32_t>(1, kKeysPerSample / keys);
    Duration ours{}, redis{};
    for (uint32_t step = 0; step < 2; ++step) {
      if ((pair + step) % 2 == 0) {
        TOKURA_ASSIGN_OR_RETURN(ours, Median(times, [&](uint32_t i) {
                                  return bed_->TimeLookup(bed_->NthRange(pair * times + i, keys));
                                }));
      } else if (maybe_redis != nullptr) {
        TOKURA_ASSIGN_OR_RETURN(
            redis, Median(times, [&](uint32_t i) {
              const LookupBed::Range range = bed_->NthRange(pair * times + i, keys);
              return maybe_redis->TimeExists(MadeKeys(range.first, range.count));
            }));
      }
    }
    if (maybe_rows != nullptr) {
      maybe_rows->Add(ours, redis);
    }
    return absl::OkStatus();
  }

  // The median time of `times` calls.
  template <typename F>
  static absl::StatusOr<Duration> Median(uint32_t times, F&& call) {
    std::vector<double> nanoseconds;
    for (uint32_t i = 0; i < times; ++i) {
      TOKURA_ASSIGN_OR_RETURN(const Duration took, call(i));
      nanoseconds.push_back(static_cast<double>(took.count()));
    }
    return Duration(static_cast<int64_t>(Quantile(std::move(nanoseconds), 0.5)));
  }

  absl::Status MeasureInventory() {
    if (!Wanted(options_, kLookupInventoryName)) {
      return absl::OkStatus();
    }
    // A coordinator of its own, which has not grown before.
    TOKURA_ASSIGN_OR_RETURN(const auto bed, LookupBed::Start());
    TOKURA_RETURN_IF_ERROR(bed->Grow(kInventoryBlocks));
    TOKURA_ASSIGN_OR_RETURN(const auto split, CpuSplit::Create({bed->coordinator_pid()}));
    TOKURA_ASSIGN_OR_RETURN(auto rows, MeasureAbsorption(*bed, options_.progress));
    Add(std::move(rows));
    return absl::OkStatus();
  }

  absl::Status MeasureIndexGrowth() {
    if (Wanted(options_, kLookupGrowthName)) {
      TOKURA_ASSIGN_OR_RETURN(auto rows, MeasureGrowth(kGrowthBlocks, options_.progress));
      Add(std::move(rows));
    }
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  const TimePoint end_;
  uint32_t rows_left_ = 0;
  std::unique_ptr<LookupBed> bed_;
  std::unique_ptr<RedisPeer> redis_;
  std::vector<BenchRow> rows_;
};

}  // namespace

absl::StatusOr<std::vector<BenchRow>> BenchLookup(const BenchOptions& options) {
  SetLogLevel(LogLevel::kWarn);
  return LookupBench(options).Run();
}

}  // namespace tokura::cli
