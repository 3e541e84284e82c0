#include "algorithms/expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace tutti::internal::algorithms {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 53;
constexpr int kMostDepth = 100;
constexpr std::size_t kMostLetters = 10'000;

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

std::int64_t log2_up(std::int64_t a) {
  std::int64_t k = 0;
  while ((std::int64_t{1} << k) < a) ++k;
  return k;
}

}  // namespace

// By precedence climbing.
class ExpressionParser {
 public:
  using Op = Expression::Op;

  ExpressionParser(const std::string& text, const std::vector<std::string>& names) : text_(text), names_(names) {}

  Result<Expression> run() {
    if (text_.size() > kMostLetters) return Status::invalid_argument("it is too long");
    parse(0, 0);
    skip();
    if (why_.empty() && at_ < text_.size()) why_ = fmt::format("unexpected \"{}\"", text_.substr(at_, 12));
    if (!why_.empty()) return Status::invalid_argument(why_);
    return std::move(made_);
  }

 private:
  struct Binary {
    const char* text;
    Op op;
    int precedence;
    bool swapped;  // a > b is b < a
  };
  static constexpr std::array<Binary, 13> kBinaries = {{{"||", Op::kOr, 1, false},
                                                        {"&&", Op::kAnd, 2, false},
                                                        {"==", Op::kEqual, 3, false},
                                                        {"!=", Op::kUnequal, 3, false},
                                                        {"<=", Op::kLessOrEqual, 4, false},
                                                        {">=", Op::kLess, 4, true},
                                                        {"<", Op::kLess, 4, false},
                                                        {">", Op::kLessOrEqual, 4, true},
                                                        {"+", Op::kAdd, 5, false},
                                                        {"-", Op::kSubtract, 5, false},
                                                        {"*", Op::kMultiply, 6, false},
                                                        {"/", Op::kDivide, 6, false},
                                                        {"%", Op::kRemainder, 6, false}}};

  void fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view word) {
    skip();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void add(Op op, std::int64_t number = 0) { made_.items_.push_back({op, number}); }

  // Parses operators with at least this precedence.
  void parse(int least, int depth) {
    if (depth > kMostDepth) return fail("it is nested too deep");
    operand(depth);
    while (why_.empty()) {
      skip();
      const auto found = std::find_if(kBinaries.begin(), kBinaries.end(), [&](const Binary& b) {
        return text_.compare(at_, std::string_view(b.text).size(), b.text) == 0;
      });
      if (found == kBinaries.end() || found->precedence < std::max(least, 1)) return;
      at_ += std::string_view(found->text).size();
      parse(found->precedence + 1, depth + 1);
      add(found->op);
      if (found->swapped) add(Op::kNot);  // a >= b: not a < b
    }
  }

  void operand(int depth) {
    if (take("(")) {
      parse(0, depth + 1);
      if (!take(")")) fail("a \")\" is missing");
      return;
    }
    if (take("-")) {
      if (depth > kMostDepth) return fail("it is nested too deep");
      operand(depth + 1);
      return add(Op::kNegate);
    }
    if (take("!")) {
      if (depth > kMostDepth) return fail("it is nested too deep");
      operand(depth + 1);
      return add(Op::kNot);
    }
    skip();
    const std::size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word = text_.substr(from, at_ - from);
    if (word.empty())
      return fail(at_ < text_.size() ? fmt::format("unexpected \"{}\"", text_.substr(at_, 12))
                                     : "the expression is incomplete");
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0) return number(word);
    if (take("(")) return function(word, depth);
    const auto known = std::find(names_.begin(), names_.end(), word);
    if (known == names_.end()) return fail(fmt::format("\"{}\" is not defined here", word));
    // If two have the same name, the inner one.
    add(Op::kName, static_cast<std::int64_t>(names_.rend() - std::find(names_.rbegin(), names_.rend(), word)) - 1);
  }

  void number(const std::string& word) {
    std::int64_t value = 0;
    for (const char c : word) {
      if (std::isdigit(static_cast<unsigned char>(c)) == 0 || value > kMost / 10)
        return fail(fmt::format("\"{}\" is not a number", word));
      value = 10 * value + (c - '0');
    }
    if (value > kMost) return fail(fmt::format("\"{}\" is not a number", word));
    add(Op::kNumber, value);
  }

  void function(const std::string& name, int depth) {
    struct Known {
      const char* name;
      Op op;
      int operands;
    };
    static constexpr std::array<Known, 8> kFunctions = {{{"min", Op::kMin, 2},
                                                         {"max", Op::kMax, 2},
                                                         {"xor", Op::kXor, 2},
                                                         {"log2", Op::kLog2, 1},
                                                         {"rank_of", Op::kRankOf, 2},
                                                         {"host_of", Op::kHostOf, 1},
                                                         {"local_rank_of", Op::kLocalRankOf, 1},
                                                         {"local_ranks_of", Op::kLocalRanksOf, 1}}};
    const auto known =
        std::find_if(kFunctions.begin(), kFunctions.end(), [&](const Known& k) { return name == k.name; });
    if (known == kFunctions.end()) return fail(fmt::format("there is no function \"{}\"", name));
    parse(0, depth + 1);
    for (int i = 1; i < known->operands && why_.empty(); ++i) {
      if (!take(",")) return fail(fmt::format("{} takes {} operands", name, known->operands));
      parse(0, depth + 1);
    }
    if (!take(")")) fail("a \")\" is missing");
    add(known->op);
  }

  const std::string& text_;
  const std::vector<std::string>& names_;
  std::size_t at_ = 0;
  std::string why_;
  Expression made_;
};

Result<Expression> Expression::parse(const std::string& text, const std::vector<std::string>& names) {
  return ExpressionParser(text, names).run();
}

bool Expression::names(std::size_t position) const {
  return std::any_of(items_.begin(), items_.end(), [&](const Item& item) {
    return item.op == Op::kName && static_cast<std::size_t>(item.number) == position;
  });
}

bool Expression::asks_for_places() const {
  return std::any_of(items_.begin(), items_.end(), [](const Item& item) { return is_of_places(item.op); });
}

// `a` is the host of kRankOf alone, `b` the last operand.
Result<std::int64_t> Expression::of_places(Op op, std::int64_t a, std::int64_t b, const Places& places) {
  const auto none = [](const std::string& call, const std::string& what, std::int64_t most) {
    return Status::invalid_argument(fmt::format("{}: {} 0 to {}", call, what, most));
  };
  if (op == Op::kHostOf || op == Op::kLocalRankOf) {
    if (b < 0 || b >= places.ranks()) {
      return none(fmt::format("{}({})", op == Op::kHostOf ? "host_of" : "local_rank_of", b), "there are ranks",
                  places.ranks() - 1);
    }
    const Hosts::Position position = places.position_of(static_cast<int>(b));
    return static_cast<std::int64_t>(op == Op::kHostOf ? position.host : position.local_rank);
  }
  const std::int64_t host = op == Op::kRankOf ? a : b;
  const std::string call =
      op == Op::kRankOf ? fmt::format("rank_of({}, {})", a, b) : fmt::format("local_ranks_of({})", b);
  if (host < 0 || host >= places.hosts()) return none(call, "there are hosts", places.hosts() - 1);
  const int local_ranks = places.local_ranks(static_cast<int>(host));
  if (op == Op::kLocalRanksOf) return local_ranks;
  if (b < 0 || b >= local_ranks) return none(call, fmt::format("host {} has the local ranks", host), local_ranks - 1);
  return places.rank_of(static_cast<int>(host), static_cast<int>(b));
}

Result<std::int64_t> Expression::value(const std::vector<std::int64_t>& values, const Places& places) const {
  std::vector<std::int64_t> stack;
  const auto pop = [&] {
    const std::int64_t top = stack.back();
    stack.pop_back();
    return top;
  };
  for (const Item& item : items_) {
    if (item.op == Op::kNumber || item.op == Op::kName) {
      stack.push_back(item.op == Op::kNumber ? item.number : values[static_cast<std::size_t>(item.number)]);
      continue;
    }
    const std::int64_t b = pop();
    const std::int64_t a = takes_one(item.op) ? 0 : pop();
    if (is_of_places(item.op)) {
      auto found = of_places(item.op, a, b, places);
      if (!found.is_ok()) return found.status();
      stack.push_back(*found);
      continue;
    }
    std::int64_t result = 0;
    switch (item.op) {
      case Op::kNegate: result = -b; break;
      case Op::kNot: result = b == 0 ? 1 : 0; break;
      case Op::kLog2: result = log2_up(std::min(b, kMost)); break;
      case Op::kAdd: result = a + b; break;
      case Op::kSubtract: result = a - b; break;
      case Op::kMultiply:
        if (__builtin_mul_overflow(a, b, &result)) result = 2 * kMost;
        break;
      case Op::kDivide:
      case Op::kRemainder:
        if (b == 0) return Status::invalid_argument("divides by 0");
        result = item.op == Op::kDivide ? floor_divide(a, b) : a - floor_divide(a, b) * b;
        break;
      case Op::kEqual: result = a == b ? 1 : 0; break;
      case Op::kUnequal: result = a != b ? 1 : 0; break;
      case Op::kLess: result = a < b ? 1 : 0; break;
      case Op::kLessOrEqual: result = a <= b ? 1 : 0; break;
      case Op::kAnd: result = a != 0 && b != 0 ? 1 : 0; break;
      case Op::kOr: result = a != 0 || b != 0 ? 1 : 0; break;
      case Op::kMin: result = std::min(a, b); break;
      case Op::kMax: result = std::max(a, b); break;
      case Op::kXor: result = a ^ b; break;
      case Op::kNumber:
      case Op::kName:
      case Op::kRankOf:
      case Op::kHostOf:
      case Op::kLocalRankOf:
      case Op::kLocalRanksOf: break;
    }
    if (result > kMost || result < -kMost) return Status::invalid_argument("gives a number beyond 2^53");
    stack.push_back(result);
  }
  return stack.back();
}

}  // namespace tutti::internal::algorithms
