#pragma once

// Copies past the processor's caches, for destinations that nobody reads soon. Internal to
// kernels/.

#include <cstddef>

namespace tokura::kernels {

// As memcpy. On x86 whole cache lines of `to` are written without being fetched first, and do not
// take the place of what the caches hold: memory traffic is half of memcpy's where `to` is not
// cached. Others see the bytes in order only after StreamFence.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);

// Order all StreamCopy of this thread before what it writes next.
void StreamFence();

}  // namespace tokura::kernels
