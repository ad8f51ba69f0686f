#pragma once

#include "cli/kvcap.h"

namespace tokura::cli {

// A capture of a tiny model whose values all differ: `layers` layers (every second one sliding with
// window 5), 2 KV heads, 4 query heads, head size 8, `tokens` positions from `first_position` on,
// the last `queries` with queries.
struct SmallCaptureOptions {
  uint32_t layers = 3;
  uint32_t tokens = 12;
  uint32_t first_position = 0;
  uint32_t queries = 4;
};
Capture SmallCapture(const SmallCaptureOptions& options = {});

}  // namespace tokura::cli
