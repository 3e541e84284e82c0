// Kernels of the bitwise and logical operators of the integer types, and of all operators of booleans. They depend only
// on the width of an element, so signed and unsigned types share them.
#include "reduction/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/logic.cc"
#include "hwy/foreach_target.h"
#include "reduction/loops_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::internal::reduction::HWY_NAMESPACE {

// U: an unsigned integer.
template <class U, ReduceOp op>
struct LogicOperation {
  using T = U;
  using Lane = U;
  static constexpr std::size_t kUnroll = 4;
  static constexpr bool kFromVectorOnly = false;

  static HWY_INLINE T one(T a, T b) { return combine_integers<op>(a, b); }

#if HWY_TARGET != HWY_SCALAR
  using Tag = hn::ScalableTag<Lane>;
  template <class D>
  static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto zero = hn::Zero(d), one = hn::Set(d, Lane{1});
    if constexpr (op == ReduceOp::kBand) {
      return hn::And(a, b);
    } else if constexpr (op == ReduceOp::kBor) {
      return hn::Or(a, b);
    } else if constexpr (op == ReduceOp::kBxor) {
      return hn::Xor(a, b);
    } else if constexpr (op == ReduceOp::kLand) {
      return hn::IfThenZeroElse(hn::Or(hn::Eq(a, zero), hn::Eq(b, zero)), one);
    } else if constexpr (op == ReduceOp::kLor) {
      return hn::IfThenZeroElse(hn::Eq(hn::Or(a, b), zero), one);
    } else {
      return hn::IfThenElseZero(hn::Xor(hn::Eq(a, zero), hn::Eq(b, zero)), one);
    }
  }
#endif
};

// The loops of bytes, for elements of several bytes.
template <ReduceOp op, std::size_t size>
struct BytesOperation {
  using Bytes = Loops<LogicOperation<std::uint8_t, op>, false>;
  static void combine(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
    Bytes::combine(target, a, b, count * size);
  }
  static void combine_streaming(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
    Bytes::combine_streaming(target, a, b, count * size);
  }
  template <bool stream>
  static void combine_twice(std::byte* target, std::byte* also, const std::byte* a, const std::byte* b,
                            std::size_t count) {
    Bytes::template combine_twice<stream>(target, also, a, b, count * size);
  }
};

template <DataType type, ReduceOp op>
void put_bitwise(Table& table) {
  using Operation = BytesOperation<op, sizeof(Storage<type>)>;
  table.at(type, op) = {&Operation::combine,
                        &Operation::combine_streaming,
                        &Operation::template combine_twice<false>,
                        &Operation::template combine_twice<true>,
                        nullptr,
                        &Operation::combine};
}

template <DataType type>
void fill_integer(Table& table) {
  using U = std::make_unsigned_t<Storage<type>>;
  put_bitwise<type, ReduceOp::kBand>(table);
  put_bitwise<type, ReduceOp::kBor>(table);
  put_bitwise<type, ReduceOp::kBxor>(table);
  put<type, ReduceOp::kLand, LogicOperation<U, ReduceOp::kLand>>(table);
  put<type, ReduceOp::kLor, LogicOperation<U, ReduceOp::kLor>>(table);
  put<type, ReduceOp::kLxor, LogicOperation<U, ReduceOp::kLxor>>(table);
}

template <ReduceOp... op>
void fill_bool(Table& table) {
  (put<DataType::kBool, op, LogicOperation<std::uint8_t, logical_of(op)>>(table), ...);
}

void fill_logic(Table& table) {
  fill_integer<DataType::kInt8>(table);
  fill_integer<DataType::kUint8>(table);
  fill_integer<DataType::kInt16>(table);
  fill_integer<DataType::kUint16>(table);
  fill_integer<DataType::kInt32>(table);
  fill_integer<DataType::kUint32>(table);
  fill_integer<DataType::kInt64>(table);
  fill_integer<DataType::kUint64>(table);
  fill_bool<ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kBand, ReduceOp::kBor,
            ReduceOp::kBxor, ReduceOp::kLand, ReduceOp::kLor, ReduceOp::kLxor>(table);
}

}  // namespace tutti::internal::reduction::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::internal::reduction {

TUTTI_FILLER(logic_filler, fill_logic)

}  // namespace tutti::internal::reduction
#endif
