// Marks functions that nvcc compiles for host and device. Functions that call only constexpr functions need only be
// constexpr (--expt-relaxed-constexpr).
#pragma once

#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
