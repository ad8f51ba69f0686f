#include "cache-node/check_budget.h"

#include <algorithm>

namespace tokura::node {

CheckBudget::Leave& CheckBudget::Leave::operator=(Leave&& other) noexcept {
  if (this != &other) {
    End();
    budget_ = std::exchange(other.budget_, nullptr);
    block_ = other.block_;
  }
  return *this;
}

void CheckBudget::Leave::Refund(uint64_t bytes) {
  if (budget_ != nullptr) {
    MutexLock lock(budget_->mutex_);
    budget_->allowance_ += static_cast<double>(bytes);
  }
}

void CheckBudget::Leave::End() {
  if (CheckBudget* const budget = std::exchange(budget_, nullptr); budget != nullptr) {
    MutexLock lock(budget->mutex_);
    budget->under_way_.erase(block_);
  }
}

CheckBudget::CheckBudget(Limits limits)
    : limits_(limits), allowance_(static_cast<double>(limits.burst_bytes)) {}

CheckBudget::Leave CheckBudget::Take(const Block& block, uint64_t bytes, TimePoint now) {
  MutexLock lock(mutex_);
  // Two loops' clocks may be read in another order than they get here.
  if (grown_ != TimePoint::min() && now > grown_) {
    const double seconds = std::chrono::duration<double>(now - grown_).count();
    allowance_ += seconds * static_cast<double>(limits_.sound_bytes_per_second);
    allowance_ = std::min(allowance_, static_cast<double>(limits_.burst_bytes));
  }
  grown_ = std::max(grown_, now);
  Leave leave;
  if (under_way_.size() >= limits_.at_once || allowance_ <= 0 || under_way_.count(block) != 0) {
    return leave;
  }
  under_way_.insert(block);
  allowance_ -= static_cast<double>(bytes);
  leave.budget_ = this;
  leave.block_ = block;
  return leave;
}

size_t CheckBudget::under_way() const {
  MutexLock lock(mutex_);
  return under_way_.size();
}

}  // namespace tokura::node
