#include "base/types.h"

#include <fmt/core.h>

#include <array>

namespace tutti::internal {
namespace {

// By the values of the enumeration.
constexpr std::array kTypeNames = {"int8",  "uint8",  "int32",     "uint32",     "int64",  "uint64",
                                   "half",  "float",  "double",    "bfloat16",   "f8e4m3", "f8e5m2",
                                   "int16", "uint16", "complex64", "complex128", "bool",   "opaque"};
static_assert(kTypeNames.size() == static_cast<std::size_t>(DataType::kOpaque) + 1);

}  // namespace

const char* name_of(DataType type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kTypeNames.size() ? kTypeNames[number] : "unknown";
}

std::string name_of(DataType type, const Opaque& opaque) {
  return type == DataType::kOpaque ? fmt::format("opaque of {} bytes", opaque.bytes) : name_of(type);
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kBand: return "band";
    case ReduceOp::kBor: return "bor";
    case ReduceOp::kBxor: return "bxor";
    case ReduceOp::kLand: return "land";
    case ReduceOp::kLor: return "lor";
    case ReduceOp::kLxor: return "lxor";
    case ReduceOp::kPreMulSum: return "pre-multiplied sum";
    case ReduceOp::kUser: return "user function";
    case ReduceOp::kUserOrdered: return "non-commutative user function";
    case ReduceOp::kSplit: return "split";
  }
  return "unknown";
}

}  // namespace tutti::internal
