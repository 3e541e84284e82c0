// Kernels of the integer types.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/integers.cc"
#include "hwy/foreach_target.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Products modulo 2^8, from 16-bit products of the even and of the odd bytes.
template <class D>
HWY_INLINE hn::Vec<D> multiply8(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> wide;
  const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
  const auto even = hn::And(hn::Mul(x, y), hn::Set(wide, 0x00ff));
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
  return hn::BitCast(d, hn::Or(even, odd));
}

// Products modulo 2^64 from 32-bit halves; high times high falls outside.
template <class D>
HWY_INLINE hn::Vec<D> multiply64(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::RebindToUnsigned<D> d64;
  const hn::RepartitionToNarrow<decltype(d64)> d32;
  const auto x = hn::BitCast(d64, a), y = hn::BitCast(d64, b);
  const auto x_low = hn::BitCast(d32, x), y_low = hn::BitCast(d32, y);
  const auto x_high = hn::BitCast(d32, hn::ShiftRight<32>(x)), y_high = hn::BitCast(d32, hn::ShiftRight<32>(y));
  const auto cross = hn::Add(hn::MulEven(x_high, y_low), hn::MulEven(x_low, y_high));
  return hn::BitCast(d, hn::Add(hn::MulEven(x_low, y_low), hn::ShiftLeft<32>(cross)));
}

#endif

template <DataType type, ReduceOp op>
struct IntegerOperation {
  using T = Storage<type>;
  using Lane = T;
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFromVectorOnly = false;

  static HWY_INLINE T one(T a, T b) { return combine_element<type, op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = hn::ScalableTag<T>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (op == ReduceOp::kMax) {
      return hn::Max(a, b);
    } else if constexpr (op == ReduceOp::kMin) {
      return hn::Min(a, b);
    } else if constexpr (op == ReduceOp::kSum) {
      return hn::Add(a, b);
    } else if constexpr (sizeof(T) == 1) {
      return multiply8(d, a, b);
    } else if constexpr (sizeof(T) == 8) {
      return multiply64(d, a, b);
    } else {
      return hn::Mul(a, b);
    }
  }
#endif
};

// Division truncates towards zero. Elements of one, two and four bytes are divided as floating point, which is exact:
// the quotient of integers below 2^8 (2^32) that are not divisible differs from the next integer by more than float32
// (float64) rounds. The compiler vectorises those loops for the target.
template <DataType type>
void finish(std::byte* target, std::size_t count, std::size_t divisor) {
  if (leaves_default_mode<true>()) [[unlikely]]
    return in_default_mode(&finish<type>, target, count, divisor);
  using T = Storage<type>;
  const std::size_t bytes = count * sizeof(T);
  if constexpr (sizeof(T) == 8) {
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
      store_element<T>(target + i, divide_element<type>(load_element<T>(target + i), divisor));
    }
  } else {
    using F = std::conditional_t<sizeof(T) == 1, float, double>;
    const F by = static_cast<F>(divisor);
    for (std::size_t i = 0; i < bytes; i += sizeof(T)) {
      store_element<T>(target + i, static_cast<T>(static_cast<F>(load_element<T>(target + i)) / by));
    }
  }
}

// Sums and products are those modulo 2^n, whose bits do not depend on the sign: `type` takes those of `sign_free`, the
// unsigned type of its width.
template <DataType type, DataType sign_free>
void fill_type(Table& table) {
  static_assert(std::is_same_v<Storage<sign_free>, std::make_unsigned_t<Storage<type>>>);
  put<type, ReduceOp::kSum, IntegerOperation<sign_free, ReduceOp::kSum>>(table);
  put<type, ReduceOp::kProd, IntegerOperation<sign_free, ReduceOp::kProd>>(table);
  put<type, ReduceOp::kMax, IntegerOperation<type, ReduceOp::kMax>>(table);
  put<type, ReduceOp::kMin, IntegerOperation<type, ReduceOp::kMin>>(table);
  put<type, ReduceOp::kAvg, IntegerOperation<sign_free, ReduceOp::kSum>>(table);
  table.at(type, ReduceOp::kAvg).finish = &finish<type>;
}

void fill_integers(Table& table) {
  fill_type<DataType::kInt8, DataType::kUint8>(table);
  fill_type<DataType::kUint8, DataType::kUint8>(table);
  fill_type<DataType::kInt16, DataType::kUint16>(table);
  fill_type<DataType::kUint16, DataType::kUint16>(table);
  fill_type<DataType::kInt32, DataType::kUint32>(table);
  fill_type<DataType::kUint32, DataType::kUint32>(table);
  fill_type<DataType::kInt64, DataType::kUint64>(table);
  fill_type<DataType::kUint64, DataType::kUint64>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

TUTTI_FILLER(integer_filler, fill_integers)

}  // namespace tutti::internal::reduction
#endif
