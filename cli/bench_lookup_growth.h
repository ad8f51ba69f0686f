#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"
#include "common/time.h"

namespace tokura::cli {

inline constexpr uint64_t kGrowthBlocks = 10'000'000;
inline constexpr char kLookupGrowthName[] = "lookup/growth";

// Tells what a place in a repeated, deterministic computation costs from what the machine did
// there: a cost comes back in every run at the same place, a disturbance does not.
// Thread-compatible.
class PlaceTimes {
 public:
  static constexpr size_t kRuns = 3;  // odd

  explicit PlaceTimes(size_t places) : nanoseconds_(places * kRuns) {}
  // Times of 4 s and more are kept as such.
  void Set(size_t run, size_t place, Duration took);
  // The median over the runs, of the place where it is largest; zero without places.
  Duration Longest() const;

 private:
  std::vector<uint32_t> nanoseconds_;  // by place, then run
};

// What a lookup may have to wait for because the coordinator's index grows. The index is filled
// with `blocks` blocks from empty, in this process, `kRuns` times in the same way, each insertion
// timed: lookup/growth is the longest insertion (median of the runs at the same place), in us, and
// …/batch that of the 1,024 insertions of a batch of inventory, the growth within them included.
// INTERNAL: the index does not have what was put into it.
absl::StatusOr<std::vector<BenchRow>> MeasureGrowth(
    uint64_t blocks, const std::function<void(std::string_view)>& progress);

}  // namespace tokura::cli
