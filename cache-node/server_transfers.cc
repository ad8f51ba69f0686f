#include "cache-node/server_transfers.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tokura::node {

TransferGate::Slot::Slot(TransferGate& gate) : gate_(gate) {
  gate_.slots_.push_back(this);
}

TransferGate::Slot::~Slot() {
  gate_.under_way_ -= under_way_;
  auto it = std::find(gate_.slots_.begin(), gate_.slots_.end(), this);
  TOKURA_CHECK(it != gate_.slots_.end());
  const size_t index = static_cast<size_t>(it - gate_.slots_.begin());
  gate_.slots_.erase(it);
  if (gate_.next_ > index) {
    --gate_.next_;
  }
}

void TransferGate::Slot::Add(std::shared_ptr<TransferSource> source) {
  if (std::find(queue_.begin(), queue_.end(), source) == queue_.end()) {
    queue_.push_back(std::move(source));
  }
  gate_.Pump();
}

void TransferGate::Slot::Finish(uint64_t bytes) {
  TOKURA_CHECK(bytes <= under_way_ && bytes <= gate_.under_way_);
  under_way_ -= bytes;
  gate_.under_way_ -= bytes;
  gate_.Pump();
}

void TransferGate::Slot::Clear() {
  queue_.clear();
}

size_t TransferGate::waiting() const {
  size_t count = 0;
  for (const Slot* slot : slots_) {
    count += slot->queue_.size();
  }
  return count;
}

bool TransferGate::Fits(const Slot& slot, uint64_t bytes) const {
  if (under_way_ >= bytes_max_) {
    return under_way_ == 0;
  }
  return slot.under_way_ == 0 || slot.under_way_ + bytes <= bytes_max_ - under_way_;
}

TransferGate::Turn TransferGate::TryOne(Slot& slot) {
  while (!slot.queue_.empty()) {
    // A copy: starting a transfer may end the request and with it the slot's queue.
    const std::shared_ptr<TransferSource> source = slot.queue_.front();
    const uint64_t bytes = source->next_bytes();
    if (bytes == 0) {
      slot.queue_.pop_front();
      continue;
    }
    if (!Fits(slot, bytes)) {
      return Turn::kFull;
    }
    slot.under_way_ += bytes;
    under_way_ += bytes;
    if (source->StartNext() == TransferSource::Started::kYes) {
      return Turn::kStarted;
    }
    slot.under_way_ -= bytes;
    under_way_ -= bytes;
  }
  return Turn::kNothing;
}

void TransferGate::Pump() {
  if (pumping_) {
    return;  // The loop below sees what changed.
  }
  pumping_ = true;
  size_t idle = 0;  // slots in a row that could not start anything
  while (!slots_.empty() && idle < slots_.size()) {
    if (next_ >= slots_.size()) {
      next_ = 0;
    }
    Slot& slot = *slots_[next_];
    ++next_;
    idle = TryOne(slot) == Turn::kStarted ? 0 : idle + 1;
  }
  pumping_ = false;
}

}  // namespace tokura::node
