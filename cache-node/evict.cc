#include "cache-node/evict.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace tokura::node {

void VictimQueue::Touch(StoredBlock& block, TimePoint now) const {
  block.touched_value.store(clock_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  block.touched_ns.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

void VictimQueue::File(StoredBlock& block) {
  Withdraw(block);
  block.rank = RankOf(block);
  block.in_queue = true;
  queue_.insert({block.rank, &block});
}

void VictimQueue::Withdraw(StoredBlock& block) {
  if (block.in_queue) {
    TOKURA_CHECK(queue_.erase({block.rank, &block}) == 1);
    block.in_queue = false;
  }
}

StoredBlock* VictimQueue::Front(size_t& steps) {
  while (!queue_.empty()) {
    StoredBlock& block = *queue_.begin()->block;
    if (steps == 0 || RankOf(block) <= block.rank) {
      return &block;
    }
    --steps;
    File(block);
  }
  return nullptr;
}

void VictimQueue::Advance(const StoredBlock& victim) {
  if (victim.rank.kind != 0) {
    const uint64_t clock = clock_.load(std::memory_order_relaxed);
    clock_.store(std::max(clock, victim.rank.value), std::memory_order_relaxed);
  }
}

uint64_t VictimQueue::Density(const StoredBlock& block) {
  constexpr double kOne = 1024;
  constexpr uint64_t kPositionTwice = 512;
  constexpr double kDensityMin = 1.0 / kOne;
  constexpr double kDensityMax = 256;
  uint64_t logical = 0;
  uint64_t stored = 0;
  for (const StoredForm* form = block.complete; form != nullptr; form = form->next) {
    logical = std::max(logical, form->info.logical_bytes);
    stored += form->info.stored_bytes;
  }
  const double cost = static_cast<double>(logical) *
                      static_cast<double>(kPositionTwice + block.position) / kPositionTwice;
  const double density = cost / static_cast<double>(std::max<uint64_t>(stored, 1));
  const double half_octaves =
      std::round(2 * std::log2(std::clamp(density, kDensityMin, kDensityMax)));
  return static_cast<uint64_t>(kOne * std::exp2(half_octaves / 2));
}

EvictRank VictimQueue::RankOf(const StoredBlock& block) const {
  return {static_cast<uint8_t>(block.orphan ? 0 : 1),
          block.touched_value.load(std::memory_order_relaxed) + Density(block),
          block.touched_ns.load(std::memory_order_relaxed), block.handle};
}

}  // namespace tokura::node
