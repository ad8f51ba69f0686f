#include "client-lib/src/ring.h"

#include <algorithm>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/part.h"

namespace tokura {
namespace {

size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

size_t SlotBytes(size_t bytes) {
  return RoundUp(std::max<size_t>(bytes, 1), kernels::kPartAlignment);
}

}  // namespace

RingSlot::RingSlot(RingSlot&& other) noexcept
    : maybe_ring_(std::exchange(other.maybe_ring_, nullptr)),
      span_(other.span_),
      window_(std::move(other.window_)) {}

RingSlot& RingSlot::operator=(RingSlot&& other) noexcept {
  if (this != &other) {
    Reset();
    maybe_ring_ = std::exchange(other.maybe_ring_, nullptr);
    span_ = other.span_;
    window_ = std::move(other.window_);
  }
  return *this;
}

void RingSlot::Trim(size_t bytes) {
  const size_t keep = SlotBytes(bytes);
  if (maybe_ring_ == nullptr || keep >= span_.size) {
    return;
  }
  const size_t offset = static_cast<size_t>(span_.data - maybe_ring_->memory_.data());
  window_->used_ -= span_.size - keep;
  maybe_ring_->Free(offset + keep, span_.size - keep);
  span_.size = keep;
}

void RingSlot::Reset() {
  if (Ring* maybe_ring = std::exchange(maybe_ring_, nullptr); maybe_ring != nullptr) {
    window_->used_ -= span_.size;
    --window_->slots_;
    window_.reset();
    maybe_ring->Free(static_cast<size_t>(span_.data - maybe_ring->memory_.data()), span_.size);
  }
}

absl::StatusOr<std::unique_ptr<Ring>> Ring::Create(net::Transport& transport, Options options) {
  if (options.bytes == 0) {
    return absl::InvalidArgumentError("ring_bytes is 0");
  }
  const size_t bytes = RoundUp(options.bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("ring: cannot map ", bytes, " bytes"));
  }
  // Only a hint: fewer entries of the processors' translation buffers where the system has them.
  static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  const std::span<std::byte> mapped(static_cast<std::byte*>(memory), bytes);
  absl::StatusOr<std::unique_ptr<net::MemoryRegion>> region = transport.Register(mapped);
  if (!region.ok()) {
    munmap(memory, bytes);
    return region.status();
  }
  return std::unique_ptr<Ring>(
      new Ring(transport.executor(), options.waiters_max, mapped, std::move(*region)));
}

Ring::Ring(Executor& executor, size_t waiters_max, std::span<std::byte> memory,
           std::unique_ptr<net::MemoryRegion> region)
    : executor_(executor),
      waiters_max_(waiters_max),
      memory_(memory),
      region_(std::move(region)),
      free_{{0, memory.size()}},
      alive_(std::make_shared<bool>(true)) {}

Ring::~Ring() {
  TOKURA_CHECK(used_ == 0);
  *alive_ = false;
  region_.reset();
  munmap(memory_.data(), memory_.size());
}

RingSlot Ring::TryTake(size_t bytes, const RingWindowRef& window) {
  const bool overtakes = starved_ || !window->tickets_.empty();
  return overtakes || !window->Admits(SlotBytes(bytes)) ? RingSlot() : Allocate(bytes, window);
}

Ring::Ticket Ring::Wait(size_t bytes, RingWindowRef window, Grant grant) {
  if (SlotBytes(bytes) > memory_.size() || waiters_.size() >= waiters_max_) {
    return 0;
  }
  const Ticket ticket = next_ticket_++;
  // Until Serve has looked, nobody may take what this one may have been refused.
  starved_ = true;
  window->tickets_.insert(ticket);
  if (window->tickets_.size() == 1) {
    fronts_.emplace(ticket, window.get());
  }
  waiters_.emplace(ticket, Waiter{bytes, std::move(window), std::move(grant)});
  CountWaiters(1);
  ScheduleServe();
  return ticket;
}

Ring::Waiter Ring::Remove(Waiters::iterator waiter) {
  Waiter removed = std::move(waiter->second);
  RingWindow& window = *removed.window;
  window.tickets_.erase(waiter->first);
  if (fronts_.erase(waiter->first) > 0 && !window.tickets_.empty()) {
    fronts_.emplace(*window.tickets_.begin(), &window);
  }
  waiters_.erase(waiter);
  CountWaiters(-1);
  return removed;
}

void Ring::CancelWait(Ticket ticket) {
  const auto waiter = waiters_.find(ticket);
  if (waiter == waiters_.end()) {
    return;
  }
  // What the grant captured may call back: it is destroyed after the queue is consistent again.
  const Waiter dropped = Remove(waiter);
  starved_ = starved_ && !waiters_.empty();
  ScheduleServe();
}

RingSlot Ring::Allocate(size_t bytes, const RingWindowRef& window) {
  const size_t want = SlotBytes(bytes);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second < want) {
      continue;
    }
    const auto [offset, size] = *range;
    free_.erase(range);
    if (size > want) {
      free_.emplace(offset + want, size - want);
    }
    CountUsed(static_cast<int64_t>(want));
    window->used_ += want;
    ++window->slots_;
    return RingSlot(this, net::RegisteredSpan{region_.get(), memory_.data() + offset, want},
                    window);
  }
  return RingSlot();
}

void Ring::Free(size_t offset, size_t bytes) {
  TOKURA_DCHECK(executor_.IsCurrent());
  CountUsed(-static_cast<int64_t>(bytes));
  auto range = free_.emplace(offset, bytes).first;
  if (const auto next = std::next(range);
      next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    const auto previous = std::prev(range);
    if (previous->first + previous->second == range->first) {
      previous->second += range->second;
      free_.erase(range);
    }
  }
  ScheduleServe();
  if (used_ == 0 && on_idle_) {
    on_idle_();
  }
}

void Ring::CountUsed(int64_t delta) {
  used_ += static_cast<uint64_t>(delta);
  if (gauges_.used_bytes != nullptr) {
    gauges_.used_bytes->Increment(static_cast<double>(delta));
  }
}

void Ring::CountWaiters(int delta) {
  if (gauges_.waiters != nullptr) {
    gauges_.waiters->Increment(delta);
  }
}

void Ring::ScheduleServe() {
  if (waiters_.empty() || serve_scheduled_) {
    return;
  }
  serve_scheduled_ = true;
  executor_.Post([this, alive = alive_] {
    if (*alive) {
      serve_scheduled_ = false;
      Serve();
    }
  });
}

Ring::Waiters::iterator Ring::FirstAdmitted() {
  for (const auto& [ticket, window] : fronts_) {
    const auto waiter = waiters_.find(ticket);
    if (window->Admits(SlotBytes(waiter->second.bytes))) {
      return waiter;
    }
  }
  return waiters_.end();
}

void Ring::Serve() {
  for (auto first = FirstAdmitted(); first != waiters_.end(); first = FirstAdmitted()) {
    RingSlot slot = Allocate(first->second.bytes, first->second.window);
    if (!slot.valid()) {
      starved_ = true;
      return;
    }
    Remove(first).grant(std::move(slot));
  }
  starved_ = false;
}

}  // namespace tokura
