// Arithmetic expressions in schedule files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/places.h"
#include "base/status.h"

namespace tutti::internal::algorithms {

// Integers, + - * / %, comparisons, && || !, brackets, min(a, b), max(a, b), xor(a, b), log2(a) (rounded up), functions
// of hosts, and names. Division rounds down, and the remainder has the sign of the divisor: (rank - 1) % ranks is the
// previous rank. A comparison is 1 or 0. Functions of hosts: rank_of(host, local rank), host_of(rank),
// local_rank_of(rank), local_ranks_of(host), all of them from 0.
class Expression {
 public:
  Expression() = default;
  // `names`: by position in the values of value(). kInvalidArgument names the invalid part.
  static Result<Expression> parse(const std::string& text, const std::vector<std::string>& names);

  // kInvalidArgument: a division by 0, a number beyond 2^53, or a rank or host that does not exist.
  [[nodiscard]] Result<std::int64_t> value(const std::vector<std::int64_t>& values, const Places& places) const;
  // The number of numbers, names and operators: the cost of evaluating it.
  [[nodiscard]] std::size_t length() const { return items_.size(); }
  // Whether it has the name at this position.
  [[nodiscard]] bool names(std::size_t position) const;
  // Whether it uses functions of hosts.
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
