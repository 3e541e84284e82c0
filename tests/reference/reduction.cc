#include "reference/reduction.h"

#include "reduction/element.h"

namespace tutti::internal::reduction {
namespace {

template <DataType type, ReduceOp op>
void combine_all(std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
  if constexpr (supports(type, op)) {
    using T = Storage<type>;
    for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
      store_element<T>(target + i, combine_element<type, op>(load_element<T>(a + i), load_element<T>(b + i)));
    }
  }
}

template <DataType type>
void combine_type(ReduceOp op, std::byte* target, const std::byte* a, const std::byte* b, std::size_t count) {
  switch (op) {
    case ReduceOp::kSum: return combine_all<type, ReduceOp::kSum>(target, a, b, count);
    case ReduceOp::kProd: return combine_all<type, ReduceOp::kProd>(target, a, b, count);
    case ReduceOp::kMax: return combine_all<type, ReduceOp::kMax>(target, a, b, count);
    case ReduceOp::kMin: return combine_all<type, ReduceOp::kMin>(target, a, b, count);
    case ReduceOp::kAvg: return combine_all<type, ReduceOp::kAvg>(target, a, b, count);
    case ReduceOp::kBand: return combine_all<type, ReduceOp::kBand>(target, a, b, count);
    case ReduceOp::kBor: return combine_all<type, ReduceOp::kBor>(target, a, b, count);
    case ReduceOp::kBxor: return combine_all<type, ReduceOp::kBxor>(target, a, b, count);
    case ReduceOp::kLand: return combine_all<type, ReduceOp::kLand>(target, a, b, count);
    case ReduceOp::kLor: return combine_all<type, ReduceOp::kLor>(target, a, b, count);
    case ReduceOp::kLxor: return combine_all<type, ReduceOp::kLxor>(target, a, b, count);
    case ReduceOp::kPreMulSum:
    case ReduceOp::kUser:
    case ReduceOp::kUserOrdered:
    case ReduceOp::kSplit: return;  // no kernels
  }
}

template <DataType type>
void divide_all(std::byte* target, std::size_t count, std::size_t divisor) {
  if constexpr (supports(type, ReduceOp::kAvg)) {
    using T = Storage<type>;
    for (std::size_t i = 0; i < count * sizeof(T); i += sizeof(T)) {
      store_element<T>(target + i, divide_element<type>(load_element<T>(target + i), divisor));
    }
  }
}

}  // namespace

void combine_reference(DataType type, ReduceOp op, std::byte* target, const std::byte* a, const std::byte* b,
                       std::size_t count) {
  with_type(type, [&]<DataType t>() { combine_type<t>(op, target, a, b, count); });
}

void finish_reference(DataType type, std::byte* target, std::size_t count, std::size_t divisor) {
  with_type(type, [&]<DataType t>() { divide_all<t>(target, count, divisor); });
}

}  // namespace tutti::internal::reduction
