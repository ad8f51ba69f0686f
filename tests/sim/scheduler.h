#pragma once

// Virtual time and one global queue of events: everything of a simulated cluster happens in one
// thread, in an order that follows from the seed alone.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/executor.h"
#include "common/random.h"
#include "common/time.h"

namespace tokura::sim {

// A small seeded generator (SplitMix64). Thread-compatible.
class SimRandom final : public RandomSource {
 public:
  explicit SimRandom(uint64_t seed) : state_(seed) {}
  void Fill(std::span<std::byte> out) override;
  uint64_t Draw();
  // Uniform in [0, bound); 0 when bound is 0.
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Draw() % bound; }
  // Uniform in [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  Duration Between(Duration low, Duration high);
  // True with probability `permille` / 1000.
  bool Permille(uint64_t permille) { return Below(1000) < permille; }

 private:
  uint64_t state_;
};

using EventId = uint64_t;  // 0 is never an event.

// Thread-compatible. Events of equal time run in the order they were made.
class SimScheduler {
 public:
  explicit SimScheduler(uint64_t seed);
  ~SimScheduler();
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;

  TimePoint Now() const { return now_; }
  SimRandom& random() { return random_; }

  EventId At(TimePoint when, Task task);
  EventId After(Duration delay, Task task) { return At(now_ + delay, std::move(task)); }
  // Forget an event; one that ran or an unknown id is ignored.
  void Cancel(EventId id);

  // Run the next event. False when there is none.
  bool Step();
  // Run every event up to and including `when`; the time is then `when`.
  void RunUntil(TimePoint when);
  void RunFor(Duration duration) { RunUntil(now_ + duration); }

  // Fold a fact into the event log's hash (and print it when tracing). Every event does so with its
  // time and number; what components log on top makes two runs comparable in content too.
  void Record(std::string_view what, uint64_t a = 0, uint64_t b = 0);
  uint64_t hash() const { return hash_; }
  uint64_t events() const { return events_; }
  // Print every recorded fact to standard error.
  void set_tracing(bool on) { tracing_ = on; }

 private:
  struct Entry {
    TimePoint when;
    uint64_t sequence;
    size_t slot;
    // For std::push_heap, which keeps the largest in front: later is smaller.
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : sequence > other.sequence;
    }
  };
  struct Slot {
    uint64_t sequence = 0;  // of the event that occupies it; 0: free or cancelled
    Task task;
  };
  void Fold(uint64_t value);

  SimRandom random_;
  TimePoint now_;
  uint64_t sequence_ = 0;
  uint64_t events_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325u;
  bool tracing_ = false;
  std::vector<Entry> heap_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_slots_;
};

}  // namespace tokura::sim
