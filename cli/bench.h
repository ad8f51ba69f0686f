#pragma once

// `tokura bench NAME`: what every benchmark takes and gives, how rows are printed, and the
// dispatch.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/time.h"

namespace tokura::cli {

// One measured number beside the bound it is judged by. `value`, `bound`, `p10` and `p90` are in
// `unit`, except that p10 and p90 are of the paired ratios where `ratio` is set and of the value
// where it is not.
struct BenchRow {
  std::string name;        // path-like and stable: "transport/get/1MiB/batch64"
  double value = 0;        // median
  std::string unit;        // "GB/s" (1e9 bytes a second), "us", "ns/byte", …
  double bound = 0;        // median of the bound, measured alternately with the value; 0: none
  std::string bound_name;  // what the bound is, in words; empty: none
  // Median of the paired ratios, achieved over bound, so that 1 is "as good as the bound": for
  // rates value / bound, for times too (then smaller is better; the unit tells), but that rows
  // lookup/… say how many times sooner than their peer they are: bound / value. Unset: no bound.
  std::optional<double> ratio;
  std::optional<double> ratio_without_crc;  // transport rows: against the bound less its CRC pass
  uint32_t repeats = 0;                     // pairs (or samples) behind the medians
  double p10 = 0;
  double p90 = 0;
};

struct BenchOptions {
  std::string filter;               // only rows whose name begins with it; empty: all
  std::optional<Duration> seconds;  // time for all rows together; unset: at most 4 minutes
  // Called after each finished row and now and then during long ones; never null.
  std::function<void(std::string_view what)> progress = [](std::string_view) {};
  std::vector<std::string> self;  // command line prefix that starts this program again (peers)
};

// Whether a row of this name is asked for.
bool Selected(const BenchOptions& options, std::string_view row_name);

// A benchmark verifies what it moved before it reports: DATA_LOSS when a result was wrong;
// INVALID_ARGUMENT when the filter matches no row; any other status when it could not run.
using Bench = std::function<absl::StatusOr<std::vector<BenchRow>>(const BenchOptions&)>;

}  // namespace tokura::cli
