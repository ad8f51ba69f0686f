#include "cli/bench_lookup_inventory.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/bench_lookup_node.h"
#include "cli/polled_session.h"
#include "cli/statistics.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

constexpr uint64_t kRecords = 1'000'000;
constexpr uint64_t kRuns = 3;
constexpr uint32_t kKeys = 1024;
constexpr double kSecondsMax = 1;
constexpr double kTurnMicrosecondsMax = 1000;
constexpr Duration kPollStep = std::chrono::milliseconds(100);

// The numbers of a later node's blocks, far from those of the first one.
uint64_t FirstBlock(uint64_t run) {
  return (run + 1) << 40;
}

BenchRow WithLimit(BenchRow row, double limit) {
  row.bound = limit;
  row.bound_name = "limit";
  row.ratio = row.value / limit;
  row.p10 /= limit;
  row.p90 /= limit;
  return row;
}

// One node that comes with its inventory, and the lookups meanwhile. Both are driven by the one
// thread, so that a lookup's time includes what this side needs to write a batch.
class Absorption {
 public:
  Absorption(LookupBed& bed, MadeNode& node, LatencyHistogram& latencies)
      : bed_(bed), node_(node), latencies_(latencies) {}

  absl::StatusOr<Duration> Run(uint64_t first_block) {
    TOKURA_ASSIGN_OR_RETURN(client_, bed_.Connect());
    const std::vector<proto::InventoryBatch> chunks =
        node_.inventory().Snapshot(first_block, kRecords);
    std::optional<absl::Status> sent;
    const TimePoint start = SystemClock().Now();
    TimePoint end = start;
    node_.StartSending(chunks, [&](absl::Status status) {
      end = SystemClock().Now();
      sent = std::move(status);
      absorbed_ = true;
    });
    LookUp();
    while (!sent.has_value() || outstanding_) {
      bed_.transport().Poll(kPollStep);
    }
    failure_.Update(*sent);
    TOKURA_RETURN_IF_ERROR(failure_);
    TOKURA_RETURN_IF_ERROR(CheckAbsorbed(first_block));
    return end - start;
  }

 private:
  // Look blocks up, one request after the other, until the inventory is absorbed.
  void LookUp() {
    const LookupBed::Range range = bed_.NthRange(next_++, kKeys);
    const proto::LocateRequest request = MakeLocateRequest(MadeKeys(range.first, range.count));
    const TimePoint start = SystemClock().Now();
    outstanding_ = true;
    client_->Send(net::Op::kLocate, request,
                  [this, start](const absl::Status& status, std::span<const std::byte> body) {
                    outstanding_ = false;
                    latencies_.Add(SystemClock().Now() - start);
                    failure_.Update(status.ok() ? Check(body) : status);
                    if (!absorbed_ && failure_.ok()) {
                      LookUp();
                    }
                  });
  }
  absl::Status Check(std::span<const std::byte> body) const {
    proto::LocateReply reply;
    return reply.ParseFromArray(body.data(), static_cast<int>(body.size()))
               ? CheckLocated(reply, kKeys, bed_.holder())
               : absl::InternalError("the answer cannot be read");
  }
  // Every chain of the new node is found as a whole.
  absl::Status CheckAbsorbed(uint64_t first_block) {
    for (uint64_t done = 0; done < kRecords; done += kMadeChainBlocks) {
      const uint64_t count = std::min(kMadeChainBlocks, kRecords - done);
      proto::LocateReply reply;
      TOKURA_RETURN_IF_ERROR(client_->Ask(
          net::Op::kLocate, MakeLocateRequest(MadeKeys(first_block + done, count)), &reply));
      TOKURA_RETURN_IF_ERROR(CheckLocated(reply, static_cast<uint32_t>(count), node_.ref()));
    }
    return absl::OkStatus();
  }

  LookupBed& bed_;
  MadeNode& node_;
  LatencyHistogram& latencies_;
  std::unique_ptr<PolledSession> client_;
  uint64_t next_ = 0;
  bool outstanding_ = false;
  bool absorbed_ = false;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::vector<BenchRow>> MeasureAbsorption(
    LookupBed& bed, const std::function<void(std::string_view)>& progress) {
  std::vector<double> seconds;
  LatencyHistogram latencies;
  std::vector<std::unique_ptr<MadeNode>> nodes;
  for (uint64_t run = 0; run < kRuns; ++run) {
    progress(kLookupInventoryName);
    TOKURA_ASSIGN_OR_RETURN(auto node, MadeNode::Join(bed.transport(), bed.coordinator(),
                                                      absl::StrCat("bench-node-", run + 1)));
    nodes.push_back(std::move(node));
    Absorption absorption(bed, *nodes.back(), latencies);
    TOKURA_ASSIGN_OR_RETURN(const Duration took, absorption.Run(FirstBlock(run)));
    seconds.push_back(std::chrono::duration<double>(took).count());
  }
  TOKURA_ASSIGN_OR_RETURN(const Duration turn, bed.longest_turn());
  const auto row = [&](const char* suffix, Duration time) {
    return SampleRow(absl::StrCat(kLookupInventoryName, suffix), "us",
                     {std::chrono::duration<double, std::micro>(time).count()});
  };
  const auto lookup_row = [&](const char* suffix, Duration latency) {
    BenchRow of = row(suffix, latency);
    of.repeats = static_cast<uint32_t>(latencies.count());
    return of;
  };
  return std::vector<BenchRow>{
      WithLimit(SampleRow(kLookupInventoryName, "s", seconds), kSecondsMax),
      lookup_row("/p99", latencies.AtQuantile(0.99)), lookup_row("/max", latencies.max()),
      WithLimit(row("/turn", turn), kTurnMicrosecondsMax)};
}

}  // namespace tokura::cli
