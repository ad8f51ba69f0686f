#pragma once

#include <vector>

namespace tokura {

// The CPUs that the calling thread may run on, in order; empty when the system does not say. That
// is what a container or taskset leaves of the machine's; what a control group's quota leaves of
// them is not looked at. Thread-safe.
std::vector<int> AllowedCpus();

}  // namespace tokura
