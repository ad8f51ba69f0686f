#include "cli/bench_lookup_rate.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_blocks.h"
#include "cli/cpu_pin.h"
#include "cli/polled_session.h"
#include "cli/statistics.h"
#include "common/cpu_time.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr uint32_t kKeys = 1024;
constexpr uint32_t kClients = 4;
constexpr uint32_t kPipelined = 8;   // requests under way per client
constexpr uint32_t kRequests = 256;  // different ones
constexpr Duration kWarmUp = std::chrono::milliseconds(200);
constexpr Duration kWindow = std::chrono::milliseconds(100);  // of one sample
constexpr Duration kTimeMin = std::chrono::seconds(1);
constexpr Duration kPollStep = std::chrono::milliseconds(10);

double Seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The clients. Keeps its connections busy while it runs.
class LookupLoad {
 public:
  explicit LookupLoad(LookupBed& bed) : bed_(bed) {
    for (uint32_t i = 0; i < kRequests; ++i) {
      const LookupBed::Range range = bed.NthRange(i, kKeys);
      requests_.push_back(MakeLocateRequest(MadeKeys(range.first, range.count)));
    }
  }
  absl::Status Connect() {
    for (uint32_t i = 0; i < kClients; ++i) {
      TOKURA_ASSIGN_OR_RETURN(auto session, bed_.Connect());
      sessions_.push_back(std::move(session));
    }
    return absl::OkStatus();
  }

  // Let requests run for `time`; answers per second in each window.
  absl::StatusOr<std::vector<double>> Run(Duration time) {
    std::vector<double> rates;
    running_ = true;
    for (const auto& session : sessions_) {
      for (uint32_t i = 0; i < kPipelined; ++i) {
        SendNext(*session);
      }
    }
    const TimePoint end = SystemClock().Now() + time;
    for (TimePoint now = SystemClock().Now(); now < end && failure_.ok();) {
      const TimePoint start = now;
      const uint64_t before = answered_;
      for (; now < start + kWindow; now = SystemClock().Now()) {
        bed_.transport().Poll(kPollStep);
      }
      rates.push_back(static_cast<double>(answered_ - before) / Seconds(now - start));
    }
    running_ = false;
    while (outstanding_ > 0) {
      bed_.transport().Poll(kPollStep);
    }
    TOKURA_RETURN_IF_ERROR(failure_);
    return rates;
  }

 private:
  void SendNext(PolledSession& session) {
    ++outstanding_;
    session.Send(net::Op::kLocate, requests_[next_++ % kRequests],
                 [this, &session](const absl::Status& status, std::span<const std::byte> body) {
                   --outstanding_;
                   failure_.Update(status.ok() ? Check(body) : status);
                   if (running_ && failure_.ok()) {
                     ++answered_;
                     SendNext(session);
                   }
                 });
  }
  absl::Status Check(std::span<const std::byte> body) const {
    proto::LocateReply reply;
    return reply.ParseFromArray(body.data(), static_cast<int>(body.size()))
               ? CheckLocated(reply, kKeys, bed_.holder())
               : absl::InternalError("the answer cannot be read");
  }

  LookupBed& bed_;
  std::vector<proto::LocateRequest> requests_;
  std::vector<std::unique_ptr<PolledSession>> sessions_;
  bool running_ = false;
  uint64_t next_ = 0;
  uint64_t answered_ = 0;
  uint32_t outstanding_ = 0;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::vector<BenchRow>> MeasureLookupRate(LookupBed& bed, Duration time) {
  LookupLoad load(bed);
  TOKURA_RETURN_IF_ERROR(load.Connect());
  TOKURA_ASSIGN_OR_RETURN(const auto split, CpuSplit::Create({bed.coordinator_pid()}));
  TOKURA_RETURN_IF_ERROR(load.Run(kWarmUp).status());
  TOKURA_ASSIGN_OR_RETURN(const Duration cpu_before, ProcessCpuTime(bed.coordinator_pid()));
  const TimePoint start = SystemClock().Now();
  TOKURA_ASSIGN_OR_RETURN(const std::vector<double> rates, load.Run(std::max(time, kTimeMin)));
  const Duration took = SystemClock().Now() - start;
  TOKURA_ASSIGN_OR_RETURN(const Duration cpu_after, ProcessCpuTime(bed.coordinator_pid()));
  return std::vector<BenchRow>{SampleRow(kLookupRateName, "1/s", rates),
                               SampleRow(absl::StrCat(kLookupRateName, "/server_cores"), "cores",
                                         {Seconds(cpu_after - cpu_before) / Seconds(took)})};
}

}  // namespace tokura::cli
