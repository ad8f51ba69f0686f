#include "cli/bench_lookup_rows.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/table.h"
#include "common/check.h"

namespace tokura::cli {
namespace {

constexpr char kMemoryPrefix[] = "lookup/memory/";
constexpr char kResidentSuffix[] = "/resident";
constexpr char kServerKeySuffix[] = "/server/key";
constexpr char kRedisBound[] = "pipelined EXISTS of the same keys in Redis";
constexpr int kPlotColumns = 50;  // for the limit

double Microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

bool IsPlotted(const BenchRow& row) {
  return row.name.starts_with(kMemoryPrefix) && !row.name.ends_with(kResidentSuffix);
}

// One bar a size, and the limit as a mark.
std::string MemoryPlot(const std::vector<BenchRow>& rows) {
  std::string plot;
  for (const BenchRow& row : rows) {
    if (!IsPlotted(row)) {
      continue;
    }
    const double columns = row.value / kIndexBytesPerBlockMax * kPlotColumns;
    const auto filled = static_cast<size_t>(std::clamp(columns, 0.0, 1.5 * kPlotColumns));
    std::string bar(filled, '#');
    bar.resize(std::max<size_t>(filled, kPlotColumns), ' ');
    const absl::string_view text(bar);
    absl::StrAppend(&plot, "  ", row.name.substr(std::string_view(kMemoryPrefix).size()), "  ",
                    FixedPoint(row.value, 1), " B  ", text.substr(0, kPlotColumns), "|",
                    text.substr(kPlotColumns), "\n");
  }
  return plot.empty() ? ""
                      : absl::StrCat("\nIndex memory per block; | is the limit of ",
                                     kIndexBytesPerBlockMax, " B:\n", plot);
}

// Rows of whole lookups, in indexes that Redis is compared at.
bool MissesRedis(const BenchRow& row) {
  for (const uint32_t keys : kLookupKeys) {
    for (const uint64_t blocks : kLookupIndexes) {
      if (row.name == LookupRows(keys, blocks).name()) {
        return blocks <= kRedisBlocksMax && !row.ratio.has_value();
      }
    }
  }
  return false;
}

}  // namespace

std::string IndexName(uint64_t blocks) {
  int exponent = 0;
  for (; blocks >= 10; blocks /= 10) {
    TOKURA_CHECK(blocks % 10 == 0);
    ++exponent;
  }
  return absl::StrCat("index", blocks, "e", exponent);
}

std::string LookupRows::name() const {
  return absl::StrCat("lookup/", keys_, "/", IndexName(blocks_));
}

void LookupRows::Add(Duration lookup, Duration redis) {
  if (redis > Duration::zero()) {
    pairs_.Add({.value = Microseconds(lookup), .bound = Microseconds(redis)});
  } else {
    alone_us_.push_back(Microseconds(lookup));
  }
}

void LookupRows::AddServerTime(double seconds, double requests) {
  if (requests > 0) {
    server_us_.push_back(seconds * 1e6 / requests);
  }
}

std::vector<BenchRow> LookupRows::Rows() const {
  std::vector<double> per_key_ns;
  for (const double us : server_us_) {
    per_key_ns.push_back(us * 1e3 / keys_);
  }
  return {pairs_.size() > 0
              ? pairs_.Row(name(), "us", kRedisBound, PairedSamples::Ratio::kBoundOverValue)
              : SampleRow(name(), "us", alone_us_),
          SampleRow(name() + "/server", "us", server_us_),
          SampleRow(absl::StrCat(name(), kServerKeySuffix), "ns", per_key_ns)};
}

void CompareServerTimes(std::vector<BenchRow>* rows) {
  const std::string smallest = IndexName(kLookupIndexes[0]);
  for (const uint32_t keys : kLookupKeys) {
    const std::string base_name = LookupRows(keys, kLookupIndexes[0]).name();
    const auto base = std::find_if(rows->begin(), rows->end(), [&](const BenchRow& row) {
      return row.name == absl::StrCat(base_name, kServerKeySuffix);
    });
    if (base == rows->end() || base->value <= 0) {
      continue;
    }
    const double bound = base->value;
    for (BenchRow& row : *rows) {
      if (row.name.starts_with(absl::StrCat("lookup/", keys, "/")) &&
          row.name.ends_with(kServerKeySuffix) && row.name != base->name) {
        row.bound = bound;
        row.bound_name = absl::StrCat("the same with ", smallest);
        row.ratio = row.value / bound;
        row.p10 /= bound;
        row.p90 /= bound;
      }
    }
  }
}

std::vector<BenchRow> MemoryRows(uint64_t blocks, const IndexMemory& memory) {
  const std::string name = absl::StrCat(kMemoryPrefix, IndexName(blocks));
  const auto count = static_cast<double>(blocks);
  BenchRow index = SampleRow(name, "B/block", {memory.index_bytes / count});
  index.bound = kIndexBytesPerBlockMax;
  index.bound_name = "limit";
  index.ratio = index.p10 = index.p90 = index.value / index.bound;
  return {index, SampleRow(absl::StrCat(name, kResidentSuffix), "B/block",
                           {memory.resident_bytes / count})};
}

std::string LookupText(const std::vector<BenchRow>& rows) {
  std::string text = MemoryPlot(rows);
  if (std::any_of(rows.begin(), rows.end(), MissesRedis)) {
    absl::StrAppend(&text,
                    "\nWithout redis-server there is nothing to compare with. Install it and run "
                    "this again:\n  apt-get install redis-server\n");
  }
  return text;
}

}  // namespace tokura::cli
