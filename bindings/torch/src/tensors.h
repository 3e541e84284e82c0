// What tensors may be, and what tutti is told of them. All refusals are RuntimeErrors that begin with the operation's
// name, and leave the group as it was.
#pragma once

#include <ATen/core/Tensor.h>
#include <tutti/tutti.h>

#include <cstddef>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;

// Throws "OPERATION: why".
[[noreturn]] void refuse(const std::string& operation, const std::string& why);

// One whose tensors DeviceQueue takes.
bool is_accelerator(at::Device device);
// Of the first of them that is on one; else the CPU.
at::Device device_of(const Tensors& tensors);
at::Device device_of(const std::vector<Tensors>& lists);

// All of them are on one device.
void check_one_device(const std::string& operation, const Tensors& inputs, const Tensors& outputs);

// On the CPU or such a device, strided, and dense in the memory format that it suggests: what is moved is the memory as
// it lies.
void check_tensor(const std::string& operation, const at::Tensor& tensor);
void check_tensors(const std::string& operation, const Tensors& tensors);
// The only one of a list.
const at::Tensor& check_single(const std::string& operation, const Tensors& tensors, const char* which = "");
// Of the type of `like`.
void check_same_type(const std::string& operation, const Tensors& tensors, const at::Tensor& like);
// Of its number of elements as well.
void check_alike(const std::string& operation, const Tensors& tensors, const at::Tensor& like);
void check_root(const std::string& operation, std::int64_t root, int ranks);

// Where nothing is combined, any type goes: those that tutti does not know as bytes.
struct Moved {
  tuttiDataType_t type = tuttiUint8;
  std::size_t per_element = 1;  // of `type`, in one of the tensor's
  [[nodiscard]] std::size_t count(const at::Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.numel()) * per_element;
  }
  [[nodiscard]] std::size_t bytes() const;
};
Moved moved(const at::Tensor& tensor);
// Of what is combined.
tuttiDataType_t reduced_type(const std::string& operation, const at::Tensor& tensor);

// An operator, which of a pre-multiplied sum is one of the communicator's own.
class Operator {
 public:
  Operator(const std::string& operation, const c10d::ReduceOp& op, const at::Tensor& tensor);
  // Calls `operation` with it, as tutti has it in `comm`.
  template <class F>
  tuttiResult_t use(tuttiComm_t comm, F operation) {
    if (!factor_.defined()) return operation(op_);
    tuttiRedOp_t op = tuttiSum;
    void* const factor = factor_.data_ptr();
    tuttiResult_t result = tuttiRedOpCreatePreMulSum(&op, factor, type_, tuttiScalarHostImmediate, comm);
    if (result != tuttiSuccess) return result;
    result = operation(op);
    (void)tuttiRedOpDestroy(op, comm);  // what is queued with it goes on
    return result;
  }

 private:
  tuttiRedOp_t op_ = tuttiSum;
  tuttiDataType_t type_ = tuttiFloat32;
  at::Tensor factor_;  // undefined: a built-in operator
};

// Of dense tensors of one type and size, as they lie. On a device in the current stream.
void copy_memory(const at::Tensor& to, const at::Tensor& from);

// Of a list that is received into: no two of them have memory in common.
void check_apart(const std::string& operation, const Tensors& tensors);

// Tensors of one type that lie anywhere, as blocks with displacements from the lowest address: nothing is copied. Where
// the distances are no multiples of an element, which numpy's arrays can bring about, the blocks are copies.
class Blocks {
 public:
  Blocks() = default;
  // REQUIRES: not empty.
  explicit Blocks(const Tensors& tensors);
  // Before they are read, and after they were written. REQUIRES: the tensors that they were made of.
  void load(const Tensors& tensors) const;
  void store(const Tensors& tensors) const;

  // Of the blocks, if they are that: who calls tutti keeps them to the end.
  [[nodiscard]] Tensors copies() const { return are_copies_ ? tensors_ : Tensors(); }
  [[nodiscard]] void* base() const { return base_; }
  [[nodiscard]] const Moved& moved() const { return moved_; }
  [[nodiscard]] const std::size_t* counts() const { return counts_.data(); }
  [[nodiscard]] const std::size_t* displacements() const { return displacements_.data(); }

 private:
  static void copy(const Tensors& to, const Tensors& from);

  Tensors tensors_;
  bool are_copies_ = false;
  void* base_ = nullptr;
  Moved moved_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> displacements_;
};

}  // namespace tutti_torch
