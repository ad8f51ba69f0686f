#include "cli/bench_lookup_bed.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/mix.h"
#include "cli/scrape.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr char kNodeName[] = "bench-node";
constexpr Duration kPollStep = std::chrono::milliseconds(100);
constexpr Duration kMemberTimeout = std::chrono::seconds(20);
// The coordinator copies what it shows as metrics a few times a second.
constexpr Duration kMetricsTimeout = std::chrono::seconds(10);
// A hole in the second chain, so that the blocks before it are looked at, too.
constexpr uint64_t kHoleChain = 1;
constexpr uint32_t kHolePosition = 700;

// Bytes of memory that a process has now; 0 when there is no such process.
double ResidentBytes(pid_t process) {
  std::ifstream file(absl::StrCat("/proc/", process, "/statm"));
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LookupBed>> LookupBed::Start() {
  std::unique_ptr<LookupBed> bed(new LookupBed);
  TOKURA_RETURN_IF_ERROR(bed->Launch());
  return bed;
}

absl::Status LookupBed::Launch() {
  // The node and the client are silent while others are measured.
  TOKURA_ASSIGN_OR_RETURN(
      process_,
      ServerProcess::Start({.program = "tokura-coordinator",
                            .name = "bench-coordinator",
                            .flags = {"--join-ramp", "0s", "--dead-after", "60s", "--suspect-after",
                                      "60s", "--remove-after", "10m", "--log-level", "warn"}}));
  TOKURA_ASSIGN_OR_RETURN(address_, net::Address::Parse(process_->ports().data));
  TOKURA_ASSIGN_OR_RETURN(context_, net::UcxContext::Create({}));
  TOKURA_ASSIGN_OR_RETURN(transport_, net::UcxTransport::Create(*context_, {}));
  TOKURA_ASSIGN_OR_RETURN(node_, MadeNode::Join(*transport_, address_, kNodeName));
  for (const proto::InventoryBatch& chunk : node_->inventory().Snapshot(0, 0)) {
    TOKURA_RETURN_IF_ERROR(node_->Send(chunk));
  }
  TOKURA_ASSIGN_OR_RETURN(client_, Connect());
  TOKURA_RETURN_IF_ERROR(WaitUntilMember());
  TOKURA_ASSIGN_OR_RETURN(memory_at_start_, memory());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PolledSession>> LookupBed::Connect() {
  return PolledSession::Connect(*transport_, address_, {.name = "tokura-bench"});
}

absl::Status LookupBed::WaitUntilMember() {
  const TimePoint deadline = SystemClock().Now() + kMemberTimeout;
  absl::Status why;
  do {
    proto::NodesReply reply;
    why = client_->Ask(net::Op::kNodes, proto::NodesRequest(), &reply);
    const bool there = std::any_of(reply.rows().begin(), reply.rows().end(), [](const auto& row) {
      return row.complete() && row.member().state() == proto::Member::UP;
    });
    if (there) {
      return absl::OkStatus();
    }
    transport_->Poll(kPollStep);
  } while (SystemClock().Now() < deadline);
  return absl::DeadlineExceededError(absl::StrCat(
      "the coordinator does not take the node: ", why.message(), "\n", process_->Log()));
}

absl::Status LookupBed::Grow(uint64_t blocks) {
  const bool first_time = blocks_ == 0;
  while (blocks_ < blocks) {
    const uint64_t count = std::min(MadeInventory::kBatchBlocks, blocks - blocks_);
    TOKURA_RETURN_IF_ERROR(node_->Send(node_->inventory().Added(blocks_, count)));
    blocks_ += count;
  }
  if (first_time && blocks_ >= (kHoleChain + 1) * kMadeChainBlocks) {
    TOKURA_RETURN_IF_ERROR(CheckHole());
  }
  const auto last = static_cast<uint32_t>(std::min(blocks_, kMadeChainBlocks));
  return CheckFound({blocks_ - last, last}, last);
}

LookupBed::Range LookupBed::NthRange(uint64_t n, uint32_t count) const {
  const uint64_t ranges = std::max<uint64_t>(1, blocks_ / count);
  return {Mix(n, count) % ranges * count, count};
}

absl::StatusOr<Duration> LookupBed::TimeLookup(const Range& range) {
  const std::vector<BlockKey> keys = MadeKeys(range.first, range.count);
  const TimePoint start = SystemClock().Now();
  proto::LocateReply reply;
  TOKURA_RETURN_IF_ERROR(client_->Ask(net::Op::kLocate, MakeLocateRequest(keys), &reply));
  const Duration took = SystemClock().Now() - start;
  TOKURA_RETURN_IF_ERROR(CheckLocated(reply, range.count, holder()));
  return took;
}

absl::Status LookupBed::CheckFound(const Range& range, uint32_t blocks) {
  proto::LocateReply reply;
  TOKURA_RETURN_IF_ERROR(client_->Ask(
      net::Op::kLocate, MakeLocateRequest(MadeKeys(range.first, range.count)), &reply));
  return CheckLocated(reply, blocks, holder());
}

// A chain that has lost a block ends before it; it is whole again with the block, and a chain that
// was never there has nothing.
absl::Status LookupBed::CheckHole() {
  const Range chain{kHoleChain * kMadeChainBlocks, static_cast<uint32_t>(kMadeChainBlocks)};
  const uint64_t hole = chain.first + kHolePosition;
  TOKURA_RETURN_IF_ERROR(CheckFound(chain, chain.count));
  TOKURA_RETURN_IF_ERROR(node_->Send(node_->inventory().Removed(hole)));
  TOKURA_RETURN_IF_ERROR(CheckFound(chain, kHolePosition));
  TOKURA_RETURN_IF_ERROR(node_->Send(node_->inventory().Added(hole, 1)));
  TOKURA_RETURN_IF_ERROR(CheckFound(chain, chain.count));
  return CheckFound({blocks_, chain.count}, 0);
}

absl::StatusOr<LookupBed::ServerTime> LookupBed::server_time() const {
  constexpr char kDuration[] = "tokura_coordinator_request_duration_seconds";
  TOKURA_ASSIGN_OR_RETURN(const MetricValues metrics, ScrapeMetrics(process_->ports().admin));
  ServerTime time;
  TOKURA_ASSIGN_OR_RETURN(time.seconds,
                          MetricValue(metrics, absl::StrCat(kDuration, "_sum{op=\"locate\"}")));
  TOKURA_ASSIGN_OR_RETURN(time.requests,
                          MetricValue(metrics, absl::StrCat(kDuration, "_count{op=\"locate\"}")));
  return time;
}

absl::StatusOr<Duration> LookupBed::longest_turn() const {
  TOKURA_ASSIGN_OR_RETURN(const MetricValues metrics, ScrapeMetrics(process_->ports().admin));
  double longest = 0;
  for (const char* turn : {"inventory", "maintenance"}) {
    TOKURA_ASSIGN_OR_RETURN(
        const double seconds,
        MetricValue(metrics, absl::StrCat("tokura_coordinator_longest_turn_cpu_seconds{turn=\"",
                                          turn, "\"}")));
    longest = std::max(longest, seconds);
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest));
}

absl::StatusOr<LookupBed::Memory> LookupBed::memory() {
  const TimePoint deadline = SystemClock().Now() + kMetricsTimeout;
  do {
    TOKURA_ASSIGN_OR_RETURN(const MetricValues metrics, ScrapeMetrics(process_->ports().admin));
    TOKURA_ASSIGN_OR_RETURN(const double blocks,
                            MetricValue(metrics, "tokura_coordinator_index_blocks"));
    TOKURA_ASSIGN_OR_RETURN(const double bytes,
                            MetricValue(metrics, "tokura_coordinator_index_bytes"));
    if (blocks == static_cast<double>(blocks_)) {
      return Memory{bytes, ResidentBytes(process_->pid())};
    }
    transport_->Poll(kPollStep);
  } while (SystemClock().Now() < deadline);
  return absl::DeadlineExceededError(
      absl::StrCat("the coordinator's metrics do not come to ", blocks_, " blocks"));
}

}  // namespace tokura::cli
