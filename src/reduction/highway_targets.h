// The compiled Highway targets; every translation unit with kernels includes this first, because all must agree. SSSE3
// is omitted (its machines run the baseline): it would lengthen the build for processors older than 2008. The scalable
// vectors of SVE are omitted because the kernels need vectors of known size; those processors run NEON.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include "hwy/targets.h"
