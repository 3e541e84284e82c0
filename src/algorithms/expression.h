// Arithmetic in files of schedules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::algorithms {

// Integers, + - * / %, comparisons, && || !, brackets, min(a, b), max(a, b), xor(a, b), log2(a) (rounded up), and
// names. Division rounds down, and the remainder has the sign of the divisor: (rank - 1) % ranks is the rank before. A
// comparison is 1 or 0.
class Expression {
 public:
  Expression() = default;
  // `names`: by position in the values that value() is given. kInvalidArgument says what cannot be read.
  static Result<Expression> parse(const std::string& text, const std::vector<std::string>& names);

  // kInvalidArgument: a division by 0, or a number beyond 2^53.
  [[nodiscard]] Result<std::int64_t> value(const std::vector<std::int64_t>& values) const;

 private:
  friend class ExpressionParser;
  enum class Op : std::uint8_t {
    kNumber,
    kName,
    kNegate,
    kNot,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder,
    kEqual,
    kUnequal,
    kLess,
    kLessOrEqual,
    kAnd,
    kOr,
    kMin,
    kMax,
    kXor,
    kLog2,
  };
  struct Item {
    Op op = Op::kNumber;
    std::int64_t number = 0;  // or the position of a name
  };
  std::vector<Item> items_;  // operands before operators
};

}  // namespace tutti::internal::algorithms
