#include "tensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti_torch {
namespace {

std::optional<tuttiDataType_t> type_of(at::ScalarType type) {
  switch (type) {
    case at::kByte: return tuttiUint8;
    case at::kChar: return tuttiInt8;
    case at::kShort: return tuttiInt16;
    case at::kInt: return tuttiInt32;
    case at::kLong: return tuttiInt64;
    case at::kUInt16: return tuttiUint16;
    case at::kUInt32: return tuttiUint32;
    case at::kUInt64: return tuttiUint64;
    case at::kHalf: return tuttiFloat16;
    case at::kBFloat16: return tuttiBfloat16;
    case at::kFloat: return tuttiFloat32;
    case at::kDouble: return tuttiFloat64;
    case at::kComplexFloat: return tuttiComplex64;
    case at::kComplexDouble: return tuttiComplex128;
    case at::kBool: return tuttiBool;
    case at::kFloat8_e4m3fn: return tuttiFloat8e4m3;
    case at::kFloat8_e5m2: return tuttiFloat8e5m2;
    default: return std::nullopt;
  }
}

std::optional<tuttiRedOp_t> operator_of(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM: return tuttiSum;
    case c10d::ReduceOp::AVG: return tuttiAvg;
    case c10d::ReduceOp::PRODUCT: return tuttiProd;
    case c10d::ReduceOp::MIN: return tuttiMin;
    case c10d::ReduceOp::MAX: return tuttiMax;
    case c10d::ReduceOp::BAND: return tuttiBand;
    case c10d::ReduceOp::BOR: return tuttiBor;
    case c10d::ReduceOp::BXOR: return tuttiBxor;
    default: return std::nullopt;
  }
}

}  // namespace

void refuse(const std::string& operation, const std::string& why) {
  TORCH_CHECK(false, "tutti ", operation, ": ", why);
}

bool is_accelerator(at::Device device) {
  // A custom device type (privateuseone) may be CUDA memory under another name.
  return device.is_cuda() || device.is_privateuseone();
}

at::Device device_of(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && is_accelerator(tensor.device())) return tensor.device();
  }
  return at::kCPU;
}

at::Device device_of(const std::vector<Tensors>& lists) {
  return lists.empty() ? at::Device(at::kCPU) : device_of(lists.front());
}

void check_one_device(const std::string& operation, const Tensors& inputs, const Tensors& outputs) {
  const at::Tensor* first = nullptr;
  for (const Tensors* const tensors : {&inputs, &outputs}) {
    for (const at::Tensor& tensor : *tensors) {
      if (first == nullptr) first = &tensor;
      if (tensor.device() == first->device()) continue;
      refuse(operation, c10::str("all tensors must be on one device, got ", first->device(), " and ", tensor.device()));
    }
  }
}

void check_tensor(const std::string& operation, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(operation, "a tensor is undefined");
  if (tensor.layout() != at::kStrided)
    refuse(operation, c10::str("unsupported layout: only supports dense tensors, got ", tensor.layout()));
  if (tensor.is_quantized() || tensor.is_nested()) {
    refuse(operation,
           c10::str("only supports dense tensors, got a ", tensor.is_nested() ? "nested" : "quantized", " one"));
  }
  if (!tensor.device().is_cpu() && !is_accelerator(tensor.device())) {
    refuse(operation, c10::str("only supports CPU and CUDA tensors, got one on ", tensor.device()));
  }
}

void check_tensors(const std::string& operation, const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) check_tensor(operation, tensor);
}

const at::Tensor& check_single(const std::string& operation, const Tensors& tensors, const char* which) {
  if (tensors.empty() && *which == '\0') refuse(operation, "requires non-empty tensor list");
  if (tensors.size() != 1) {
    refuse(operation, c10::str("requires a single-element", which, " tensor list, got ", tensors.size(), " tensors"));
  }
  check_tensor(operation, tensors.front());
  return tensors.front();
}

void check_layout(const std::string& operation, const Tensors& tensors, const at::Tensor& like) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !like.defined()) refuse(operation, "a tensor is undefined");
    if (tensors[i].layout() == like.layout()) continue;
    refuse(operation, c10::str("invalid tensor layout at index ", i, " (expected ", like.layout(), ", got ",
                               tensors[i].layout(), ")"));
  }
}

void check_same_type(const std::string& operation, const Tensors& tensors, const at::Tensor& like) {
  check_layout(operation, tensors, like);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(operation, tensors[i]);
    if (tensors[i].scalar_type() == like.scalar_type()) continue;
    refuse(operation, c10::str("invalid tensor type at index ", i, " (expected ", like.scalar_type(), ", got ",
                               tensors[i].scalar_type(), ")"));
  }
}

void check_alike(const std::string& operation, const Tensors& tensors, const at::Tensor& like) {
  check_same_type(operation, tensors, like);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() == like.numel()) continue;
    refuse(operation, c10::str("invalid tensor size at index ", i, " (expected ", like.sizes(), ", got ",
                               tensors[i].sizes(), ")"));
  }
}

void check_root(const std::string& operation, std::int64_t root, int ranks) {
  if (root < 0 || root >= ranks) refuse(operation, c10::str("invalid root rank: ", root));
}

void check_root_tensor(const std::string& operation, std::int64_t root_tensor, const Tensors& tensors) {
  if (tensors.empty()) {
    refuse(operation,
           c10::str("requires non-empty tensor list: there is no tensor ", root_tensor, " (invalid root tensor)"));
  }
  if (root_tensor >= 0 && static_cast<std::size_t>(root_tensor) < tensors.size()) return;
  refuse(operation, c10::str("invalid root tensor: ", root_tensor));
}

std::size_t Moved::bytes() const {
  switch (type) {
    case tuttiUint8:
    case tuttiInt8:
    case tuttiBool:
    case tuttiFloat8e4m3:
    case tuttiFloat8e5m2: return 1;
    case tuttiInt16:
    case tuttiUint16:
    case tuttiFloat16:
    case tuttiBfloat16: return 2;
    case tuttiInt32:
    case tuttiUint32:
    case tuttiFloat32: return 4;
    case tuttiComplex128: return 16;
    default: return 8;
  }
}

Moved moved(const at::Tensor& tensor) {
  if (const auto type = type_of(tensor.scalar_type())) return {*type, 1};
  return {tuttiUint8, static_cast<std::size_t>(tensor.element_size())};
}

tuttiDataType_t reduced_type(const std::string& operation, const at::Tensor& tensor) {
  const auto type = type_of(tensor.scalar_type());
  if (!type) refuse(operation, c10::str("cannot reduce tensors of type ", tensor.scalar_type()));
  return *type;
}

Operator::Operator(const std::string& operation, const c10d::ReduceOp& op, const at::Tensor& tensor)
    : type_(reduced_type(operation, tensor)) {
  if (const auto built_in = operator_of(op.op_)) {
    op_ = *built_in;
    return;
  }
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) refuse(operation, c10::str("has no reduction ", static_cast<int>(op.op_)));
  // By the name that PyTorch 2.11 has, too.
  const auto* const factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor == nullptr) refuse(operation, "PREMUL_SUM comes without its factor");
  factor_ = at::empty({1}, tensor.options().device(at::kCPU));
  if (factor->tensor_factor.defined()) {
    factor_.copy_(factor->tensor_factor.reshape({1}));
  } else {
    factor_.fill_(factor->double_factor);
  }
}

}  // namespace tutti_torch
