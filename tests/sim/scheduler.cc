#include "tests/sim/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace tokura::sim {
namespace {

// Slots are addressed by the low bits of an event's id, its sequence number by the rest.
constexpr int kSlotBits = 24;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

}  // namespace

uint64_t SimRandom::Draw() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void SimRandom::Fill(std::span<std::byte> out) {
  while (!out.empty()) {
    const uint64_t word = Draw();
    const size_t count = std::min(out.size(), sizeof(word));
    std::memcpy(out.data(), &word, count);
    out = out.subspan(count);
  }
}

Duration SimRandom::Between(Duration low, Duration high) {
  return low +
         Duration(static_cast<int64_t>(Below(static_cast<uint64_t>((high - low).count()) + 1)));
}

// Time starts well above zero, so that subtracting a timeout never leaves the sane range.
SimScheduler::SimScheduler(uint64_t seed)
    : random_(seed), now_(TimePoint{} + std::chrono::hours(1)) {}

SimScheduler::~SimScheduler() = default;

EventId SimScheduler::At(TimePoint when, Task task) {
  size_t slot = slots_.size();
  if (free_slots_.empty()) {
    TOKURA_CHECK(slot < kSlotMask);
    slots_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  const uint64_t sequence = ++sequence_;
  slots_[slot].sequence = sequence;
  slots_[slot].task = std::move(task);
  heap_.push_back({std::max(when, now_), sequence, slot});
  std::push_heap(heap_.begin(), heap_.end());
  return (sequence << kSlotBits) | slot;
}

void SimScheduler::Cancel(EventId id) {
  const size_t slot = id & kSlotMask;
  if (id != 0 && slot < slots_.size() && slots_[slot].sequence == id >> kSlotBits) {
    slots_[slot].sequence = 0;
    // Destroyed after the slot is consistent: the task's destructor may cancel or make events.
    const Task forgotten = std::exchange(slots_[slot].task, nullptr);
  }
}

bool SimScheduler::Step() {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    Slot& slot = slots_[entry.slot];
    const bool cancelled = slot.sequence != entry.sequence;
    Task task = std::exchange(slot.task, nullptr);
    slot.sequence = 0;
    free_slots_.push_back(entry.slot);
    if (cancelled) {
      continue;
    }
    now_ = entry.when;
    ++events_;
    Fold(static_cast<uint64_t>(now_.time_since_epoch().count()));
    Fold(entry.sequence);
    task();
    return true;
  }
  return false;
}

void SimScheduler::RunUntil(TimePoint when) {
  while (!heap_.empty() && heap_.front().when <= when) {
    Step();
  }
  now_ = std::max(now_, when);
}

void SimScheduler::Fold(uint64_t value) {
  hash_ = (hash_ ^ value) * 0x100000001b3u;
  hash_ ^= hash_ >> 29;
}

void SimScheduler::Record(std::string_view what, uint64_t a, uint64_t b) {
  for (const char c : what) {
    Fold(static_cast<unsigned char>(c));
  }
  Fold(a);
  Fold(b);
  if (tracing_) {
    std::fprintf(
        stderr, "%12.3f ms %.*s %llu %llu\n",
        std::chrono::duration<double, std::milli>(now_.time_since_epoch() - std::chrono::hours(1))
            .count(),
        static_cast<int>(what.size()), what.data(), static_cast<unsigned long long>(a),
        static_cast<unsigned long long>(b));
  }
}

}  // namespace tokura::sim
