// One element at a time on CUDA devices: as in element.h, with the same bits, by the device's own conversions. Only for
// nvcc. REQUIRES: compiled with -fmad=false, as element.h is with -ffp-contract=off.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "reduction/element.h"

namespace tutti::internal::reduction {

// Exact, and every NaN stays a NaN. Devices older than 8.9 convert float8 with instructions for other types.
template <DataType type>
__device__ inline float widen_on_device(Storage<type> code) {
  if constexpr (type == DataType::kFloat16) return __half2float(__ushort_as_half(code));
  if constexpr (type == DataType::kBfloat16) return bfloat16_to_float(code);
  if constexpr (type == DataType::kFloat8E4M3) return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
  if constexpr (type == DataType::kFloat8E5M2) return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E5M2)));
}

template <DataType type>
__device__ inline Storage<type> narrow_on_device(float value) {
  if (!(value == value)) return static_cast<Storage<type>>(~0u);
  if constexpr (type == DataType::kFloat16) return __half_as_ushort(__float2half_rn(value));
  if constexpr (type == DataType::kBfloat16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  if constexpr (type == DataType::kFloat8E4M3) return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
  if constexpr (type == DataType::kFloat8E5M2) return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
}

template <DataType type, ReduceOp op>
__device__ inline Storage<type> combine_on_device(Storage<type> a, Storage<type> b) {
  if constexpr (is_small_float(type)) {
    return narrow_on_device<type>(combine_floats<op>(widen_on_device<type>(a), widen_on_device<type>(b)));
  } else {
    return combine_element<type, op>(a, b);
  }
}

// Two small floats at once, as the device converts them. The first is in the lower bits.
template <DataType type>
__device__ inline float2 widen_pair(std::uint32_t codes) {
  if constexpr (type == DataType::kFloat16) {
    return __half22float2(__half2(__ushort_as_half(codes & 0xffffu), __ushort_as_half(codes >> 16)));
  } else if constexpr (type == DataType::kBfloat16) {
    return {__uint_as_float(codes << 16), __uint_as_float(codes & 0xffff0000u)};
  } else {
    constexpr auto kFormat = type == DataType::kFloat8E4M3 ? __NV_E4M3 : __NV_E5M2;
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), kFormat)));
  }
}

// Without a branch: sets all bits of a NaN.
template <DataType type>
__device__ inline std::uint32_t narrow_pair(float2 values) {
  if constexpr (type == DataType::kFloat16) {
    const __half2 both = __floats2half2_rn(values.x, values.y);
    const std::uint32_t codes = __half_as_ushort(both.x) | static_cast<std::uint32_t>(__half_as_ushort(both.y)) << 16;
    return codes | __hneu2_mask(both, both);
  } else if constexpr (type == DataType::kBfloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(values.x, values.y);
    const std::uint32_t codes = __bfloat16_as_ushort(both.x) | static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y))
                                                                   << 16;
    return codes | __hneu2_mask(both, both);
  } else {
    constexpr auto kFormat = type == DataType::kFloat8E4M3 ? __NV_E4M3 : __NV_E5M2;
    const std::uint32_t codes = __nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, kFormat);
    return codes | (values.x == values.x ? 0u : 0xffu) | (values.y == values.y ? 0u : 0xff00u);
  }
}

// Two at once. NaNs are not normalised yet.
template <DataType type, ReduceOp op>
__device__ inline std::uint32_t combine_pair(std::uint32_t a, std::uint32_t b) {
  const float2 p = widen_pair<type>(a);
  const float2 q = widen_pair<type>(b);
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg) return narrow_pair<type>({p.x + q.x, p.y + q.y});
  if constexpr (op == ReduceOp::kProd) return narrow_pair<type>({p.x * q.x, p.y * q.y});
  return narrow_pair<type>({combine_floats<op>(p.x, q.x), combine_floats<op>(p.y, q.y)});
}

// All elements in 32 bits at once: the same results as one by one.
template <DataType type, ReduceOp op>
__device__ inline std::uint32_t combine_word(std::uint32_t a, std::uint32_t b) {
  constexpr bool kBytes = sizeof(Storage<type>) == 1;
  constexpr bool kSigned = type == DataType::kInt8 || type == DataType::kInt16;
  if constexpr (op == ReduceOp::kBand) {
    return a & b;
  } else if constexpr (op == ReduceOp::kBor) {
    return a | b;
  } else if constexpr (op == ReduceOp::kBxor) {
    return a ^ b;
  } else if constexpr (type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2) {
    return combine_pair<type, op>(a & 0xffffu, b & 0xffffu) | combine_pair<type, op>(a >> 16, b >> 16) << 16;
  } else if constexpr (is_small_float(type)) {
    return combine_pair<type, op>(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    if constexpr (kSigned) return kBytes ? __vmaxs4(a, b) : __vmaxs2(a, b);
    return kBytes ? __vmaxu4(a, b) : __vmaxu2(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    if constexpr (kSigned) return kBytes ? __vmins4(a, b) : __vmins2(a, b);
    return kBytes ? __vminu4(a, b) : __vminu2(a, b);
  } else {
    return kBytes ? __vadd4(a, b) : __vadd2(a, b);
  }
}

// Whether combine_word() supports them.
constexpr bool combines_words(DataType type, ReduceOp op) {
  if (op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor) return !is_float(type);
  if (is_small_float(type)) return true;
  const bool narrow =
      type == DataType::kInt8 || type == DataType::kUint8 || type == DataType::kInt16 || type == DataType::kUint16;
  return narrow && (op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kMax || op == ReduceOp::kMin);
}

template <DataType type>
__device__ inline Storage<type> divide_on_device(Storage<type> value, std::uint32_t divisor) {
  if constexpr (is_small_float(type)) {
    return narrow_on_device<type>(widen_on_device<type>(value) / static_cast<float>(divisor));
  } else {
    return divide_element<type>(value, divisor);
  }
}

}  // namespace tutti::internal::reduction
