#pragma once

#include "common/time.h"

namespace tokura::net {

// How long a loop with nothing to do stays awake before it sleeps. Being woken costs the peer some
// tens of microseconds, so a loop that was woken soon after it had fallen asleep is patient the
// next time, and one that waited long is not: a busy connection's gaps are alike, and an idle one
// must not cost a processor. Thread-compatible.
class LoopPatience {
 public:
  // `least` in any case; up to `most` while that pays.
  LoopPatience(Duration least, Duration most) : least_(least), most_(most), now_(least) {}

  Duration now() const { return now_; }
  // A wait is over after `idle`.
  void Waited(Duration idle) {
    if (idle > least_) {  // shorter ones say nothing about those that are long
      now_ = idle <= most_ ? most_ : least_;
    }
  }

 private:
  const Duration least_;
  const Duration most_;
  Duration now_;
};

}  // namespace tokura::net
