#pragma once

#include <cstdint>

#include "kernels/profile.h"
#include "proto/namespace.h"

namespace tokura {

// A valid profile that fits the namespace, of full attention, and has what every codec needs;
// others of another `seed`. Its numbers mean nothing.
kernels::ProfileData ProfileFor(const NamespaceSpec& spec, uint32_t seed = 1);

}  // namespace tokura
