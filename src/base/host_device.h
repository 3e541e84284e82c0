// For functions that devices run as well: nvcc compiles those so marked for both. Those that call nothing of the kind
// need only be constexpr (--expt-relaxed-constexpr).
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
