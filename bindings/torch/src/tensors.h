// Checks tensors, and translates them into arguments of tutti. A refusal is a RuntimeError that begins with the
// operation's name; it leaves the group as it was.
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

// On the CPU or such a device, and strided: what is not contiguous is copied (packing.h).
void check_tensor(const std::string& operation, const at::Tensor& tensor);
void check_tensors(const std::string& operation, const Tensors& tensors);
// The only one of a list.
const at::Tensor& check_single(const std::string& operation, const Tensors& tensors, const char* which = "");
// Of the layout of `like`: strided, or one of the sparse ones.
void check_layout(const std::string& operation, const Tensors& tensors, const at::Tensor& like);
// Of its type as well.
void check_same_type(const std::string& operation, const Tensors& tensors, const at::Tensor& like);
// Of its number of elements as well.
void check_alike(const std::string& operation, const Tensors& tensors, const at::Tensor& like);
void check_root(const std::string& operation, std::int64_t root, int ranks);
// The index of the root's tensor in a list that is not empty.
void check_root_tensor(const std::string& operation, std::int64_t root_tensor, const Tensors& tensors);

// Operations that only move data take any type; types unknown to tutti are moved as bytes.
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

}  // namespace tutti_torch
