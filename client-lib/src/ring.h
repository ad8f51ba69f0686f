#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include <prometheus/gauge.h>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "common/net/transport.h"

namespace tokura {

class Ring;

// How much of the ring one peer may hold at a time, so that slots are used again while the
// processor still has them in its caches, and so that a peer that has stopped cannot take the room
// of the others. Shared by its slots and waiters, which may outlive what it is for. Owned by the
// ring's executor.
class RingWindow {
 public:
  explicit RingWindow(uint64_t bytes) : bytes_(bytes) {}

 private:
  friend class Ring;
  friend class RingSlot;
  // Two slots are always allowed, whatever their size: one is filled while the other is emptied.
  bool Admits(size_t bytes) const { return slots_ < 2 || used_ + bytes <= bytes_; }

  const uint64_t bytes_;
  uint64_t used_ = 0;
  size_t slots_ = 0;
  std::set<uint64_t> tickets_;  // of the waiters, in order of arrival
};
using RingWindowRef = std::shared_ptr<RingWindow>;  // owners: see RingWindow

// A range of the ring, given back when destroyed. Move-only. Destroyed on the ring's executor while
// the ring lives. Whoever holds the slot may use its memory: a transfer's Done holds it until the
// transport is through with it, whatever became of the operation (quarantine).
class RingSlot {
 public:
  RingSlot() = default;
  RingSlot(RingSlot&& other) noexcept;
  RingSlot& operator=(RingSlot&& other) noexcept;
  RingSlot(const RingSlot&) = delete;
  RingSlot& operator=(const RingSlot&) = delete;
  ~RingSlot() { Reset(); }

  bool valid() const { return maybe_ring_ != nullptr; }
  // The whole slot, kPartAlignment-aligned.
  net::RegisteredSpan span() const { return span_; }
  // Give back everything behind the first `bytes`.
  void Trim(size_t bytes);
  void Reset();

 private:
  friend class Ring;
  RingSlot(Ring* ring, net::RegisteredSpan span, RingWindowRef window)
      : maybe_ring_(ring), span_(span), window_(std::move(window)) {}

  Ring* maybe_ring_ = nullptr;
  net::RegisteredSpan span_;
  RingWindowRef window_;
};

// The client's registered memory: slots of any size, given back in any order, first fit. Those who
// do not find room wait in one bounded queue and are served in order, so that a large request is
// not starved by small ones; those whose window is full let others pass. Owned by one executor.
class Ring {
 public:
  struct Options {
    uint64_t bytes = 0;
    size_t waiters_max = 16384;
  };
  // A waiter's turn: the slot it asked for.
  using Grant = absl::AnyInvocable<void(RingSlot)>;
  using Ticket = uint64_t;  // 0 is never a ticket

  // RESOURCE_EXHAUSTED: the memory could not be mapped or registered; INVALID_ARGUMENT: no bytes.
  static absl::StatusOr<std::unique_ptr<Ring>> Create(net::Transport& transport, Options options);
  // Only when no slot is out.
  ~Ring();

  // A slot of `bytes` (at least 1) within `window` now; invalid when there is no room or others
  // wait for it.
  RingSlot TryTake(size_t bytes, const RingWindowRef& window);
  // Call `grant` on the executor, never inline, once there is room. 0: the queue is full, or
  // `bytes` exceeds the ring. Whatever `grant` captures is destroyed with it.
  Ticket Wait(size_t bytes, RingWindowRef window, Grant grant);
  // Forget a waiter; unknown tickets are ignored.
  void CancelWait(Ticket ticket);

  // Move these by what is used and who waits. Borrowed; once, before the first slot.
  struct Gauges {
    prometheus::Gauge* used_bytes = nullptr;
    prometheus::Gauge* waiters = nullptr;
  };
  void SetGauges(Gauges gauges) { gauges_ = gauges; }
  // Call `on_idle` whenever the last slot came back.
  void SetOnIdle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }

  uint64_t capacity() const { return memory_.size(); }
  uint64_t used() const { return used_; }
  size_t waiters() const { return waiters_.size(); }

 private:
  friend class RingSlot;
  struct Waiter {
    size_t bytes;
    RingWindowRef window;
    Grant grant;
  };
  using Waiters = std::map<Ticket, Waiter>;
  Ring(Executor& executor, size_t waiters_max, std::span<std::byte> memory,
       std::unique_ptr<net::MemoryRegion> region);

  RingSlot Allocate(size_t bytes, const RingWindowRef& window);
  Waiter Remove(Waiters::iterator waiter);
  void CountUsed(int64_t delta);
  void CountWaiters(int delta);
  void Free(size_t offset, size_t bytes);
  // Serve waiters from a task of their own, so that giving a slot back never re-enters its holder.
  void ScheduleServe();
  void Serve();
  // The first waiter whose window has room for it.
  Waiters::iterator FirstAdmitted();

  Executor& executor_;
  const size_t waiters_max_;
  const std::span<std::byte> memory_;
  std::unique_ptr<net::MemoryRegion> region_;
  std::map<size_t, size_t> free_;  // offset → bytes; neighbours are merged
  uint64_t used_ = 0;
  Waiters waiters_;                       // in order of arrival
  std::map<Ticket, RingWindow*> fronts_;  // windows with waiters, by the first one's ticket
  bool starved_ = false;                  // the first admitted waiter lacks memory
  Ticket next_ticket_ = 1;
  Gauges gauges_;
  std::function<void()> on_idle_;
  bool serve_scheduled_ = false;
  std::shared_ptr<bool> alive_;  // owners: the ring and its posted tasks
};

}  // namespace tokura
