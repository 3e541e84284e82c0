// Arithmetic in files of schedules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/places.h"
#include "base/status.h"

namespace tutti::internal::algorithms {

// Integers, + - * / %, comparisons, && || !, brackets, min(a, b), max(a, b), xor(a, b), log2(a) (rounded up), where
// ranks are, and names. Division rounds down, and the remainder has the sign of the divisor: (rank - 1) % ranks is the
// rank before. A comparison is 1 or 0. Where ranks are: rank_of(host, local rank), host_of(rank), local_rank_of(rank),
// local_ranks_of(host), all of them from 0.
class Expression {
 public:
  Expression() = default;
  // `names`: by position in the values that value() is given. kInvalidArgument says what cannot be read.
  static Result<Expression> parse(const std::string& text, const std::vector<std::string>& names);

  // kInvalidArgument: a division by 0, a number beyond 2^53, or a rank or a host that there is not.
  [[nodiscard]] Result<std::int64_t> value(const std::vector<std::int64_t>& values, const Places& places) const;
  // Numbers, names and operators: what it takes to evaluate it.
  [[nodiscard]] std::size_t length() const { return items_.size(); }
  // Whether it has the name at this position.
  [[nodiscard]] bool names(std::size_t position) const;
  // Whether it asks where ranks are.
  [[nodiscard]] bool asks_for_places() const;

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
    kRankOf,
    kHostOf,
    kLocalRankOf,
    kLocalRanksOf,
  };
  static bool is_of_places(Op op) { return op >= Op::kRankOf; }
  static bool takes_one(Op op) {
    return op == Op::kNegate || op == Op::kNot || op == Op::kLog2 || (is_of_places(op) && op != Op::kRankOf);
  }
  static Result<std::int64_t> of_places(Op op, std::int64_t a, std::int64_t b, const Places& places);

  struct Item {
    Op op = Op::kNumber;
    std::int64_t number = 0;  // or the position of a name
  };
  std::vector<Item> items_;  // operands before operators
};

}  // namespace tutti::internal::algorithms
