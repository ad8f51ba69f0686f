#pragma once

// Marks functions that host and device code share. Headers that use it hold arithmetic only: no
// standard containers, nothing that allocates.

#if defined(__CUDACC__)
#define TOKURA_HOST_DEVICE __host__ __device__
#else
#define TOKURA_HOST_DEVICE
#endif
