#include "cli/bench_lookup_growth.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/statistics.h"
#include "common/check.h"
#include "common/status_macros.h"
#include "coordinator/prefix_index.h"

namespace tokura::cli {
namespace {

using coordinator::IndexedForm;
using coordinator::IndexUpdate;
using coordinator::PrefixIndex;

constexpr double kMicrosecondsMax = 1000;

class NoSink final : public coordinator::PrefixIndexSink {
 public:
  void Touched(coordinator::NodeSlot, const BlockKey&) override {}
  void Orphaned(coordinator::NodeSlot, const BlockKey&) override {}
};

// An index that is filled block by block.
class Filling {
 public:
  static absl::StatusOr<std::unique_ptr<Filling>> Create() {
    std::unique_ptr<Filling> filling(new Filling);
    TOKURA_ASSIGN_OR_RETURN(filling->index_, PrefixIndex::Create({}, filling->sink_));
    const auto form_class =
        filling->index_->Intern({.codec = kMadeCodec, .group_mask = 1, .shards = 1});
    const auto source = filling->index_->AddSource(0, PrefixIndex::Visibility::kVisible);
    TOKURA_CHECK(form_class.has_value() && source.has_value());  // of an empty index
    filling->form_ = {.form_class = *form_class, .stored_bytes = kMadeStoredBytes};
    filling->source_ = *source;
    return filling;
  }

  // Insert the next `keys`, which are of one chain, timing each.
  void Insert(std::span<const BlockKey> keys, std::vector<Duration>& took) {
    took.clear();
    BlockKey parent;
    for (const BlockKey& key : keys) {
      const IndexUpdate update{key, parent, std::span(&form_, 1)};
      const TimePoint before = SystemClock().Now();
      index_->Apply(source_, std::span(&update, 1));
      took.push_back(SystemClock().Now() - before);
      parent = key;
    }
  }
  uint64_t blocks() const { return index_->stats().blocks; }

 private:
  Filling() = default;
  NoSink sink_;
  std::unique_ptr<PrefixIndex> index_;
  IndexedForm form_;
  coordinator::SourceId source_ = 0;
};

BenchRow LimitedRow(std::string name, Duration longest) {
  BenchRow row = SampleRow(std::move(name), "us",
                           {std::chrono::duration<double, std::micro>(longest).count()});
  row.repeats = PlaceTimes::kRuns;
  row.bound = kMicrosecondsMax;
  row.bound_name = "limit";
  row.ratio = row.p10 = row.p90 = row.value / kMicrosecondsMax;
  return row;
}

}  // namespace

void PlaceTimes::Set(size_t run, size_t place, Duration took) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  nanoseconds_[place * kRuns + run] =
      static_cast<uint32_t>(std::clamp<int64_t>(took.count(), 0, kMost));
}

Duration PlaceTimes::Longest() const {
  uint32_t longest = 0;
  for (size_t at = 0; at < nanoseconds_.size(); at += kRuns) {
    std::array<uint32_t, kRuns> runs;
    std::copy_n(nanoseconds_.begin() + static_cast<ptrdiff_t>(at), kRuns, runs.begin());
    std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
    longest = std::max(longest, runs[kRuns / 2]);
  }
  return Duration(longest);
}

absl::StatusOr<std::vector<BenchRow>> MeasureGrowth(
    uint64_t blocks, const std::function<void(std::string_view)>& progress) {
  constexpr uint64_t kBatch = MadeInventory::kBatchBlocks;
  PlaceTimes insertions(blocks);
  PlaceTimes batches((blocks + kBatch - 1) / kBatch);
  std::vector<Duration> took;
  for (size_t run = 0; run < PlaceTimes::kRuns; ++run) {
    progress(absl::StrCat(kLookupGrowthName, " (", run + 1, " of ", PlaceTimes::kRuns, ")"));
    TOKURA_ASSIGN_OR_RETURN(const auto filling, Filling::Create());
    for (uint64_t first = 0; first < blocks; first += kBatch) {
      const std::vector<BlockKey> keys = MadeKeys(first, std::min(kBatch, blocks - first));
      filling->Insert(keys, took);
      Duration batch{};
      for (size_t i = 0; i < took.size(); ++i) {
        insertions.Set(run, first + i, took[i]);
        batch += took[i];
      }
      batches.Set(run, first / kBatch, batch);
    }
    if (filling->blocks() != blocks) {
      return absl::InternalError(
          absl::StrCat("the index has ", filling->blocks(), " blocks, not ", blocks));
    }
  }
  return std::vector<BenchRow>{
      LimitedRow(kLookupGrowthName, insertions.Longest()),
      LimitedRow(absl::StrCat(kLookupGrowthName, "/batch"), batches.Longest())};
}

}  // namespace tokura::cli
