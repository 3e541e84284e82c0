// Element-wise combination of two vectors in host memory: every datatype, every operator, with SIMD chosen at run time
// for the processor.
//
// Semantics, the same in every SIMD target and in the scalar reference:
//  - integers: sum and prod wrap modulo 2^bits; max and min compare as signed or unsigned by type; band, bor and bxor
//    work bit by bit; land, lor and lxor take what is not 0 for true and give 0 or 1;
//  - booleans: bytes that count as true if they are not 0, results are 0 or 1; sum, max, bor and lor are one and the
//    same, so are prod, min, band and land, and bxor and lxor; no avg;
//  - complex numbers: sum, prod, avg; each part is a float as below; prod is (ac - bd) + (ad + bc)i, each operation
//    rounded;
//  - float16, bfloat16, float8: both operands are widened to float32, combined, and rounded to nearest
//    even once; float8e4m3 (OCP "fn": no infinity) saturates to +-448 on overflow, as conversions in
//    CUDA do by default (__NV_SATFINITE); float8e5m2 likewise saturates to +-57344 (an infinite result, of
//    an infinite operand too, counts as overflow);
//  - kernels run in the default floating-point mode (base/float_mode.h), whatever mode their thread is in;
//  - every NaN that is combined or divided becomes the same one, that with all bits set: swapping the operands of
//    a combination never changes a bit of its result;
//  - max and min of floats: if an operand is NaN the result is NaN; +0 is above -0;
//  - avg: combined as sum, and divided by `finish` after the last combination (as NCCL does).
//    Integers divide with truncation towards zero, of the wrapped sum; 16- and 8-bit floats divide in
//    float32 and round once; float32 and float64 divide in their own type.
#pragma once

#include <cstddef>

#include "base/types.h"

namespace tutti::internal::reduction {

// target[i] = a[i] op b[i] for i < count elements. target may equal a or b (or both) exactly; other overlap is not
// allowed. No alignment is required beyond that of std::byte. Any number of threads may call it at the same time on
// different targets. It points directly to the code for this processor.
using Combine = void (*)(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count);
// target[i] = also[i] = a[i] op b[i]. target may equal a or b; `also` overlaps nothing.
using CombineTwice = void (*)(std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                              std::size_t count);
// target[i] /= divisor, in place; divisor >= 1.
using Finish = void (*)(std::byte* target, std::size_t count, std::size_t divisor);

struct Kernels {
  Combine combine = nullptr;
  // The same with non-temporal stores: for outputs that will not fit the cache and are not read soon.
  // Orders its stores before it returns (sfence). Short outputs, and those whose address is not a multiple
  // of the element's size, get ordinary stores.
  Combine combine_streaming = nullptr;
  // The same into two targets in one pass; fastest if both have the same address modulo 64.
  CombineTwice combine_twice = nullptr;
  CombineTwice combine_twice_streaming = nullptr;
  // Null unless op is kAvg.
  Finish finish = nullptr;
  // As `combine`, without the check of the floating-point mode: the caller knows that it is the default one.
  Combine combine_in_default_mode = nullptr;
};

// A table look-up; the reference is always valid. If supports() is false, all pointers are null.
const Kernels& kernels(DataType type, ReduceOp op);

// target[i] = factor * source[i], i < count elements; `factor` is one element; the product is the same as with kProd.
// target may equal source. REQUIRES: supports(type, kProd).
void scale(DataType type, std::byte* target, const std::byte* source, const void* factor, std::size_t count);

// Name of the SIMD target in use, for reports: "AVX3", "AVX2", ...
const char* simd_target();

}  // namespace tutti::internal::reduction
