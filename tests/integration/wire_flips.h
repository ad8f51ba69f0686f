#pragma once

// Bits that flip between two processes: the test's side of wire_flip_orders.h.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/wire_flip_orders.h"

namespace tokura::integration {

// Orders for one process that was started through launcher(). One thread.
class WireFlips {
 public:
  WireFlips();
  ~WireFlips();
  WireFlips(const WireFlips&) = delete;
  WireFlips& operator=(const WireFlips&) = delete;

  // Words to put before a program and its arguments.
  std::vector<std::string> launcher() const;

  struct Order {
    WireFlipTarget target = WireFlipTarget::kNothing;
    uint64_t bit = 0;
    uint32_t skip = 0;
  };
  // Flip one bit, from the next send of the target's kind on that is not skipped. Replaces an
  // order that was not carried out.
  void Arm(const Order& order);
  // Bits that have left the process flipped, one at most for an order.
  uint64_t flips() const { return orders_->flips.load(); }

 private:
  const std::string path_;
  WireFlipOrders* orders_ = nullptr;
};

}  // namespace tokura::integration
