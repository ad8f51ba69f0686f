#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/soak_content.h"
#include "cli/statistics.h"
#include "common/mutex.h"
#include "common/time.h"
#include "tokura/client.h"

namespace tokura::cli {

enum class SoakVerify { kNo, kYes };

struct SoakOptions {
  SoakContent::Options content;
  Duration run_time = std::chrono::seconds(10);
  const std::atomic<bool>* maybe_stop = nullptr;  // ends it before its time, once true; borrowed
  uint32_t threads = 4;
  SoakVerify verify = SoakVerify::kYes;
  // Deadlines given with the calls; removing has the client's own.
  Duration lookup_deadline = std::chrono::milliseconds(500);
  Duration transfer_deadline = std::chrono::seconds(2);
  Duration remove_deadline = std::chrono::milliseconds(200);
  // A call that takes longer than its deadline by more than this hangs.
  Duration slack = std::chrono::milliseconds(100);
};

// What a soak found. Blocks are counted in puts, gets, hits and wrong; calls in ops and hung.
struct SoakReport {
  uint64_t ops = 0;
  uint64_t puts = 0;   // blocks offered
  uint64_t gets = 0;   // blocks wanted
  uint64_t hits = 0;   // of them returned
  uint64_t wrong = 0;  // bytes, codec or declared error not as they must be, or changed afterwards
  uint64_t hung = 0;
  std::map<std::string, uint64_t> status;  // blocks by the status's name; lookups by theirs
  LatencyHistogram latency;                // of every call
  std::vector<double> recovery_ms;         // from a fault seen to hits again
  std::vector<std::string> complaints;     // the first few wrong blocks and hung calls, in words
  bool clean() const { return wrong == 0 && hung == 0; }
};
// The object that `tokura bench soak --json` writes.
Json ToJson(const SoakReport& report);

// Measures how long the cache gave no hits after a fault. Thread-safe.
class RecoveryWatch {
 public:
  // A call that began at `start` and has ended now saw a node fail.
  void SawFault(TimePoint now);
  // A call that began at `start` returned blocks at `now`. Only one that began after the fault
  // tells that the cache is back.
  struct Call {
    TimePoint start;
    TimePoint end;
  };
  void SawHit(const Call& call);
  std::vector<double> recovery_ms() const;

 private:
  mutable Mutex mutex_;
  std::optional<TimePoint> fault_ TOKURA_GUARDED_BY(mutex_);
  std::vector<double> recovery_ms_ TOKURA_GUARDED_BY(mutex_);
};

// Put, get, look up and remove blocks from several threads until it is time to end, whatever
// happens to the nodes, and check every byte that comes back. `progress` is called by one thread
// now and then.
SoakReport RunSoak(Client& client, const SoakOptions& options, const Clock& clock,
                   const std::function<void(std::string_view)>& progress);

}  // namespace tokura::cli
