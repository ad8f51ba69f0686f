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
    : maybe_ring_(std::exchange(other.maybe_ring_, nullptr)), span_(other.span_) {}

RingSlot& RingSlot::operator=(RingSlot&& other) noexcept {
  if (this != &other) {
    Reset();
    maybe_ring_ = std::exchange(other.maybe_ring_, nullptr);
    span_ = other.span_;
  }
  return *this;
}

void RingSlot::Trim(size_t bytes) {
  const size_t keep = SlotBytes(bytes);
  if (maybe_ring_ == nullptr || keep >= span_.size) {
    return;
  }
  const size_t offset = static_cast<size_t>(span_.data - maybe_ring_->memory_.data());
  maybe_ring_->Free(offset + keep, span_.size - keep);
  span_.size = keep;
}

void RingSlot::Reset() {
  if (Ring* maybe_ring = std::exchange(maybe_ring_, nullptr); maybe_ring != nullptr) {
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

RingSlot Ring::TryTake(size_t bytes) {
  return waiters_.empty() ? Allocate(bytes) : RingSlot();
}

Ring::Ticket Ring::Wait(size_t bytes, Grant grant) {
  if (SlotBytes(bytes) > memory_.size() || waiters_.size() >= waiters_max_) {
    return 0;
  }
  const Ticket ticket = next_ticket_++;
  waiters_.emplace(ticket, Waiter{bytes, std::move(grant)});
  CountWaiters(1);
  ScheduleServe();
  return ticket;
}

void Ring::CancelWait(Ticket ticket) {
  const auto waiter = waiters_.find(ticket);
  if (waiter == waiters_.end()) {
    return;
  }
  // What the grant captured may call back: it is destroyed after the queue is consistent again.
  const Waiter dropped = std::move(waiter->second);
  waiters_.erase(waiter);
  CountWaiters(-1);
  ScheduleServe();
}

RingSlot Ring::Allocate(size_t bytes) {
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
    return RingSlot(this, net::RegisteredSpan{region_.get(), memory_.data() + offset, want});
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

void Ring::Serve() {
  while (!waiters_.empty()) {
    RingSlot slot = Allocate(waiters_.begin()->second.bytes);
    if (!slot.valid()) {
      return;
    }
    Waiter waiter = std::move(waiters_.begin()->second);
    waiters_.erase(waiters_.begin());
    CountWaiters(-1);
    waiter.grant(std::move(slot));
  }
}

}  // namespace tokura
