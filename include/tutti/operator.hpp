// Part of tutti/tutti.hpp: user-defined operators.
#ifndef TUTTI_OPERATOR_HPP_
#define TUTTI_OPERATOR_HPP_

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/operators.h"
#include "tutti/types.hpp"

namespace tutti {

// A user-defined operator of one communicator, passed in place of a tuttiRedOp_t. It must outlive the operations that
// use it. When the communicator is destroyed, the operator becomes invalid.
class Operator {
 public:
  // function(earlier, later) of two T, as tuttiRedOpCreate has it: associative, and called from any thread. Calls with
  // another datatype than T's fail the communicator.
  template <class T, class F>
  static Operator of(const Communicator& comm, F function, bool commutative = true);
  // The sum over ranks of this rank's `factor` times its elements.
  template <class T>
  static Operator pre_multiplied_sum(const Communicator& comm, T factor);

  // Takes it over; `other` must not be used any more.
  Operator(Operator&& other) noexcept
      : op_(std::exchange(other.op_, tuttiSum)), comm_(other.comm_), function_(std::move(other.function_)) {}
  // Exchanges the two.
  Operator& operator=(Operator&& other) noexcept {
    std::swap(op_, other.op_);
    std::swap(comm_, other.comm_);
    std::swap(function_, other.function_);
    return *this;
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator() {
    if (op_ != tuttiSum) (void)tuttiRedOpDestroy(op_, comm_);
  }
  // What calls take as their operator.
  operator tuttiRedOp_t() const noexcept { return op_; }  // NOLINT(google-explicit-constructor): stands for one

 private:
  explicit Operator(tuttiComm_t comm) noexcept : comm_(comm) {}
  template <class T, class F>
  static void call(const void* in, void* inout, std::size_t count, tuttiDataType_t datatype, void* context) {
    const auto& [function, expected] = *static_cast<const std::pair<const F, tuttiDataType_t>*>(context);
    if (datatype != expected)
      throw Error(tuttiInvalidArgument, "the operator was made for elements of another datatype than the call's");
    for (std::size_t i = 0; i < count; ++i) {
      T earlier;
      T later;
      std::memcpy(&earlier, static_cast<const char*>(in) + i * sizeof(T), sizeof(T));
      std::memcpy(&later, static_cast<char*>(inout) + i * sizeof(T), sizeof(T));
      const T both = function(earlier, later);
      std::memcpy(static_cast<char*>(inout) + i * sizeof(T), &both, sizeof(T));
    }
  }

  tuttiRedOp_t op_ = tuttiSum;  // in an empty object
  tuttiComm_t comm_ = nullptr;
  std::shared_ptr<const void> function_;
};

template <class T, class F>
Operator Operator::of(const Communicator& comm, F function, bool commutative) {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");
  Operator made(comm.get());
  using Kept = std::pair<const F, tuttiDataType_t>;
  auto kept = std::make_shared<Kept>(std::move(function), comm.data_type<T>());
  void* const context = kept.get();
  check(tuttiRedOpCreate(&made.op_, &Operator::call<T, F>, context, commutative ? 1 : 0, comm.get()), comm.get());
  made.function_ = std::move(kept);
  return made;
}

template <class T>
Operator Operator::pre_multiplied_sum(const Communicator& comm, T factor) {
  Operator made(comm.get());
  check(tuttiRedOpCreatePreMulSum(&made.op_, &factor, data_type_of<T>, tuttiScalarHostImmediate, comm.get()),
        comm.get());
  return made;
}

}  // namespace tutti

#endif  // TUTTI_OPERATOR_HPP_
